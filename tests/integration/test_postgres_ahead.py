"""A window that is staged while the one before it is being applied: nothing of it shows before its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.changes.window import Window, WindowSource
from cdf.errors import Fenced, RowRejected, VersionsExpired
from cdf.testing import SampleTable, delete, insert, update
from connectors.postgres import PostgresSink
from connectors.postgres.write.prefetch import Ahead
from connectors.postgres.write.staging import Staged
from tests.acceptance.commands import wait_for
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import left_of, loaded, names, people, person, position, sink_of

A, B, C = person(1, "a"), person(2, "b"), person(3, "c")
A2, B2 = person(1, "a2"), person(2, "b2")
TASKS: dict[str, Any] = {"small_window_bytes": 0}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[Staged | None]:
    """What was staged ahead, in the order in which it was asked for."""
    found: list[Staged | None] = []
    usual = Ahead.result

    def result(self: Ahead) -> Staged | None:
        found.append(usual(self))
        return found[-1]

    monkeypatch.setattr(Ahead, "result", result)
    return found


def second(table: SampleTable) -> Window:
    return table.window(2, [insert(B), update(A, A2)])


def third(table: SampleTable) -> Window:
    return table.window(3, [insert(C), delete(A2), update(B, B2)])


def staged_rows(pg: Pg, sink: PostgresSink) -> int:
    return sum(pg.query(f"select count(*) from deltarelay.{name}")[0][0] for name in left_of(pg, sink))


def test_it_is_applied_in_its_turn(spark: SparkSession, pg: Pg, results: list[Staged | None]) -> None:
    table = people(spark)
    with loaded(pg, table, [A], **TASKS) as sink:
        windows = [second(table), third(table), table.window(4, [insert(A)]), table.window(5, [delete(C)])]
        for window, following in zip(windows, [*windows[1:], None], strict=True):
            if following is not None:
                sink.announce(following)
            applied = sink.apply(window)
            assert applied.conflicts.total == 0
            assert position(pg) == window.last
            if window.last == 2:
                wait_for(lambda: staged_rows(pg, sink) == 3, "the next window to be staged")
                assert names(pg) == {1: "a2", 2: "b"}
        assert names(pg) == {1: "a", 2: "b2"}
        assert [one.rows for one in results if one is not None] == [3, 1, 1]
        assert staged_rows(pg, sink) == 0


@pytest.mark.usefixtures("results")
def test_another_window_comes_instead(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    with loaded(pg, table, [A], **TASKS) as sink:
        sink.announce(third(table))
        sink.apply(second(table))
        applied = sink.apply(table.window(3, [delete(B)]))
        assert (applied.deletes, applied.inserts, applied.updates) == (1, 0, 0)
        assert (names(pg), position(pg)) == ({1: "a2"}, 3)


def test_what_is_wrong_with_it_is_told_in_its_turn(spark: SparkSession, pg: Pg, results: list[Staged | None]) -> None:
    table = people(spark)
    with loaded(pg, table, [A], **TASKS) as sink:
        wrong = table.window(3, [insert(person(4, "nul \0 inside"))])
        sink.announce(wrong)
        sink.apply(second(table))
        with pytest.raises(RowRejected):
            sink.apply(wrong)
        assert results == [None]
        assert (names(pg), position(pg)) == ({1: "a2", 2: "b"}, 2)
        sink.apply(third(table))
        assert (names(pg), position(pg)) == ({2: "b2", 3: "c"}, 3)


def test_commits_that_went_away_meanwhile_are_noticed(
    spark: SparkSession, pg: Pg, results: list[Staged | None]
) -> None:
    class Gone(WindowSource):
        def confirm(self) -> None:
            raise VersionsExpired("gone", hint="none")

    table = people(spark)
    with loaded(pg, table, [A], **TASKS) as sink:
        following = replace(third(table), source=Gone())
        sink.announce(following)
        sink.apply(second(table))
        with pytest.raises(VersionsExpired):
            sink.apply(following)
        assert [one.rows for one in results if one is not None] == [3]
        assert (names(pg), position(pg)) == ({1: "a2", 2: "b"}, 2)


def test_a_runner_that_was_overtaken_applies_nothing_of_it(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    with loaded(pg, table, [A], **TASKS) as sink:
        following = third(table)
        sink.announce(following)
        sink.apply(second(table))
        wait_for(lambda: staged_rows(pg, sink) == 3, "the next window to be staged")
        assert sink._renewal is not None
        sink._renewal.stop()
        pg.query(
            "update deltarelay.position set lease_until = null where target = %s returning 1", f"{pg.schema}.target"
        )
        other = sink_of(pg, **TASKS)
        try:
            assert other.open(table.source()).version == 2
            with pytest.raises(Fenced):
                sink.apply(following)
            assert (names(pg), position(pg)) == ({1: "a2", 2: "b"}, 2)
        finally:
            other.close()


def test_a_change_of_columns_is_not_crossed(spark: SparkSession, pg: Pg, results: list[Staged | None]) -> None:
    table = people(spark)
    wider = SampleTable(spark, StructType([*table.schema.fields]).add("city", "string"), ("id",), table="people")
    with loaded(pg, table, [A], **TASKS) as sink:
        from cdf.changes.schema_diff import compare

        following = replace(
            wider.window(3, [insert({**C, "city": "x"})]), drift=tuple(compare(table.schema, wider.schema))
        )
        following = replace(following, table_id=second(table).table_id)
        sink.announce(following)
        sink.apply(second(table))
        sink.apply(following)
        assert results == []
        assert pg.query("select city from {schema}.target where id = 3") == [("x",)]


def test_closing_ends_it_and_leaves_nothing(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    with loaded(pg, table, [A], **TASKS) as sink:
        following = third(table)
        read, sleeps = following.read, "reflect('java.lang.Thread', 'sleep', 60000L) = ''"
        sink.announce(replace(following, read=lambda: read().where(sleeps)))
        sink.apply(second(table))
        assert sink._writer is not None
        ahead = sink._writer._ahead
        assert ahead is not None
        wait_for(spark.sparkContext.statusTracker().getActiveJobsIds, "the next window to be under way")
        sink.close()
        assert not ahead._thread.is_alive()
    assert left_of(pg, sink) == []
    assert (names(pg), position(pg)) == ({1: "a2", 2: "b"}, 2)
