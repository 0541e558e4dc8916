"""The trail keeps every promise of a sink that holds history."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit.trail import lease
from audit.trail.tables import EVENTS, PAYLOAD, TABLES, TrailTables
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION
from cdf.changes.window import Snapshot
from cdf.sink import Applied, Capabilities, Position, Source
from cdf.testing import SinkConformance
from cdf.testing.conformance.harness import orders, start
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
            if sink._open_trail is not None and (lease := sink._open_trail.lease) is not None:
                with lease._lock:
                    lease._stopped.set()
        file = Path(self.path) / "_lease"
        file.write_text(json.dumps({**json.loads(file.read_text()), "seconds": 0}))


@dataclass(frozen=True)
class Begun:
    """A trail that holds START at version 4, and what its load was answered."""

    path: Path
    applied: Applied


class Loaded(DeltaAuditSink):
    """On a trail that was loaded before the test began: the first load of START is answered with that one's answer."""

    begun: Begun | None = None
    keeps_open = False

    def load(self, snapshot: Snapshot) -> Applied:
        if self.begun is None:
            return super().load(snapshot)
        begun, self.begun = self.begun, None
        assert (snapshot.version, snapshot.read().collect()) == (
            4,
            start(orders(self.trail.tables.spark)).read().collect(),
        )
        return begun.applied

    def open(self, source: Source) -> Position:
        return self.inspect(source).position if self.keeps_open else super().open(source)

    def close(self) -> None:
        if not self.keeps_open:
            super().close()


class LoadedHarness(TrailHarness):
    """A copy of a trail that was loaded. What the first instance is told to load it has."""

    def __init__(self, spark: SparkSession, path: Path, begun: Begun) -> None:
        super().__init__(spark, path)
        shutil.copytree(begun.path, self.path)
        self.begun: Begun | None = begun

    def new_sink(self, **overrides: Any) -> DeltaAuditSink:
        sink = Loaded(self.path, spark=self.spark, **{**self.options, **overrides})
        sink.begun, self.begun = self.begun, None
        self.made.append(sink)
        return sink


class SharedHarness(TrailHarness):
    """One trail, loaded and open, for promises that leave it as it is. Other instances than the first only look at it."""

    def __init__(self, spark: SparkSession, begun: Begun, sink: Loaded) -> None:
        super().__init__(spark, begun.path.parent)
        self.path = begun.path.as_posix()
        sink.begun = begun
        self.shared: Loaded | None = sink

    def new_sink(self, **overrides: Any) -> DeltaAuditSink:
        sink, self.shared = self.shared, None
        return super().new_sink(**overrides) if sink is None else sink

    def commits(self) -> dict[str, int]:
        tables = TrailTables(self.spark, self.path)
        return {name: tables.log(name).latest() for name in TABLES}


UNCHANGED = (
    "test_loading_twice_is_refused",
    "test_a_window_from_before_the_position_changes_nothing",
    "test_a_window_with_a_gap_before_it_is_refused",
    "test_a_window_that_overlaps_the_position_is_refused",
    "test_the_window_of_another_table_is_refused",
    "test_a_window_whose_commits_vanish_while_it_is_read_is_not_applied",
)
"""Promises that begin with START and leave it: they share one trail, and no table of it gets a commit meanwhile."""
LOADED = (
    "test_every_change_is_kept_once_in_the_order_of_its_key",
    "test_windows_add_to_each_other",
    "test_a_history_follows_an_added_column",
    "test_a_new_instance_sees_the_position_of_each_step",
    "test_the_same_window_again_changes_nothing",
    "test_a_window_without_rows_moves_the_position",
    "test_a_window_whose_rows_fail_leaves_everything_and_is_applied_after_repair",
    "test_a_runner_that_dies_in_a_window_is_succeeded_without_a_trace",
    "test_a_second_runner_is_refused_while_the_first_is_alive",
    "test_close_gives_the_lease_back",
    "test_a_stale_runner_cannot_apply",
)
"""Promises that begin with START: each has a copy of a trail that holds it. That a load makes it is one of the others. The
first sink of the test is the one that loads."""


@pytest.fixture(scope="module")
def quick_lease() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lease, "RENEW_SECONDS", 0.3)
        yield


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Begun:
    path, table = tmp_path_factory.mktemp("begun") / "trail", orders(spark)
    sink = DeltaAuditSink(str(path), spark=spark)
    sink.open(table.source())
    applied = sink.load(start(table))
    sink.close()
    return Begun(path, applied)


@pytest.fixture(scope="module")
def shared(
    spark: SparkSession, begun: Begun, tmp_path_factory: pytest.TempPathFactory, quick_lease: None
) -> Iterator[tuple[Begun, Loaded]]:
    path = tmp_path_factory.mktemp("shared") / "trail"
    shutil.copytree(begun.path, path)
    sink = Loaded(str(path), spark=spark)
    sink.open(orders(spark).source())
    sink.keeps_open = True
    yield Begun(path, begun.applied), sink
    sink.keeps_open = False
    sink.close()


@pytest.fixture
def harness(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, quick_lease: None
) -> Iterator[TrailHarness]:
    name = request.node.name
    if name in UNCHANGED:
        harness = SharedHarness(spark, *request.getfixturevalue("shared"))
        before = harness.commits()
        yield harness
        assert harness.commits() == before
        return
    begins = name in LOADED or request.cls is TestByTheTasks
    own = LoadedHarness(spark, tmp_path, request.getfixturevalue("begun")) if begins else TrailHarness(spark, tmp_path)
    yield own
    for sink in own.made:
        sink.close()


@pytest.mark.usefixtures("interpreted")
class TestTheTrail(SinkConformance):
    def test_every_promise_that_begins_with_a_loaded_trail_is_one_of_the_suite(self) -> None:
        assert [name for name in (*UNCHANGED, *LOADED) if not hasattr(SinkConformance, name)] == []


class TestByTheTasks:
    """Where the rows of windows travel another way. A snapshot's rows always travel so."""

    test_every_change = HistoryPromises.test_every_change_is_kept_once_in_the_order_of_its_key
    test_one_after_the_other = HistoryPromises.test_windows_add_to_each_other
    test_added_column = HistoryPromises.test_a_history_follows_an_added_column
    test_repaired = PositionPromises.test_a_window_whose_rows_fail_leaves_everything_and_is_applied_after_repair
    test_vanished = PositionPromises.test_a_window_whose_commits_vanish_while_it_is_read_is_not_applied
    test_succeeded = PositionPromises.test_a_runner_that_dies_in_a_window_is_succeeded_without_a_trace

    @pytest.fixture
    def harness(self, harness: TrailHarness) -> TrailHarness:
        harness.options["small_window_bytes"] = -1
        return harness
