"""Commits that break the key, and tables that are not the target's any more; other refusals are in ``tests/unit``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.changes.window import Window
from cdf.errors import KeyViolation, TableReplaced
from cdf.sink import Applied, Position, Source
from cdf.testing import MemorySink
from tests.integration.delta_table import Table

pytestmark = pytest.mark.usefixtures("interpreted")


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("insert into {t} values (null, 'secret')", "version 2 of .* changes rows with a null in the key"),
        ("insert into {t} values (5, 'secret'), (5, 'other')", "version 2 of .* inserts a key .* more than once"),
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
