"""A window that touches most of a table is taken in by a copy of it, where that is cheaper and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdf import ChangeFeed, Pipeline
from connectors.postgres import PostgresSink
from connectors.postgres.load import copy_threshold as large
from connectors.postgres.load import open_readers
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.erasures import Knows
from tests.integration.postgres_case import left_of, sink_of

Setup = Callable[[Pg], object]


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "MIN_BYTES", 0)
    monkeypatch.setattr(large, "MERGE_SHARE", 0.6)


def filled(
    spark: SparkSession, path: str, pg: Pg, modes: Modes | None = None, **options: Any
) -> tuple[Table, Pipeline]:
    """Twenty rows replicated, and then all of them updated, one deleted, one inserted."""
    table = Table(spark, path, "id long, name string")
    table.sql("insert into {t} select id, concat('name ', id) from range(20)")
    pipeline = Pipeline(
        ChangeFeed(spark, path), PostgresSink(pg.dsn, table=f"{pg.schema}.target", modes=modes, **options), key="id"
    )
    pipeline.run()
    table.sql(
        "update {t} set name = concat(name, ' new')", "delete from {t} where id = 3", "insert into {t} values (30, 'x')"
    )
    return table, pipeline


def relation(pg: Pg) -> object:
    return pg.query("select 'target'::regclass::oid")


@pytest.mark.parametrize(
    ("setup", "way", "replaced"),
    [
        (lambda _: None, "swap", True),
        (lambda pg: pg.query("create view seen as select id from target"), "merge", False),
        (lambda pg: pg.query("comment on table target is 'mine'"), "merge", False),
        (lambda pg: pg.query("comment on table target is null"), "merge", False),
    ],
    ids=["ours", "view", "another comment", "no comment"],
)
def test_a_copy_takes_its_place_or_is_merged(
    spark: SparkSession, delta_path: str, pg: Pg, setup: Setup, way: str, replaced: bool
) -> None:
    table, pipeline = filled(spark, delta_path, pg)
    setup(pg)
    sink, before = sink_of(pg), relation(pg)
    assert [window.way for window in pipeline.plan().windows] == [way]
    result = pipeline.run()
    assert (result.copies, result.position) == (1, 4)
    # What the window demanded, whatever the copy had to write
    assert (result.inserts, result.updates, result.deletes) == (1, 19, 1)
    (step,) = [one for one in sink.runs(10) if one.kind == "window"]
    assert (step.inserts, step.updates, step.deletes, step.conflicts, step.rows_in) == (1, 19, 1, 0, 42)
    assert (relation(pg) != before) is replaced
    assert pipeline.verify().equal
    assert pg.query("select count(*), max(name) from target") == [(20, "x")]
    # No record as of a move by hand, and the next window goes on from there
    assert sink.standing().records == ()
    table.sql("delete from {t} where id = 30")
    pipeline.run()
    assert pipeline.verify().equal


def test_a_column_of_somebody_stays_with_its_values(spark: SparkSession, delta_path: str, pg: Pg) -> None:
    _, pipeline = filled(spark, delta_path, pg)
    pg.query("alter table target add column note text")
    pg.query("update target set note = 'theirs'")
    assert [window.way for window in pipeline.plan().windows] == ["changes"]
    assert pipeline.run().copies == 0
    assert pg.query("select count(*) from target where note = 'theirs'") == [(19,)]
    assert pipeline.verify().equal


def test_a_key_that_the_source_holds_twice_is_no_hindrance(spark: SparkSession, delta_path: str, pg: Pg) -> None:
    table, pipeline = filled(spark, delta_path, pg, conflicts="report")
    table.sql("insert into {t} values (5, 'twice')")
    result = pipeline.run()
    assert (result.copies, result.position) == (0, 5)
    assert pg.query("select name from target where id = 5") == [("twice",)]


def test_it_is_the_changes_where_a_copy_would_lose_something(spark: SparkSession, delta_path: str, pg: Pg) -> None:
    _, pipeline = filled(spark, delta_path, pg, Modes(deletes="soft"))
    assert [window.way for window in pipeline.plan().windows] == ["changes"]
    assert pipeline.run().copies == 0
    assert pipeline.verify().equal
    assert pg.query("select count(*) from target where _deleted_at is not null") == [(1,)]


class LeavesOut(Knows):
    """The row 3 is that of an erased person who is back in the source."""

    def check(self, rows: DataFrame, **_: Any) -> Callable[[DataFrame], DataFrame] | None:
        return None if rows.where("id = 3").isEmpty() else lambda found: found.where("id <> 3")


def test_a_copy_leaves_out_what_an_earlier_window_has_left_out(spark: SparkSession, delta_path: str, pg: Pg) -> None:
    """The guard finds nothing in the window. The table, which takes its place, still has the row."""
    table = Table(spark, delta_path, "id long, name string")
    table.sql("insert into {t} select id, 'old' from range(20)")
    sink = PostgresSink(pg.dsn, table=f"{pg.schema}.target")
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink, key="id", guard=LeavesOut())
    pipeline.run()
    table.sql("update {t} set name = 'new' where id <> 3")
    assert pipeline.run().copies == 1
    assert pg.query("select count(*), count(*) filter (where id = 3), min(name) from target") == [(19, 0, "new")]


def test_a_small_window_or_a_drift_is_applied_as_changes(
    spark: SparkSession, delta_path: str, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, pipeline = filled(spark, delta_path, pg)
    table.sql("alter table {t} add column more int")
    assert [window.way for window in pipeline.plan().windows] == ["swap", "changes"]
    monkeypatch.setattr(large, "MIN_BYTES", 2**20)
    assert [window.way for window in pipeline.plan().windows] == ["changes", "changes"]
    assert pipeline.run().copies == 0
    assert pipeline.verify().equal


def test_a_reader_in_the_way_makes_it_the_changes(
    spark: SparkSession, delta_path: str, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_readers, "PATIENCE_SECONDS", 1.0)
    _, pipeline = filled(spark, delta_path, pg)
    before = relation(pg)
    with psycopg.connect(pg.dsn) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute(f"select count(*) from {pg.schema}.target")
        result = pipeline.run()
        assert reader.execute(f"select count(*) from {pg.schema}.target").fetchone() == (20,)
    assert (result.copies, result.updates, result.position) == (0, 19, 4)
    assert relation(pg) == before
    assert pipeline.verify().equal
    assert left_of(pg, sink_of(pg)) == []
