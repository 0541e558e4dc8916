"""Why the unit of work is a whole commit: Delta's stream may deliver the inserts of a commit before its deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Limits, Pipeline
from cdf.testing import MemorySink
from tests.integration.delta_table import Table, drained

IDS = range(60)


@pytest.fixture(scope="module")
def overwritten(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Version 1 writes the rows in six files; version 2 overwrites them all, again with six."""
    table = Table(spark, str(tmp_path_factory.mktemp("overwritten") / "table"))
    for mode, text in (("append", "old"), ("overwrite", "new")):
        rows = spark.range(0, len(IDS), 1, 6).selectExpr("id", f"'{text}' as v")
        rows.write.format("delta").mode(mode).save(table.path)
    return table


def raw_batches(spark: SparkSession, table: Table, checkpoint: Path) -> list[list[dict[str, Any]]]:
    reader = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    return drained(reader.option("maxFilesPerTrigger", 2).load(table.path), checkpoint)


def test_deltas_stream_tears_an_overwrite_and_applying_its_batches_in_order_loses_every_row(
    spark: SparkSession, overwritten: Table, tmp_path: Path
) -> None:
    batches = raw_batches(spark, overwritten, tmp_path)
    assert {row["_commit_version"] for batch in batches for row in batch} == {2}
    kinds = [{row["_change_type"] for row in batch} for batch in batches if batch]
    assert kinds == [{"insert"}, {"insert"}, {"insert"}, {"delete"}, {"delete"}, {"delete"}]

    state = dict.fromkeys(IDS, "old")
    for batch in batches:
        # As carefully as one batch allows: removes before puts.
        for row in sorted(batch, key=lambda row: row["_change_type"] == "insert"):
            if row["_change_type"] == "insert":
                state[row["id"]] = row["v"]
            else:
                del state[row["id"]]
    assert state == {}
    assert spark.read.format("delta").load(overwritten.path).count() == 60


@pytest.mark.parametrize("limits", [Limits(), Limits(max_bytes=1)], ids=["default limits", "limits below the commit"])
def test_the_pipeline_keeps_the_commit_whole(spark: SparkSession, overwritten: Table, limits: Limits) -> None:
    sink = MemorySink()
    result = Pipeline(ChangeFeed(spark, overwritten.path), sink, key="id", start=1, limits=limits).run()
    assert (result.loaded_rows, result.windows, result.position) == (60, 1, 2)
    assert (result.inserts, result.updates, result.deletes, result.conflicts.total) == (0, 60, 0, 0)
    assert {row["id"]: row["v"] for row in sink.store.read_rows()} == dict.fromkeys(IDS, "new")
