"""The trail keeps every promise of a sink that holds history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit import lease
from audit.tables import EVENTS, PAYLOAD, TrailTables
from cdf.change import CHANGE_TYPE, COMMIT_VERSION
from cdf.sink import Capabilities
from cdf.testing import SinkConformance
from cdf.testing.conformance.history import HistoryPromises
from cdf.testing.conformance.position import PositionPromises
from connectors.delta_audit.sink import DeltaAuditSink

ORDER = {"update_preimage": 0, "delete": 1, "update_postimage": 2, "insert": 3}


class TrailHarness:
    """A folder of the test's own. Instances that a test has left open are closed at its end."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.made = spark, str(path / "trail"), list[DeltaAuditSink]()
        self.options: dict[str, Any] = {}

    @property
    def capabilities(self) -> Capabilities:
        return DeltaAuditSink(self.path, spark=self.spark).capabilities

    def new_sink(self, **overrides: Any) -> DeltaAuditSink:
        self.made.append(DeltaAuditSink(self.path, spark=self.spark, **{**self.options, **overrides}))
        return self.made[-1]

    def read_rows(self) -> list[dict[str, Any]]:
        tables = TrailTables(self.spark, self.path)
        if not tables.exist():
            return []
        events = tables.read(EVENTS).drop("row_hash", "committed_at", "changed_columns")
        joined = events.join(tables.read(PAYLOAD).select("id", "row"), "id").collect()
        joined.sort(key=lambda row: (row["version"], ORDER[row["change_type"]]))
        return [
            {
                **row["row"].asDict(),
                CHANGE_TYPE: None if row["baseline"] else row["change_type"],
                COMMIT_VERSION: row["version"],
            }
            for row in joined
        ]

    def expire_lease(self) -> None:
        for sink in self.made:  # as in a process that stands still: nobody renews, and nobody is about to
            if sink._lease is not None:
                with sink._lease._gate:
                    sink._lease._stopped.set()
        file = Path(self.path) / "_lease"
        file.write_text(json.dumps({**json.loads(file.read_text()), "seconds": 0}))


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrailHarness]:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)
    harness = TrailHarness(spark, tmp_path)
    yield harness
    for sink in harness.made:
        sink.close()


@pytest.mark.usefixtures("interpreted")
class TestTheTrail(SinkConformance):
    pass


@pytest.mark.long
class TestByTheTasks(HistoryPromises):
    """Where the rows of windows travel another way; of the position what windows with rows are about. A snapshot's rows
    always travel so."""

    test_each_step = PositionPromises.test_a_new_instance_sees_the_position_of_each_step
    test_again = PositionPromises.test_the_same_window_again_changes_nothing
    test_repaired = PositionPromises.test_a_window_whose_rows_fail_leaves_everything_and_is_applied_after_repair
    test_vanished = PositionPromises.test_a_window_whose_commits_vanish_while_it_is_read_is_not_applied
    test_succeeded = PositionPromises.test_a_runner_that_dies_in_a_window_is_succeeded_without_a_trace

    @pytest.fixture
    def harness(self, harness: TrailHarness) -> TrailHarness:
        harness.options["small_window_bytes"] = -1
        return harness
