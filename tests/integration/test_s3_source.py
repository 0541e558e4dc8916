"""A table on S3 (moto's real server), through everything that a table on disk goes through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf import ChangeFeed, Pipeline
from cdf.errors import ConfigError, SourceError
from cdf.source.log import TableLog
from cdf.source.single_writer import COMMITS_SETTING, commit_alone, require_writer
from infra.config.load import load
from infra.diagnostics.preflight import check_connections
from infra.diagnostics.status import read_pipeline_status
from infra.s3.spark_settings import spark_conf
from tests.acceptance.commands import change, wait_for
from tests.fixtures.fix_aws import KEY_ID, SECRET, Aws
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import setting
from tests.integration.postgres_case import sink_of

SCHEMA = StructType().add("id", "long").add("name", "string")


@pytest.fixture
def lake(spark: SparkSession, aws: Aws) -> str:
    """An address on S3 where nothing is yet. The session is told where its bucket is, and of no keys but moto's."""
    hadoop = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    told = spark_conf(aws.storage().model_copy(update={"commits": None}))
    for name, value in told.items():
        if name.startswith("spark.hadoop.fs.s3a.") and "credentials" not in name:
            setting_name = name.removeprefix("spark.hadoop.fs.s3a.")
            hadoop.set(f"fs.s3a.bucket.{aws.bucket}.{setting_name}", value)
    hadoop.set(f"fs.s3a.bucket.{aws.bucket}.access.key", KEY_ID)
    hadoop.set(f"fs.s3a.bucket.{aws.bucket}.secret.key", SECRET)
    return f"s3a://{aws.bucket}/lake/customers"


@pytest.fixture
def single_writer(spark: SparkSession) -> Iterator[None]:
    with setting(spark, COMMITS_SETTING, "single_writer"):
        yield


def keys(aws: Aws, prefix: str = "") -> list[str]:
    found = aws.s3.list_objects_v2(Bucket=aws.bucket, Prefix=prefix)
    return [one["Key"] for one in found.get("Contents", [])]


def same(spark: SparkSession, pg: Pg, address: str) -> None:
    expected = sorted(tuple(row) for row in spark.read.format("delta").load(address).collect())
    assert sorted(pg.query("select id, name from {schema}.target")) == expected


def test_nothing_is_written_before_somebody_has_said_what_keeps_writers_apart(
    spark: SparkSession, aws: Aws, lake: str
) -> None:
    with pytest.raises(ConfigError, match="nothing is written") as caught:
        ChangeFeed.create(spark, lake, SCHEMA)
    assert "storage lock create" in (caught.value.hint or "")
    assert keys(aws) == []
    spark.sql(f"create table delta.`{lake}` (id bigint, name string) using delta")
    before = keys(aws)
    with pytest.raises(ConfigError, match="nothing is written"):
        ChangeFeed(spark, lake).enable()
    assert keys(aws) == before


def test_another_spelling_of_an_address_is_another_lock(spark: SparkSession, aws: Aws) -> None:
    lock_store = "io.delta.storage.S3DynamoDBLogStore"
    with setting(spark, "spark.delta.logStore.s3.impl", lock_store), pytest.raises(ConfigError, match="another lock"):
        require_writer(spark, f"s3://{aws.bucket}/t")


@pytest.mark.usefixtures("single_writer")
def test_from_an_empty_bucket_to_a_followed_table(spark: SparkSession, aws: Aws, pg: Pg, lake: str) -> None:
    feed = ChangeFeed.create(spark, lake, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    change(
        spark,
        lake,
        "insert into {t} select id, concat('n', id) from range(300)",
        "update {t} set name = 'x' where id % 3 = 0",
        "delete from {t} where id % 7 = 0",
        "optimize {t}",
    )
    assert feed.read(start_version=3).count() == 43
    assert feed.status().latest_version == 4
    pipeline = Pipeline(feed, sink_of(pg), key=["id"], start=1, name="p")
    result = pipeline.run()
    assert (result.loaded_rows, result.position) == (300, 4)
    same(spark, pg, lake)
    assert pipeline.verify().equal

    handle = pipeline.follow(trigger={"processingTime": "0 seconds"})
    try:
        wait_for(lambda: handle.status().state == "following", "the follower to have caught up")
        change(
            spark,
            lake,
            "merge into {t} using (select 1 as k) s on id = k when matched then update set id = 1001",
            "vacuum {t}",
        )
        latest = feed.log.latest()
        wait_for(lambda: handle.status().position == latest, "the last version")
    finally:
        handle.stop()
    handle.await_termination()
    same(spark, pg, lake)


@pytest.mark.usefixtures("single_writer")
def test_it_is_seen_without_a_jvm(spark: SparkSession, aws: Aws, pg: Pg, lake: str, tmp_path: Path) -> None:
    feed = ChangeFeed.create(spark, lake, SCHEMA)
    change(spark, lake, "insert into {t} values (1, 'a')", "insert into {t} values (2, 'b')")
    Pipeline(feed, sink_of(pg), key=["id"], name="p").run(until=1)
    file = tmp_path / "deltarelay.yaml"
    file.write_text(
        "version: 1\n"
        f"storage: {{s3: {{region: {aws.region}, endpoint: '{aws.endpoint}', path_style: true, credentials: env}}}}\n"
        f"connections: {{w: {{kind: postgres, dsn: '{pg.dsn}'}}}}\n"
        # another spelling of the same address
        f"pipelines: {{p: {{source: {{table: 's3://{aws.bucket}//lake/customers/', key: [id]}}, "
        f"sink: {{connection: w, table: {pg.schema}.target}}}}}}\n"
    )
    project = load(file)
    status = read_pipeline_status(project, "p")
    assert (status.state, status.position, status.latest_version) == ("behind", 1, 2)
    assert status.lag_seconds is not None
    assert status.source == lake
    assert check_connections(project, "p").ok


@pytest.mark.usefixtures("single_writer")
def test_a_promise_that_somebody_else_breaks_is_told(spark: SparkSession, aws: Aws, lake: str) -> None:
    spark.sql(f"create table delta.`{lake}` (id bigint, name string) using delta")
    log = TableLog(spark, lake)
    assert ChangeFeed(spark, lake).enable().warnings == ()
    assert '"deltarelay": "feed enable"' in (next(log.commits(1, 1)).user_metadata or "")

    def beside() -> None:
        change(spark, lake, "insert into {t} values (1, 'ours')")
        with setting(spark, "spark.databricks.delta.commitInfo.userMetadata", "somebody else"):
            change(spark, lake, "insert into {t} values (2, 'theirs')")

    (warning,) = commit_alone(spark, log, "test", beside)
    assert "version 3" in warning

    def overwritten() -> None:
        """What the default log store lets two clusters do: the second PUT of N.json takes the place of the first."""
        change(spark, lake, "insert into {t} values (3, 'ours')")
        name = f"lake/customers/_delta_log/{4:020d}.json"
        text = aws.s3.get_object(Bucket=aws.bucket, Key=name)["Body"].read().decode()
        theirs = "\n".join(line for line in text.splitlines() if "commitInfo" not in line)
        aws.s3.put_object(Bucket=aws.bucket, Key=name, Body=theirs.encode())

    with pytest.raises(SourceError, match="another writer has overwritten it"):
        commit_alone(spark, log, "test", overwritten)
