"""A writer that records no old rows of its updates: the run stops where a changed key would leave its old row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import KeyViolation
from cdf.testing import MemorySink
from connectors.postgres import PostgresSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.foreign_writer import append_commit
from tests.integration.postgres_case import ON_BOTH_PATHS

ALL = ("update_preimage", "update_postimage")


def change_key(table: Table, *images: str) -> int:
    """Change id 1 to 11, as a writer that records only these images. → the version"""
    folder = Path(table.path)
    removed = [Path(name).name for name in table.spark.read.format("delta").load(table.path).inputFiles()]
    (folder / "_change_data").mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [11, 2], "v": ["a", "b"]}), folder / "after.parquet")
    keys = {"update_preimage": 1, "update_postimage": 11}
    rows = {"id": [keys[one] for one in images], "v": ["a"] * len(images), "_change_type": list(images)}
    pq.write_table(pa.table(rows), folder / "_change_data" / "cdc.parquet")
    file = {"partitionValues": {}, "dataChange": True, "modificationTime": 0}
    size = (folder / "after.parquet").stat().st_size
    change = {"path": "_change_data/cdc.parquet", "partitionValues": {}, "size": size, "dataChange": False}
    return append_commit(
        table.path,
        *({"remove": {"path": name, "dataChange": True, "deletionTimestamp": 0}} for name in removed),
        {"add": {**file, "path": "after.parquet", "size": size}},
        {"cdc": change},
        operation="UPDATE",
    )


@pytest.fixture
def table(spark: SparkSession, delta_path: str) -> Table:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'b')")
    return table


@ON_BOTH_PATHS
def test_postgres_stops_before_the_row_that_would_be_left(
    spark: SparkSession, table: Table, pg: Pg, path: dict[str, int]
) -> None:
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.target", **path)  # type: ignore[arg-type]
    pipeline = Pipeline(ChangeFeed(spark, table.path), sink, key="id")
    pipeline.run()
    version = change_key(table, "update_postimage")
    table.forget()
    with pytest.raises(KeyViolation) as caught:
        pipeline.run()
    assert caught.value.fields["reason"] == "image_missing"
    assert caught.value.message.startswith(
        f"version {version} of {table.path} has updates without their old or new row: its writer (OtherEngine/7.1) "
    )
    assert pg.query("select id, v from {schema}.target order by id") == [(1, "a"), (2, "b")]
    pipeline.reload()
    assert pg.query("select id, v from {schema}.target order by id") == [(2, "b"), (11, "a")]


def test_a_sink_that_reads_the_net_effect_of_spark(spark: SparkSession, table: Table) -> None:
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, table.path), sink, key="id")
    pipeline.run()
    change_key(table, "update_postimage")
    table.forget()
    with pytest.raises(KeyViolation, match=r"its writer \(OtherEngine/7\.1\)"):
        pipeline.run()
    assert {row["id"] for row in sink.store.read_rows()} == {1, 2}


@ON_BOTH_PATHS
def test_a_writer_that_records_both_rows(spark: SparkSession, table: Table, pg: Pg, path: dict[str, int]) -> None:
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.target", **path)  # type: ignore[arg-type]
    pipeline = Pipeline(ChangeFeed(spark, table.path), sink, key="id")
    pipeline.run()
    change_key(table, *ALL)
    table.forget()
    pipeline.run()
    assert pg.query("select id, v from {schema}.target order by id") == [(2, "b"), (11, "a")]
    assert pipeline.verify().equal
