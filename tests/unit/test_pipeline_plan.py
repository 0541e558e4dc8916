"""A plan shows what a run would do, counts it, lists what stands against it, and touches nothing; without Spark."""

from __future__ import annotations

import pytest

from cdf import Limits, Pipeline
from cdf.testing import MemorySink, MemoryTable
from tests.unit.memory_source import feed_of, memory_table


@pytest.fixture(scope="module")
def table() -> MemoryTable:
    """Five commits with rows; a column is added by version 4."""
    made = memory_table()
    made.append({"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"})
    made.update(lambda row: row["id"] < 3, v="x")
    made.delete(lambda row: row["id"] == 2)
    made.add_column("w", "integer")
    made.append({"id": 4, "v": "d", "w": 1}, {"id": 5, "v": "e", "w": 1})
    return made


def untouched(sink: MemorySink) -> bool:
    store = sink.store
    return (store.contents.position.version, store.read_rows(), store.epoch) == (None, [], 0)


def test_a_plan_for_an_empty_state_counts_the_copy_and_every_window(table: MemoryTable) -> None:
    sink = MemorySink()
    feed = feed_of(table)
    plan = Pipeline(feed, sink, key="id", start=1, limits=Limits(max_commits=2)).plan()
    assert untouched(sink)
    assert (plan.position, plan.last_version, plan.load_version, plan.load_rows) == (None, 5, 1, 3)
    assert plan.problems == ()
    first, second = plan.windows
    assert (first.first, first.last, first.commits, first.columns) == (2, 3, 2, 2)
    assert first.changes == {"delete": 1, "update_postimage": 2, "update_preimage": 2}
    assert first.net == {"delete": 1, "update": 1}
    assert (second.first, second.last, second.commits, second.columns) == (4, 5, 2, 3)
    assert (second.changes, second.net, second.conflicts) == ({"insert": 2}, {"insert": 2}, 0)


def test_a_plan_up_to_a_version_from_a_position_on(table: MemoryTable) -> None:
    sink = MemorySink()
    pipeline = Pipeline(feed_of(table), sink, key="id", start=2)
    pipeline.run(until=2)
    held, epoch = sink.store.contents, sink.store.epoch
    plan = pipeline.plan(until=3)
    assert (plan.position, plan.last_version, plan.load_version, plan.load_rows) == (2, 3, None, None)
    assert [(window.first, window.last, dict(window.net)) for window in plan.windows] == [(3, 3, {"delete": 1})]
    assert pipeline.plan(until=2).windows == ()
    assert (sink.store.contents, sink.store.epoch) == (held, epoch)


def test_a_plan_for_a_history_counts_changes_only(table: MemoryTable) -> None:
    sink = MemorySink(holds="history")
    plan = Pipeline(feed_of(table), sink, key="id", start="earliest").plan(until=3)
    assert (plan.load_version, plan.load_rows) == (None, None)
    assert [(window.first, window.last, dict(window.net)) for window in plan.windows] == [(0, 3, {})]
    assert plan.windows[0].changes == {"delete": 1, "insert": 3, "update_postimage": 2, "update_preimage": 2}
    assert untouched(sink)


def test_a_plan_lists_what_cannot_be_followed(table: MemoryTable) -> None:
    sink = MemorySink(schema_changes=())
    plan = Pipeline(feed_of(table), sink, key="id", start=1).plan()
    assert len(plan.problems) == 1
    assert "version 4" in plan.problems[0]
    assert "column 'w' (int) was added" in plan.problems[0]
    assert "--until 3" in plan.problems[0]
    assert untouched(sink)


def test_a_plan_lists_a_time_without_the_feed() -> None:
    table = memory_table()
    table.append({"id": 1, "v": "a"})
    table.turn_feed(False)
    table.turn_feed(True)
    sink = MemorySink()
    plan = Pipeline(feed_of(table), sink, key="id", start=0).plan()
    assert len(plan.problems) == 1
    assert "version 2" in plan.problems[0]
    assert "turned the change feed off" in plan.problems[0]
    assert untouched(sink)


def test_a_plan_shows_how_often_the_source_held_a_key_twice() -> None:
    table = memory_table()
    table.append({"id": 1, "v": "a"})
    table.append({"id": 1, "v": "b"})
    sink = MemorySink()
    plan = Pipeline(feed_of(table), sink, key="id", start=0).plan()
    assert [(dict(window.net), window.conflicts) for window in plan.windows] == [({"insert": 1}, 1)]
    assert plan.problems == ()
    assert plan.warnings == (
        "1 changes contradict each other within their window: the source held a key (id) more than once",
    )
    assert untouched(sink)
