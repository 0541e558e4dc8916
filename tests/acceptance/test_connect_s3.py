"""A table on S3 (moto's real server) over Spark Connect: only the server has access to the bucket."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.commands import Database, Project
from tests.acceptance.test_run_over_connect import NO_JVM, use_server
from tests.fixtures.fix_aws import Aws
from tests.fixtures.fix_connect import connect_server, connect_session

NO_ACCESS = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"))


def test_a_table_on_s3_is_read_with_the_access_of_the_server(
    project: Project, database: Database, aws: Aws, tmp_path: Path
) -> None:
    lake = f"s3a://{aws.bucket}/lake"
    storage = aws.storage().model_copy(update={"commits": None})
    conf = {"spark.sql.shuffle.partitions": "1"}
    with connect_server(tmp_path, conf, storage=storage) as address:
        with connect_session(address) as session:
            feed_on = "tblproperties (delta.enableChangeDataFeed = true)"
            session.sql(f"create table delta.`{lake}/people` (id bigint, name string) using delta {feed_on}")
            session.sql(f"insert into delta.`{lake}/people` values (1, 'a'), (2, 'b')")
            session.sql(f"create table delta.`{lake}/off` (id bigint) using delta")
            use_server(project, f"{lake}/people", address)

            done = project.run("run", own_jvm=NO_JVM, environment=NO_ACCESS)
            assert done.code == 0, done.err
            session.sql(f"delete from delta.`{lake}/people` where id = 1")
        done = project.run("run", own_jvm=NO_JVM, environment=NO_ACCESS)
        assert done.code == 0, done.err
        assert database.rows("people") == [(2, "b")]
        assert project.run("verify", own_jvm=NO_JVM, environment=NO_ACCESS).code == 0

        refused = project.run("feed", "enable", f"{lake}/off", own_jvm=NO_JVM, environment=NO_ACCESS)
        assert (refused.code, f"nothing is written to {lake}/off" in refused.err) == (2, True), refused.err
