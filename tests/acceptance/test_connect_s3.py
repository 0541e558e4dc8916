"""A table and a trail on S3 (moto's real server) over Spark Connect."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.trail.lease import Lease
from cdf import ChangeFeed, Pipeline
from cdf.errors import LeaseHeld
from cdf.source.single_writer import COMMITS_SETTING
from infra.config.load import load
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


def test_a_trail_on_s3_has_each_event_once_and_one_runner_at_a_time(aws: Aws, tmp_path: Path) -> None:
    table, trails = f"s3a://{aws.bucket}/lake/people", f"s3a://{aws.bucket}/trails"
    config = tmp_path / "deltarelay.yaml"
    config.write_text(
        "version: 1\n"
        f"storage: {{s3: {{region: {aws.region}, endpoint: '{aws.endpoint}', path_style: true, credentials: env}}}}\n"
        f"connections: {{trail: {{kind: delta_audit, path: '{trails}'}}}}\n"
        f"pipelines: {{p: {{source: {{table: '{table}', key: [id], start: earliest}}, "
        "sink: {connection: trail, table: people}}}\n"
    )
    storage = aws.storage().model_copy(update={"commits": None})
    with (
        connect_server(tmp_path, {"spark.sql.shuffle.partitions": "1"}, storage=storage) as address,
        connect_session(address) as session,
    ):
        session.conf.set(COMMITS_SETTING, "single_writer")
        feed_on = "tblproperties (delta.enableChangeDataFeed = true)"
        session.sql(f"create table delta.`{table}` (id bigint, name string) using delta {feed_on}")
        session.sql(f"insert into delta.`{table}` values (1, 'a'), (2, 'b')")

        def replicate() -> int | None:
            sink = load(config).build_sink("p")
            return Pipeline(ChangeFeed(session, table), sink, key="id", start="earliest", name="p").run().position

        assert replicate() == 1
        held = Lease(session, f"{trails}/people", target="the trail")
        assert load(config).build_sink("p").activity().has_runner is True
        session.sql(f"delete from delta.`{table}` where id = 1")
        with pytest.raises(LeaseHeld):
            replicate()
        held.close()
        assert replicate() == 2
        events = session.read.format("delta").load(f"{trails}/people/events").select("version", "change_type")
        assert sorted(map(tuple, events.collect())) == [(1, "insert"), (1, "insert"), (2, "delete")]
