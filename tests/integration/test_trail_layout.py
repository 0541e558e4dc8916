"""The files of a trail are laid out anew: the history of a record reads few, and every hash stays what it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from audit.audit_trail import Trail
from audit.queries.questions import history
from audit.trail.compaction import compact_files
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from audit.verification import verify_trail
from cdf import ChangeFeed, Limits, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from tests.integration.delta_table import Table

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
