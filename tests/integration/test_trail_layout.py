"""The files of a trail are laid out anew: the history of a record reads few, and every hash stays what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from audit.audit_trail import Trail
from audit.queries import find_record
from audit.queries.questions import history
from audit.queries.view import view
from audit.trail.compaction import compact_files
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from audit.verification import verify_trail
from cdf import ChangeFeed, Limits, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table, setting
from tests.integration.executions import Executions

pytestmark = pytest.mark.usefixtures("interpreted")

NAMED = "`the id` long not null, `a.b` string not null, gone boolean, v string"


def test_the_values_of_one_record_stand_together(spark: SparkSession, tmp_path: Path) -> None:
    source = Table(spark, str(tmp_path / "source"), NAMED, **{"columnMapping.mode": "name"})  # type: ignore[arg-type]
    path = str(tmp_path / "trail")
    for _ in range(3):
        source.sql("insert into {t} select id, concat('k', id), id > 7, 'x' from range(400)")
    key = ("the id", "a.b", "gone")
    Pipeline(
        ChangeFeed(spark, source.path),
        DeltaAuditSink(path, spark=spark),
        key=key,
        start="earliest",
        limits=Limits(max_commits=1),
    ).run()
    trail = Trail(spark, path)
    told: list[str] = []
    done = compact_files(trail.tables, trail.columns(), key, file_bytes=8192, progress=told.append)
    assert told == [PAYLOAD, EVENTS, LEDGER]
    assert (done.before[EVENTS], done.after[LEDGER]) == (3, 1)
    bounds = [
        (row["least"], row["most"])
        for row in spark.sql(
            "select min(row.the_id) least, max(row.the_id) most from (select row, _metadata.file_path f "
            f"from delta.`{trail.tables.location(PAYLOAD)}`) group by f order by least"
        ).collect()
    ]
    assert len(bounds) == done.after[PAYLOAD] > 2
    assert len([1 for least, most in bounds if least <= 200 <= most]) < len(bounds)
    found, _ = verify_trail(trail.tables, [])
    assert (found.findings, found.events, found.values) == ((), 1200, 1200)
    assert history(trail, {"the id": 200}).count() == 3


def test_the_history_of_a_record_reads_once_the_files_that_have_its_events(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record is in every commit, another one in two that are far apart; the rest is there once."""
    source = Table(spark, str(tmp_path / "source"), "name string not null, number int not null, v string")
    for number in range(8):
        rare = " union all select 'rare', 7, 'r'" if number in (1, 6) else ""
        source.sql(
            f"insert into {{t}} select concat('k', id), {number}, uuid() from range(60) "
            f"union all select 'hot', 1, 'h'{rare}"
        )
    key, path = ("name", "number"), str(tmp_path / "trail")
    feed, sink = ChangeFeed(spark, source.path), DeltaAuditSink(path, spark=spark)
    Pipeline(feed, sink, key=key, start="earliest", limits=Limits(max_commits=5)).run()
    trail = Trail(spark, path)
    hot, rare = {"name": "hot", "number": 1}, {"name": "rare", "number": 7}

    def check_answers() -> None:
        for record, events in ((hot, 8), (rare, 2)):
            found = history(trail, record)
            rows = view(trail).where(f"row.name = '{record['name']}' and row.number = {record['number']}")
            assert found.count() == events
            assert _sorted_rows(found) == _sorted_rows(rows.select(*found.columns))

    check_answers()
    with monkeypatch.context() as patched:
        patched.setattr(find_record, "_READ_ONCE_BYTES", 0)
        check_answers()
    done = compact_files(trail.tables, trail.columns(), key, file_bytes=4096)
    check_answers()
    watched = Executions(spark)
    with setting(spark, "spark.sql.maxMetadataStringLength", "10000"):  # or the path of a table may be cut short
        versions = {row["version"] for row in history(trail, rare).collect()}
    read = {name: watched.files_read(tmp_path / "trail" / name) for name in (PAYLOAD, EVENTS, LEDGER)}
    bounds = trail.tables.read(PAYLOAD).selectExpr("row.*", "_metadata.file_path as file").groupBy("file")
    bounds = bounds.agg(*(bound(name).alias(f"{bound.__name__}_{name}") for name in key for bound in (F.min, F.max)))
    can_have = bounds.where("'rare' between min_name and max_name and 7 between min_number and max_number").count()
    events = trail.tables.read(EVENTS).selectExpr("version", "_metadata.file_path as file").distinct().collect()
    with_events = {row["file"] for row in events if row["version"] in versions}
    assert read == {PAYLOAD: can_have, EVENTS: len(with_events), LEDGER: 2}
    assert done.after[EVENTS] > len(with_events)
    assert done.after[PAYLOAD] > can_have > 0


def _sorted_rows(rows: DataFrame) -> list[Any]:
    return sorted((row.asDict(recursive=True) for row in rows.collect()), key=repr)
