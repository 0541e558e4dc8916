"""The walk from commit to commit, without Spark: where windows end, what moves the position, what the target holds."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql.types import StructType

from audit.erasure.commit_marker import erasing_metadata
from cdf import Applied, Limits, Pipeline, Position, Snapshot, Source
from cdf.sink.guard import ErasureNotConfigured
from cdf.testing import MemorySink
from tests.integration.erasures import Knows
from tests.unit.memory_source import feed_of, held, inserted, memory_table, steps_of


def test_windows_end_at_the_limits_and_the_position_moves_with_each() -> None:
    sink = MemorySink()
    pipeline = Pipeline(feed_of(inserted(4)), sink, key="id", start=0, limits=Limits(max_commits=3))
    seen: list[tuple[int | None, set[Any]]] = []
    result = pipeline.run(progress=lambda _: seen.append((sink.store.contents.position.version, set(held(sink)))))
    assert seen == [(0, set()), (3, {1, 2, 3}), (4, {1, 2, 3, 4})]
    assert (result.loaded_rows, result.windows, result.inserts) == (0, 2, 4)
    assert (result.position, result.latest_version) == (4, 4)
    assert (result.updates, result.deletes, result.conflicts.total) == (0, 0, 0)


def test_every_commit_above_the_byte_limit_is_a_window() -> None:
    history = MemorySink(holds="history")
    pipeline = Pipeline(feed_of(inserted(4)), history, key="id", start=1, limits=Limits(max_bytes=1))
    assert steps_of(pipeline, until=3) == [("window", 1, 1), ("window", 2, 2), ("window", 3, 3)]


def test_a_run_with_nothing_new_does_nothing() -> None:
    sink = MemorySink()
    pipeline = Pipeline(feed_of(inserted(1)), sink, key="id")
    assert steps_of(pipeline) == [("load", 1, 1)]
    result = pipeline.run()
    assert (result.position, result.loaded_rows, result.windows) == (1, None, 0)
    assert sink.store.owner is None  # the lease was given back


def test_an_added_column_is_followed_in_a_window_of_its_own() -> None:
    table = inserted(2)
    table.add_column("w", "integer")
    table.append({"id": 3, "v": "c", "w": 30})
    table.update(lambda row: row["id"] == 1, w=10)
    sink, history = MemorySink(), MemorySink(holds="history")
    pipeline = Pipeline(feed_of(table), sink, key="id", start=0)
    assert steps_of(pipeline) == [("load", 0, 0), ("window", 1, 2), ("window", 3, 5)]
    assert sorted(sink.store.read_rows(), key=lambda row: row["id"]) == [
        {"id": 1, "v": "a", "w": 10},
        {"id": 2, "v": "a", "w": None},
        {"id": 3, "v": "c", "w": 30},
    ]
    Pipeline(feed_of(table), history, key="id", start=0).run()
    first, *_, last = history.store.read_rows()
    assert "w" not in first
    assert (last["_commit_version"], last["w"]) == (5, 10)


def test_commits_without_rows_move_the_position() -> None:
    table = inserted(2)
    sink = MemorySink()
    pipeline = Pipeline(feed_of(table), sink, key="id")
    pipeline.run()
    table.optimize()
    table.set_properties({"team": "sales"})
    table.append()
    result = pipeline.run()
    assert (result.position, result.windows) == (5, 1)
    assert (result.inserts, result.updates, result.deletes) == (0, 0, 0)
    assert held(sink) == {1: "a", 2: "a"}


def test_a_key_of_several_columns() -> None:
    table = memory_table(StructType().add("a", "integer").add("b", "string").add("odd.name", "date").add("v", "string"))
    first, second = "2026-01-01", "2026-01-02"

    def row(a: int, b: str, day: str, v: str) -> dict[str, Any]:
        return {"a": a, "b": b, "odd.name": dt.date.fromisoformat(day), "v": v}

    table.append(row(1, "x", first, "p"), row(1, "y", first, "q"), row(1, "x", second, "r"))
    sink = MemorySink()
    pipeline = Pipeline(feed_of(table), sink, key=["a", "b", "odd.name"])
    pipeline.run()
    table.update(lambda found: found["b"] == "y", v="new")
    table.delete(lambda found: str(found["odd.name"]) == second)
    result = pipeline.run()
    assert (result.inserts, result.updates, result.deletes, result.conflicts.total) == (0, 1, 1, 0)
    rows = sorted((found["a"], found["b"], str(found["odd.name"]), found["v"]) for found in sink.store.read_rows())
    assert rows == [(1, "x", "2026-01-01", "p"), (1, "y", "2026-01-01", "new")]


def test_nothing_is_lost_between_the_snapshot_and_the_feed_while_the_source_keeps_committing() -> None:
    table = inserted(2)

    class Meanwhile(MemorySink):
        def open(self, source: Source) -> Position:
            position = super().open(source)
            table.delete(lambda row: row["id"] == 1)  # the run has begun, its snapshot is not chosen yet
            return position

        def load(self, snapshot: Snapshot) -> Applied:
            table.append({"id": 3, "v": "c"})  # chosen, not read yet
            return super().load(snapshot)

    sink = Meanwhile()
    result = Pipeline(feed_of(table), sink, key="id").run()
    # The run goes to the version that was the latest when it began, and the target holds exactly that.
    assert (result.position, result.latest_version, held(sink)) == (2, 2, {1: "a", 2: "a"})
    result = Pipeline(feed_of(table), MemorySink(sink.store), key="id").run()
    assert (result.inserts, result.updates, result.deletes, result.conflicts.total) == (1, 0, 1, 0)
    assert (result.position, held(sink)) == (4, {2: "a", 3: "c"})


@pytest.mark.parametrize("holds", ["state", "history"])
def test_without_a_register_to_ask_nothing_of_a_range_with_an_erasing_commit_is_applied(holds: Any) -> None:
    table = memory_table()
    table.append({"id": 1, "v": "a"}, {"id": 2, "v": "deltarelay_erasure"})
    sink = MemorySink(holds=holds)
    pipeline = Pipeline(feed_of(table), sink, key="id", start=0)
    table.update(lambda row: row["id"] == 2, v="b")
    assert pipeline.run().position == 2
    table.update(lambda row: row["id"] == 1, v="c")
    table.delete(lambda row: row["id"] == 1, user_metadata=erasing_metadata("er-1", ["R-1"]))
    table.append({"id": 3, "v": "d"})

    def refused(pipeline: Pipeline) -> None:
        with pytest.raises(ErasureNotConfigured, match="version 4 of") as found:
            pipeline.run()
        assert (found.value.code, found.value.transient) == ("erasure_not_configured", False)
        assert "`erasure` block" in str(found.value.hint)
        assert found.value.fields["versions"] == [4]

    before = sink.store.read_rows()
    refused(pipeline)
    assert (sink.store.contents.position.version, sink.store.read_rows()) == (2, before)
    assert [problem for problem in pipeline.plan().problems if "erasure of persons" in problem]
    empty = MemorySink(holds=holds)  # neither the history nor a copy from before
    refused(Pipeline(feed_of(table), empty, key="id", start=0))
    assert empty.store.contents.position.version is None
    with pytest.raises(ErasureNotConfigured), pipeline.foreach_batch():
        pass
    pipeline.context.guard = Knows()
    assert pipeline.run().position == 5
