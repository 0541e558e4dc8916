"""What a pipeline refuses before it writes anything: keys that are none, and tables that are not the target's any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import FeedNotEnabled, KeyViolation, TableReplaced, TypeNotSupported
from cdf.sink import Applied, Position, Source
from cdf.testing import MemorySink
from cdf.window import Window
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")


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
def test_what_cannot_be_a_key_is_refused_before_the_target_is_opened(
    spark: SparkSession, delta_path: str, key: str | list[str], problems: list[str]
) -> None:
    Table(spark, delta_path, "id long, f double")
    for step in ("run", "plan"):
        sink = MemorySink()
        with pytest.raises(TypeNotSupported) as caught:
            getattr(Pipeline(ChangeFeed(spark, delta_path), sink, key=key), step)()
        for problem in problems:
            assert problem in caught.value.message
        assert (sink.store.epoch, empty(sink)) == (0, True)


def test_null_and_repeated_keys_in_the_first_copy_are_counted_and_nothing_is_written(
    spark: SparkSession, delta_path: str
) -> None:
    Table(spark, delta_path).sql("insert into {t} values (1, 'a'), (1, 'b'), (null, 'c'), (null, 'd'), (2, 'e')")
    sink = MemorySink()
    with pytest.raises(KeyViolation) as caught:
        Pipeline(ChangeFeed(spark, delta_path), sink, key="id").run()
    assert caught.value.fields == {"null_rows": 2, "duplicate_keys": 1}
    assert empty(sink)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("insert into {t} values (null, 'secret')", "version 2 of .* changes rows with a null in the key"),
        ("insert into {t} values (5, 'secret'), (5, 'other')", "version 2 of .* puts a key .* more than once"),
    ],
    ids=["a null key", "a key twice"],
)
def test_a_commit_that_breaks_the_key_is_refused_as_a_whole(
    spark: SparkSession, delta_path: str, statement: str, message: str
) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (2, 'b')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    before = sink.store.contents
    table.sql(statement, "insert into {t} values (9, 'i')")
    with pytest.raises(KeyViolation, match=message) as caught:
        pipeline.run()
    assert caught.value.fields["version"] == 2
    assert "secret" not in str(caught.value)
    assert sink.store.contents is before


# ── the feed ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_whose_feed_is_off_is_refused_before_the_target_is_opened(spark: SparkSession, delta_path: str) -> None:
    Table(spark, delta_path, feed=False)
    for step in ("run", "plan"):
        sink = MemorySink()
        with pytest.raises(FeedNotEnabled, match="is off") as caught:
            getattr(Pipeline(ChangeFeed(spark, delta_path), sink, key="id"), step)()
        assert caught.value.hint is not None
        assert f"deltarelay feed enable {delta_path}" in caught.value.hint
        assert sink.store.epoch == 0


def test_a_feed_that_was_off_for_a_while_is_refused_with_the_version_and_the_way_up_to_it(
    spark: SparkSession, delta_path: str
) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    table.sql("insert into {t} values (2, 'b')")
    table.set(enableChangeDataFeed="false")
    table.sql("insert into {t} values (4, 'd')")
    table.set(enableChangeDataFeed="true")
    before = sink.store.contents
    with pytest.raises(FeedNotEnabled, match=r"version 3 of .* turned the change feed off") as caught:
        pipeline.run()
    assert caught.value.hint is not None
    assert "--until 2" in caught.value.hint
    assert sink.store.contents is before
    assert pipeline.run(until=2).position == 2
    assert sorted(row["id"] for row in sink.store.read_rows()) == [1, 2]


# ── another table in the same place ──────────────────────────────────────────────────────────────────────────────────


def test_a_table_that_was_deleted_and_made_again_is_refused(spark: SparkSession, delta_path: str) -> None:
    Table(spark, delta_path).sql("insert into {t} values (1, 'a')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    before, epoch = sink.store.contents, sink.store.epoch
    shutil.rmtree(delta_path)
    Table(spark, delta_path).sql("insert into {t} values (7, 'x')", "insert into {t} values (8, 'y')")
    for again in (pipeline, Pipeline(ChangeFeed(spark, delta_path), sink, key="id")):
        with pytest.raises(TableReplaced, match="is another table than the one the target was filled from"):
            again.run()
        assert any("is another table" in problem for problem in again.plan().problems)
    assert sink.store.contents is before
    assert sink.store.epoch == epoch  # refused before the lease was taken


@pytest.mark.parametrize("moment", ["before the first window", "while it is read"])
def test_a_table_that_is_made_again_meanwhile_is_refused(
    spark: SparkSession, delta_path: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    Table(spark, delta_path).sql("insert into {t} values (1, 'a')")
    sink = MemorySink()
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id")
    pipeline.run()
    spark.sql(f"insert into delta.`{delta_path}` values (2, 'b')")
    before = sink.store.contents

    def made_again() -> None:
        shutil.rmtree(delta_path)
        Table(spark, delta_path).sql(*(f"insert into {{t}} values ({number}, 'x')" for number in range(7, 11)))

    if moment == "before the first window":
        usual_open = sink.open

        def open_late(source: Source) -> Position:  # as after a wait for the lease
            position = usual_open(source)
            made_again()
            return position

        monkeypatch.setattr(sink, "open", open_late)
    else:
        usual_apply = sink.apply

        def apply_late(window: Window) -> Applied:
            made_again()
            return usual_apply(window)

        monkeypatch.setattr(sink, "apply", apply_late)
    with pytest.raises(TableReplaced):
        pipeline.run()
    assert sink.store.contents.position == before.position


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[ChangeFeed]:
    """In the catalog: only there does CREATE OR REPLACE replace."""
    spark.sql("create table orders (id long, v string) using delta tblproperties (delta.enableChangeDataFeed = true)")
    yield ChangeFeed(spark, "orders")
    spark.sql("drop table orders")


def test_a_replaced_table_is_refused(spark: SparkSession, orders: ChangeFeed) -> None:
    spark.sql("insert into orders values (1, 'a')")
    sink = MemorySink()
    Pipeline(orders, sink, key="id").run()
    before = sink.store.contents
    spark.sql("insert into orders values (2, 'b')")
    spark.sql(
        "create or replace table orders using delta tblproperties (delta.enableChangeDataFeed = true)"
        " as select 7L as id, 'x' as v"
    )
    with pytest.raises(TableReplaced) as caught:
        Pipeline(orders, sink, key="id").run()
    assert "CREATE OR REPLACE" in caught.value.message
    assert caught.value.hint is not None
    assert sink.store.contents is before
    # A new target cannot begin before it was replaced, but after.
    with pytest.raises(TableReplaced, match="was replaced at version 3"):
        Pipeline(orders, MemorySink(holds="history"), key="id", start=1).run()
    anew = MemorySink()
    assert Pipeline(orders, anew, key="id").run().position == 3
    assert anew.store.read_rows() == [{"id": 7, "v": "x"}]
