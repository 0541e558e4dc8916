"""Changes that contradict the target are counted exactly, or refused as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdf import ChangeFeed, Pipeline
from cdf.changes.columns import CHANGE_TYPE, DELETE, INSERT, UPDATE_POSTIMAGE
from cdf.errors import ConflictFound
from cdf.sink import Conflicts
from cdf.testing import delete, insert, update
from connectors.postgres.options import OnConflict
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.erasures import KnowsOfNone
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, names, people, person, position, sink_of, tells

START = [person(index, f"xanadu-{index}") for index in range(1, 6)]
CHANGES = (
    [
        insert(person(1, "met")),
        *(update(person(index, "?"), person(index, "none")) for index in (11, 12)),
        *(delete(person(index, "?")) for index in (21, 22, 23)),
        update(START[1], person(2, "fine")),
        delete(START[2]),
        insert(person(6, "one")),
    ],
    [insert(person(6, "two")), insert(person(7, "fine"))],
    [insert(person(6, "three")), delete(person(4, "?"))],
    [delete(person(4, "again"))],
)
EXPECTED = Conflicts(insert_met_row=1, update_met_none=2, delete_met_none=3, within_window=3)
AFTER = {1: "met", 2: "fine", 5: "xanadu-5", 6: "three", 7: "fine", 11: "none", 12: "none"}


@ON_BOTH_PATHS
def test_each_kind_is_counted_and_the_target_made_right(
    session: SparkSession | None, pg: Pg, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, START, conflicts="report", **path) as sink:
        applied = sink.apply(table.window(2, *CHANGES))
        assert names(pg) == AFTER
        assert applied.conflicts == EXPECTED
        assert (applied.inserts, applied.updates, applied.deletes) == (3, 3, 5)
        again = sink.apply(table.window(6, [update(person(7, "fine"), person(7, "finer"))]))
    assert again.conflicts == Conflicts()
    assert names(pg) == {**AFTER, 7: "finer"}


@ON_BOTH_PATHS
def test_refusing_them_rolls_the_whole_window_back(session: SparkSession | None, pg: Pg, path: dict[str, int]) -> None:
    table = people(session)
    with loaded(pg, table, START, conflicts="refuse", **path) as sink:
        with pytest.raises(ConflictFound) as found:
            sink.apply(table.window(2, *CHANGES))
        assert names(pg) == {row["id"]: row["name"] for row in START}
        assert position(pg) == 1
        assert found.value.fields["conflicts"] == EXPECTED.to_dict()
        met = "1 inserts of existing rows, 2 updates of missing rows, 3 deletes of missing rows, 3 changes contradict"
        assert met in str(found.value)
        assert "xanadu" not in tells(found.value)
        clean = sink.apply(table.window(2, [delete(START[0])]))  # and the next try finds staging as it should be
    assert (clean.deletes, clean.conflicts) == (1, Conflicts())
    assert position(pg) == 2


@pytest.mark.parametrize("mode", ["refuse", "refuse_duplicates"])
def test_an_erasing_commit_may_delete_what_was_left_out_before(pg: Pg, mode: OnConflict) -> None:
    """A first copy or a replay before it leaves out the rows of people who are being erased: no contradiction."""
    table = people(None)
    with loaded(pg, table, START[:3], conflicts=mode) as sink:
        window = table.window(2, [delete(START[3]), delete(START[0])])
        if mode == "refuse":
            with pytest.raises(ConflictFound, match="1 deletes of missing rows"):
                sink.apply(window)
        erasing = replace(window, commits=tuple(replace(commit, erasing=True) for commit in window.commits))
        applied = sink.apply(erasing)
        assert (applied.deletes, applied.conflicts) == (2, Conflicts(delete_met_none=1))
        assert sorted(names(pg)) == [2, 3]
        twice = table.window(3, [insert(START[1])])
        with pytest.raises(ConflictFound, match="1 inserts of existing rows"):
            sink.apply(replace(twice, commits=tuple(replace(commit, erasing=True) for commit in twice.commits)))


def test_a_large_window_is_counted_alike(session: SparkSession | None, pg: Pg) -> None:
    """From 2,000 rows on staging is emptied by TRUNCATE; nothing of one window is left for the next."""
    table = people(session)
    rows = [person(index, str(index)) for index in range(3000)]
    with loaded(pg, table, rows[:1000], conflicts="report") as sink:
        applied = sink.apply(table.window(2, [insert(row) for row in rows]))
        assert applied.conflicts == Conflicts(insert_met_row=1000)
        assert pg.query("select count(*) from target") == [(3000,)]
        assert sink.apply(table.window(3, [delete(row) for row in rows[5:]])).conflicts == Conflicts()
    assert names(pg) == {row["id"]: row["name"] for row in rows[:5]}


class LeavesOut(KnowsOfNone):
    """The rows of P, as the watch for erased persons does it: deletes stay, and an update away from P becomes an insert."""

    def check(self, *_: Any, **__: Any) -> Any:
        def without(rows: DataFrame) -> DataFrame:
            kind = F.when(F.col(CHANGE_TYPE) == UPDATE_POSTIMAGE, INSERT).otherwise(F.col(CHANGE_TYPE))
            return rows.where(f"v <> 'P' or {CHANGE_TYPE} = '{DELETE}'").withColumn(CHANGE_TYPE, kind)

        return without


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        (["insert overwrite {t} values (1, 'a'), (7, 'P')", "delete from {t} where id = 7"], {1: "a"}),
        (["update {t} set v = 'Q' where id = 7"], {1: "a", 7: "Q"}),
        (["update {t} set v = 'Q' where id = 7", "delete from {t} where id = 7"], {1: "a"}),
    ],
    ids=["an overwrite", "another identity", "also deleted"],
)
def test_what_a_guard_leaves_out_is_no_contradiction(
    spark: SparkSession, pg: Pg, delta_path: str, changes: list[str], left: dict[int, str]
) -> None:
    """Or an erasure would wait without end for the deletes to arrive."""
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a'), (7, 'P')")
    Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key=("id",), name="guarded").run()
    table.sql(*changes)
    guarded = Pipeline(ChangeFeed(spark, delta_path), sink_of(pg), key=("id",), name="guarded", guard=LeavesOut())
    assert guarded.run().windows == 1
    assert dict(pg.query("select id, v from target")) == left
