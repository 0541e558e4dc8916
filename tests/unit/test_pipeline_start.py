"""Where an empty target begins, and how far a run goes; without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from cdf import Pipeline
from cdf.errors import CdfError, ConfigError, FeedNotEnabled, VersionNotFound
from cdf.testing import MemoryFeed, MemorySink
from tests.unit.memory_source import at, feed_of, memory_table, steps_of


@pytest.fixture(scope="module")
def feed() -> MemoryFeed:
    """Six commits, a minute apart; version 2 turns the feed on."""
    table = memory_table(feed=False)
    table.append({"id": 1, "v": "a"})
    table.turn_feed(True)
    table.append({"id": 3, "v": "c"})
    table.update(lambda row: row["id"] == 1, v="x")
    table.delete(lambda row: row["id"] == 3)
    return feed_of(table)


def kept(sink: MemorySink) -> list[tuple[Any, ...]]:
    """(version, change type, id) in a history."""
    return [(row["_commit_version"], row["_change_type"], row["id"]) for row in sink.store.read_rows()]


FED = [(3, "insert", 3), (4, "update_preimage", 1), (4, "update_postimage", 1), (5, "delete", 3)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("snapshot", [("load", 5, 5)]),
        ("earliest", [("load", 2, 2), ("window", 3, 5)]),
        (4, [("load", 4, 4), ("window", 5, 5)]),
        (at(2.5), [("load", 3, 3), ("window", 4, 5)]),
        ("2026-01-05T11:04:00+01:00", [("load", 4, 4), ("window", 5, 5)]),
    ],
)
def test_a_state_begins_with_the_snapshot_at_the_start(
    feed: MemoryFeed, start: Any, expected: list[tuple[str, int, int]]
) -> None:
    sink = MemorySink()
    pipeline = Pipeline(feed, sink, key="id", start=start)
    assert steps_of(pipeline) == expected
    assert sink.store.read_rows() == [{"id": 1, "v": "x"}]


@pytest.mark.parametrize(
    ("start", "expected", "rows"),
    [
        ("snapshot", [("load", 5, 5)], [(5, None, 1)]),
        ("earliest", [("window", 2, 5)], FED),
        (3, [("window", 3, 5)], FED),
        (5, [("window", 5, 5)], FED[3:]),
        (at(3.5), [("window", 4, 5)], FED[1:]),
    ],
)
def test_a_history_begins_with_the_changes_of_the_start(
    feed: MemoryFeed, start: Any, expected: list[tuple[str, int, int]], rows: list[tuple[Any, ...]]
) -> None:
    sink = MemorySink(holds="history")
    assert steps_of(Pipeline(feed, sink, key="id", start=start)) == expected
    assert kept(sink) == rows


def test_a_start_before_the_feed_was_on_is_refused_for_a_history(feed: MemoryFeed) -> None:
    sink = MemorySink(holds="history")
    with pytest.raises(FeedNotEnabled, match="was off at version 1, where the changes would begin"):
        Pipeline(feed, sink, key="id", start=1).run()
    assert sink.store.contents.position.version is None


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (6, VersionNotFound),
        (at(5.1), VersionNotFound),
        (-1, ConfigError),
        ("soon", ConfigError),
        ("2026-01-05T10:03:00", ConfigError),
    ],
)
def test_a_start_that_does_not_exist_is_refused_before_anything_is_written(
    feed: MemoryFeed, start: Any, kind: type[CdfError]
) -> None:
    sink = MemorySink()
    with pytest.raises(kind):
        Pipeline(feed, sink, key="id", start=start).run()
    assert sink.store.contents.position.version is None
    assert sink.store.owner is None


def test_a_start_is_not_looked_at_once_the_target_has_a_position(feed: MemoryFeed) -> None:
    sink = MemorySink()
    assert steps_of(Pipeline(feed, sink, key="id", start=3), until=4) == [("load", 3, 3), ("window", 4, 4)]
    assert steps_of(Pipeline(feed, sink, key="id", start=99)) == [("window", 5, 5)]


@pytest.mark.parametrize("until", [4, " 4 ", at(4.9), "2026-01-05 05:04:00-05:00"])
def test_a_run_ends_where_it_is_told_to(feed: MemoryFeed, until: Any) -> None:
    sink = MemorySink(holds="history")
    result = Pipeline(feed, sink, key="id", start=3).run(until)
    assert (result.position, result.latest_version) == (4, 4)
    assert kept(sink) == FED[:3]


def test_an_end_beyond_the_latest_version_is_the_latest(feed: MemoryFeed) -> None:
    result = Pipeline(feed, MemorySink(), key="id").run(until=4_000)
    assert (result.position, result.latest_version) == (5, 5)


def test_an_end_before_the_position_changes_nothing(feed: MemoryFeed) -> None:
    sink = MemorySink()
    pipeline = Pipeline(feed, sink, key="id", start=4)
    pipeline.run(until=4)
    before = sink.store.contents
    result = pipeline.run(until=3)
    assert (result.position, result.windows, result.loaded_rows) == (4, 0, None)
    assert sink.store.contents is before


@pytest.fixture
def widened() -> Pipeline:
    """A pipeline whose target stands behind the commit that added a column."""
    table = memory_table()
    table.add_column("w", "integer")
    table.append({"id": 1, "v": "a", "w": 1})
    pipeline = Pipeline(feed_of(table), MemorySink(), key="id")
    pipeline.run()
    return pipeline


def test_an_end_before_the_position_may_have_fewer_columns_than_the_target(widened: Pipeline) -> None:
    result = widened.run(until=0)
    assert (result.position, result.windows) == (2, 0)


def test_a_plan_up_to_there_has_no_problem_with_it(widened: Pipeline) -> None:
    assert widened.plan(until=0).problems == ()


def test_a_snapshot_is_not_taken_beyond_the_end(feed: MemoryFeed) -> None:
    sink = MemorySink()
    assert steps_of(Pipeline(feed, sink, key="id"), until=4) == [("load", 4, 4)]
    assert sorted(row["id"] for row in sink.store.read_rows()) == [1, 3]


@pytest.mark.parametrize("until", [-1, "later", "2026-01-05T10:03:00", True])
def test_an_end_that_cannot_be_understood_is_refused(feed: MemoryFeed, until: Any) -> None:
    sink = MemorySink()
    with pytest.raises(ConfigError):
        Pipeline(feed, sink, key="id").run(until)
    assert sink.store.contents.position.version is None
