"""What a pipeline refuses before it writes anything: keys that are none, a feed that was off; without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from cdf import Pipeline
from cdf.errors import FeedNotEnabled, KeyViolation, TypeNotSupported
from cdf.testing import MemorySink
from cdf.testing.changes import Row
from tests.unit.memory_source import feed_of, inserted, memory_table


def empty(sink: MemorySink) -> bool:
    return sink.store.contents.position.version is None and sink.store.read_rows() == []


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "problems"),
    [
        ("f", ["key column 'f' is a double"]),
        (["nope", "f"], ["the table has no column 'nope'", "key column 'f' is a double"]),
    ],
)
def test_what_cannot_be_a_key_is_refused_before_the_target_is_opened(key: str | list[str], problems: list[str]) -> None:
    table = memory_table(StructType().add("id", "long").add("f", "double"))
    for step in ("run", "plan"):
        sink = MemorySink()
        with pytest.raises(TypeNotSupported) as caught:
            getattr(Pipeline(feed_of(table), sink, key=key), step)()
        for problem in problems:
            assert problem in caught.value.message
        assert (sink.store.epoch, empty(sink)) == (0, True)


def test_null_and_repeated_keys_in_the_first_copy_are_counted_and_nothing_is_written() -> None:
    table = memory_table()
    table.append(*({"id": key, "v": "x"} for key in (1, 1, None, None, 2)))
    sink = MemorySink()
    with pytest.raises(KeyViolation) as caught:
        Pipeline(feed_of(table), sink, key="id").run()
    assert caught.value.fields == {"null_rows": 2, "duplicate_keys": 1}
    assert empty(sink)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"v": "secret"}], "version 2 of .* changes rows with a null in the key"),
        ([{"id": 5, "v": "secret"}, {"id": 5, "v": "other"}], "version 2 of .* inserts a key .* more than once"),
    ],
    ids=["a null key", "a key twice"],
)
def test_a_commit_that_breaks_the_key_is_refused_as_a_whole(rows: list[Row], message: str) -> None:
    table = inserted(1)
    sink = MemorySink()
    pipeline = Pipeline(feed_of(table), sink, key="id")
    pipeline.run()
    before = sink.store.contents
    table.append(*rows)
    table.append({"id": 9, "v": "i"})
    with pytest.raises(KeyViolation, match=message) as caught:
        pipeline.run()
    assert caught.value.fields["version"] == 2
    assert "secret" not in str(caught.value)
    assert sink.store.contents is before


# ── the feed ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_whose_feed_is_off_is_refused_before_the_target_is_opened() -> None:
    table = memory_table(feed=False)
    for step in ("run", "plan"):
        sink = MemorySink()
        with pytest.raises(FeedNotEnabled, match="is off") as caught:
            getattr(Pipeline(feed_of(table), sink, key="id"), step)()
        assert caught.value.hint is not None
        assert "deltarelay feed enable orders" in caught.value.hint
        assert sink.store.epoch == 0


def test_a_feed_that_was_off_for_a_while_is_refused_with_the_version_and_the_way_up_to_it() -> None:
    table = inserted(1)
    sink = MemorySink()
    pipeline = Pipeline(feed_of(table), sink, key="id")
    pipeline.run()
    table.append({"id": 2, "v": "b"})
    table.turn_feed(False)
    table.append({"id": 4, "v": "d"})
    table.turn_feed(True)
    before = sink.store.contents
    with pytest.raises(FeedNotEnabled, match=r"version 3 of .* turned the change feed off") as caught:
        pipeline.run()
    assert caught.value.hint is not None
    assert "--until 2" in caught.value.hint
    assert sink.store.contents is before
    assert pipeline.run(until=2).position == 2
    assert sorted(row["id"] for row in sink.store.read_rows()) == [1, 2]
