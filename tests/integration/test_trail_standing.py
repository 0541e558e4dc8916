"""Where a trail stands, told without Spark, as the sink itself tells it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.trail.position import read_position
from audit.trail.tables import LEDGER
from cdf import ChangeFeed, Pipeline
from cdf.errors import SinkUnavailable
from cdf.sink import Position
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")


def test_the_position_from_the_log_alone(spark: SparkSession, tmp_path: Path) -> None:
    source, path = Table(spark, str(tmp_path / "source")), tmp_path / "trail"
    source.sql("insert into {t} values (1, 'a')")
    ledger = f"delta.`{path / LEDGER}`"
    assert read_position(str(path)) == Position(None)

    def run() -> None:
        Pipeline(ChangeFeed(spark, source.path), DeltaAuditSink(str(path), spark=spark), key=("id",), start=0).run()

    run()
    there = read_position(str(path))
    assert there.version == 1
    assert there.table_id == ChangeFeed(spark, source.path).log.metadata().table_id
    source.sql("update {t} set v = 'b'")
    run()
    run()  # nothing to do: it only opens
    assert read_position(str(path)).version == 2
    # What is no upkeep: the log does not tell, and the records are read
    spark.sql(f"restore table {ledger} to version as of {_first_with_records(spark, ledger)}")
    assert read_position(str(path)) == there
    log = path / LEDGER / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text("{")
    with pytest.raises(SinkUnavailable):
        read_position(str(path))


def test_an_idle_run_and_a_runner_that_is_alive_are_seen(spark: SparkSession, tmp_path: Path) -> None:
    source, path = Table(spark, str(tmp_path / "source")), str(tmp_path / "trail")
    source.sql("insert into {t} values (1, 'a')")
    sink = DeltaAuditSink(path, spark=spark)

    def run() -> None:
        Pipeline(ChangeFeed(spark, source.path), DeltaAuditSink(path, spark=spark), key=("id",), start=0).run()

    run()
    first = sink.activity()
    run()  # nothing to do
    second = sink.activity()
    assert second.moved_at == first.moved_at
    assert first.moved_at is not None
    assert first.runner_seen_at is not None
    assert second.runner_seen_at is not None
    assert first.moved_at < first.runner_seen_at < second.runner_seen_at
    assert (second.has_runner, second.runner_since) == (None, None)
    with sink.open_for(source.path, ("id",), "people"):
        alive = DeltaAuditSink(path).activity()
    assert alive.has_runner is True
    assert alive.runner_since is not None
    assert alive.runner_since > second.runner_seen_at
    assert sink.activity().has_runner is None


def _first_with_records(spark: SparkSession, ledger: str) -> int:
    history = spark.sql(f"describe history {ledger}").where("userMetadata like '%\"state\"%'")
    return int(history.agg({"version": "min"}).collect()[0][0])
