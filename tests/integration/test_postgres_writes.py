"""Writes that do not arrive, rows that do not stay, and keys that the source holds twice: never reported as success."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.errors import ConflictFound, RowRejected, TargetNotReady
from cdf.sink import Conflicts, Position
from cdf.testing import SampleTable, delete, insert, update
from connectors.postgres.options import Deletes, Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, names, opened, people, person, position, sink_of

IDS = lambda modes: f"{modes.deletes}-{modes.rejects}"  # noqa: E731
A, B, C = person(1, "a"), person(2, "b"), person(3, "c")


def suppress(pg: Pg, event: str) -> None:
    """A trigger that returns null for person 2, without an error."""
    pg.query(
        "create or replace function {schema}.suppress() returns trigger language plpgsql as $$ begin "
        "if coalesce(new.id, old.id) = 2 then return null; end if; return coalesce(new, old); end $$"
    )
    pg.query(f"create trigger suppress before {event} on target for each row execute function {{schema}}.suppress()")


# ── triggers and rules that suppress writes ──────────────────────────────────────────────────────────────────────────

EVENTS = {
    "insert": (lambda: [insert(person(2, "b")), insert(C)], [A]),
    "update": (lambda: [update(B, person(2, "bb")), update(A, person(1, "aa"))], [A, B]),
    "delete": (lambda: [delete(B), delete(A)], [A, B]),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("modes", [Modes(), Modes(deletes="soft"), Modes(rejects="dead_letter")], ids=IDS)
def test_a_trigger_that_suppresses_a_write_stops_the_window(
    session: SparkSession | None, pg: Pg, event: str, modes: Modes
) -> None:
    table, (changes, start) = people(session), EVENTS[event]
    pg.query("create table target (id bigint primary key, name text)")
    with loaded(pg, table, start, modes=modes) as sink:
        suppress(pg, "update" if (event, modes.deletes) == ("delete", "soft") else event)
        before = pg.query("select * from target order by id")
        with pytest.raises(TargetNotReady, match=f"accepted . of . {event}s: a trigger or a rule"):
            sink.apply(table.window(2, changes()))
        assert (pg.query("select * from target order by id"), position(pg)) == (before, 1)
        pg.query("drop trigger suppress on target")
        assert sink.apply(table.window(2, changes())).conflicts == Conflicts()
    assert position(pg) == 2


@pytest.mark.parametrize("modes", [Modes(), Modes(rejects="dead_letter")], ids=IDS)
def test_also_where_old_rows_leave_first_and_where_rows_are_divided(
    session: SparkSession | None, pg: Pg, modes: Modes
) -> None:
    table = people(session)
    pg.query("create table target (id bigint primary key, name text unique check (name <> 'bad'))")
    with loaded(pg, table, [A, C], modes=modes) as sink:
        suppress(pg, "insert")
        swapped = [update(A, person(1, "c")), update(C, person(3, "a")), insert(B)]
        with pytest.raises(TargetNotReady, match=r"inserts: a trigger or a rule"):
            sink.apply(table.window(2, swapped))
        if modes.writes_dead_letters:
            with pytest.raises(TargetNotReady, match=r"inserts: a trigger or a rule"):
                sink.apply(table.window(2, [*swapped, insert(person(4, "bad"))]))
        assert names(pg) == {1: "a", 3: "c"}
        pg.query("drop trigger suppress on target")
        # A row that is not there is no suppressed delete
        assert sink.apply(table.window(2, [*swapped, delete(person(9, "?"))])).conflicts == Conflicts(delete_met_none=1)
    assert names(pg) == {1: "c", 2: "b", 3: "a"}


def test_a_soft_delete_that_a_trigger_takes_back_is_noticed(session: SparkSession | None, pg: Pg) -> None:
    """The row counts as updated."""
    table = people(session)
    with loaded(pg, table, [A, B], modes=Modes(deletes="soft")) as sink:
        pg.query(
            "create function {schema}.take_back() returns trigger language plpgsql as 'begin return old; end'",
        )
        pg.query("create trigger take_back before update on target for each row execute function {schema}.take_back()")
        with pytest.raises(TargetNotReady, match="accepted 0 of 1 deletes"):
            sink.apply(table.window(2, [delete(B)]))
    assert position(pg) == 1


def test_partitions_and_an_initial_load_and_a_merge(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    pg.query("create table target (id bigint primary key, name text) partition by range (id)")
    pg.query("create table low partition of target for values from (0) to (100)")
    suppress(pg, "insert")
    with opened(pg, table.source()) as sink:
        with pytest.raises(TargetNotReady, match="accepted 1 of 2 inserts"):
            sink.load(table.snapshot(1, [A, B]))
        pg.query("drop trigger suppress on target")
        sink.load(table.snapshot(1, [A, B]))
        suppress(pg, "update")
        with pytest.raises(TargetNotReady, match="accepted 0 of 1 updates"):
            sink.apply(table.window(2, [update(B, person(2, "bb"))]))
    sink = sink_of(pg)
    try:
        sink.open_to_reload(table.source())
        with pytest.raises(TargetNotReady, match="accepted 1 of 2 updates"):
            sink.reload(table.snapshot(3, [person(1, "aa"), person(2, "bb"), C]))
        pg.query("drop trigger suppress on target")
        suppress(pg, "insert or delete")  # one too many and one too few: the number of rows is right all the same
        with pytest.raises(TargetNotReady, match="accepted 1 of 2 deletes"):
            sink.reload(table.snapshot(3, [C, person(4, "d")]))
    finally:
        sink.close()
    assert (names(pg), position(pg)) == ({1: "a", 2: "b"}, 1)


def test_rules_are_refused_before_and_during_a_run(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    pg.query("create table target (id bigint primary key, name text)")
    with loaded(pg, table, [A, B]) as sink:
        pg.query("create rule stay as on delete to target do instead nothing")
        with pytest.raises(TargetNotReady, match="accepted 0 of 1 deletes"):
            sink.apply(table.window(2, [delete(B)]))
    (problem,) = sink_of(pg).inspect(table.source()).problems
    assert "has a rule stay that changes what is written" in problem
    pg.query("drop rule stay on target")
    pg.query("create rule noted as on delete to target do also select 1")
    assert sink_of(pg).inspect(table.source()).problems == ()


# ── tables whose rows do not stay ────────────────────────────────────────────────────────────────────────────────────


def test_tables_that_lose_their_rows_are_refused(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    source = table.source()
    pg.query("create unlogged table target (id bigint primary key, name text)")
    pg.query("create table parts (id bigint primary key, name text) partition by range (id)")
    pg.query("create unlogged table low partition of parts for values from (0) to (100)")
    pg.query("create table heir (id bigint primary key, name text)")
    pg.query("create unlogged table heiress () inherits (heir)")
    pg.query("create foreign data wrapper {schema}_wrapper")
    pg.query("create server {schema}_far foreign data wrapper {schema}_wrapper")
    pg.query("create foreign table far (id bigint not null, name text) server {schema}_far")
    pg.query("create table mixed (id bigint, name text) partition by range (id)")
    pg.query("alter table mixed attach partition far for values from (0) to (9)")
    pg.query("create temporary table passing (id bigint primary key, name text)")
    ((temporary,),) = pg.query("select nspname from pg_namespace where oid = pg_my_temp_schema()")
    for name, said in {
        "target": "UNLOGGED",
        "parts": "UNLOGGED",
        "heir": "UNLOGGED",
        "mixed": "is a foreign table",
        "far": "is not a table",
    }.items():
        assert said in " ".join(sink_of(pg, name).inspect(source).problems), name
    gone = type(sink_of(pg))(pg.dsn, table=f"{temporary}.passing").inspect(source).problems
    assert "is a temporary table" in " ".join(gone)
    with pytest.raises(TargetNotReady, match="set logged"):
        sink_of(pg).open(source)
    pg.query("alter table target set logged")
    assert sink_of(pg).inspect(source).problems == ()
    pg.query("drop foreign data wrapper {schema}_wrapper cascade")


@pytest.mark.parametrize(
    "statements",
    [["truncate target"], ["drop table target", "create table target (id bigint primary key, name text)"]],
    ids=["truncated", "recreated"],
)
def test_a_target_that_lost_its_rows_stops_until_it_is_rebuilt(
    session: SparkSession | None, pg: Pg, statements: list[str]
) -> None:
    table = people(session)
    with loaded(pg, table, [A, B]) as sink:
        sink.apply(table.window(2, [delete(A), delete(B)]))
        sink.apply(table.window(3, [insert(C)]))  # a table that is empty rightly goes on
        for statement in statements:
            pg.query(statement)
        with pytest.raises(TargetNotReady, match="is empty, although the last step left rows in it"):
            sink.apply(table.window(4, [insert(A)]))
        assert (names(pg), position(pg)) == ({}, 3)
    with pytest.raises(TargetNotReady, match="--reload"):
        sink_of(pg).open(table.source())
    sink = sink_of(pg)
    try:
        with pytest.raises(TargetNotReady, match="is empty"):
            sink.move(
                table.source(), Position(3, table.table_id), Position(2, table.table_id), action="rewind", reason="test"
            )
        sink.open_to_reload(table.source())
        sink.reload(table.snapshot(3, [C]))
    finally:
        sink.close()
    with opened(pg, table.source()) as sink:
        sink.apply(table.window(4, [insert(A)]))
    assert names(pg) == {1: "a", 3: "c"}


def test_an_installation_from_before_gets_the_column(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        pg.query("update deltarelay.position set holds_rows = null where target = %s", f"{pg.schema}.target")
        pg.query("create table aside as select * from target")
        pg.query("truncate target")  # as by a crash, while the table was UNLOGGED and nothing was recorded
        with pytest.raises(TargetNotReady, match="did not record whether it did"):
            sink.apply(table.window(2, [insert(B)]))
    with pytest.raises(TargetNotReady, match="--reload"):
        sink_of(pg).open(table.source())
    pg.query("insert into target select * from aside")
    with opened(pg, table.source()) as sink:  # not known: the next window records it
        sink.apply(table.window(2, [insert(B)]))
        pg.query("truncate target")
        with pytest.raises(TargetNotReady):
            sink.apply(table.window(3, [insert(C)]))


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["alter table target set unlogged"], "is UNLOGGED, and a crash of the server would empty it, or has"),
        (
            [
                "create table heir () inherits (target)",
                "with gone as (delete from only target where id = 2 returning *) insert into heir select * from gone",
            ],
            "heir inherits from it and holds rows",
        ),
    ],
    ids=["unlogged", "inherited"],
)
def test_what_becomes_of_the_target_during_a_run_is_noticed(
    session: SparkSession | None, pg: Pg, statements: list[str], said: str
) -> None:
    """A row in an inheriting table would not be met: its key would be there twice."""
    table = people(session)
    pg.query("create table target (id bigint primary key, name text)")
    with loaded(pg, table, [A, B]) as sink:
        for statement in statements:
            pg.query(statement)
        with pytest.raises(TargetNotReady, match=f"cannot be written any more: .*{said}"):
            sink.apply(table.window(2, [update(B, person(2, "bb"))]))
        assert (names(pg), position(pg)) == ({1: "a", 2: "b"}, 1)
    with pytest.raises(TargetNotReady, match=said):
        sink_of(pg).open(table.source())


def test_a_delete_takes_one_row(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A, B]) as sink:
        pg.query("alter table target drop constraint target_pkey")
        pg.query("insert into target values (2, 'another')")
        with pytest.raises(TargetNotReady, match="1 deletes met 2 rows"):
            sink.apply(table.window(2, [delete(B)]))
    assert pg.query("select count(*) from target") == [(3,)]


# ── keys that the source holds in two rows ───────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
@pytest.mark.parametrize("together", [1, 2, 3], ids=["three windows", "two commits in one", "one window"])
def test_a_key_put_by_two_versions_is_refused(
    session: SparkSession | None, pg: Pg, path: dict[str, int], together: int
) -> None:
    """Then one of the two rows is deleted: the source still has one, and the target would have none."""
    table = SampleTable(session, StructType().add("id", "long").add("n", "long"), ("id",), table="twice")
    one, two = {"id": 30, "n": 1}, {"id": 30, "n": 2}
    commits = [[insert(one)], [insert(two)], [delete(one)]]
    windows = [commits[at : at + together] for at in range(0, 3, together)]
    with loaded(pg, table, [], **path) as sink:
        if together == 1:
            sink.apply(table.window(2, *windows.pop(0)))
        at = position(pg)
        assert at is not None
        with pytest.raises(ConflictFound, match="the source holds a key in two rows") as found:
            sink.apply(table.window(at + 1, *windows[0]))
        assert found.value.fields["conflicts"]["insert_met_row" if together == 1 else "within_window"] == 1
        assert position(pg) == at
    with opened(pg, table.source(), conflicts="report", **path) as sink:
        assert sink.apply(table.window(at + 1, *windows[0])).conflicts.total > 0


SECOND = person(1, "second")
CAME_AND_WENT = pytest.mark.parametrize(
    "commits",
    [
        [[insert(SECOND)], [delete(SECOND)]],
        [[insert(SECOND)], [delete(A)]],
        [[insert(SECOND)], [update(SECOND, person(1, "third"))], [delete(person(1, "third"))]],
    ],
    ids=["the second goes", "the first goes", "the second changes and goes"],
)


@ON_BOTH_PATHS
@CAME_AND_WENT
def test_a_key_that_came_and_went_while_its_row_was_there_is_refused(
    session: SparkSession | None, pg: Pg, path: dict[str, int], commits: list[Any]
) -> None:
    """The source holds the key in two rows, and one of them goes: which one is left there nobody knows here."""
    table = people(session)
    with loaded(pg, table, [A, B], **path) as sink:
        window = table.window(2, *commits)
        with pytest.raises(ConflictFound, match="the source holds a key in two rows") as found:
            sink.apply(window)
        assert found.value.fields["conflicts"] == Conflicts(insert_met_row=1).to_dict()
        assert (position(pg), names(pg)) == (1, {1: "a", 2: "b"})
    with opened(pg, table.source(), conflicts="report", **path) as sink:
        applied = sink.apply(window)
        assert (applied.conflicts, applied.deletes) == (Conflicts(insert_met_row=1), 0)
        assert names(pg) == {2: "b"}  # as commit by commit: the last change decides
        assert sink.apply(window).replayed


@ON_BOTH_PATHS
@pytest.mark.parametrize("modes", [Modes(), Modes(rejects="dead_letter")], ids=IDS)
def test_a_key_that_came_and_went_is_no_contradiction_elsewhere(
    session: SparkSession | None, pg: Pg, path: dict[str, int], modes: Modes
) -> None:
    """No row is there; or a delete comes first; or no target can hold the key, which is then no reason to stop."""
    schema = StructType().add("id", "string").add("part", "long").add("at", "timestamp")
    table = SampleTable(session, schema, ("id", "part"), table="came")
    pg.query('create table target (id text, part integer, "at" timestamptz, primary key (id, part))')
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    one, *others = [
        {"id": name, "part": part, "at": now} for name, part in (("a", 1), ("b", 1), ("c\0", 1), ("d", 2**40))
    ]
    start = [insert(row) for row in others]
    end = [delete(row) for row in others]
    with loaded(pg, table, [one], conflicts="refuse", modes=modes, **path) as sink:
        applied = sink.apply(table.window(2, [delete(one), *start], [insert(one), *end], [delete(one)]))
        assert (applied.conflicts, applied.inserts, applied.deletes) == (Conflicts(), 0, 1)
        assert (applied.rejected, pg.query("select * from target")) == (0, [])
        if not modes.writes_dead_letters:
            with pytest.raises(RowRejected, match="column 'id' at version 5 holds text with a NUL"):
                sink.apply(table.window(5, start[1:2]))
            with pytest.raises(RowRejected, match="do not fit"):
                sink.apply(table.window(5, start[2:]))


@pytest.mark.parametrize("deletes", ["soft", "ignore"])
def test_a_key_that_came_and_went_in_other_modes(session: SparkSession | None, pg: Pg, deletes: Deletes) -> None:
    table = people(session)
    commits = [[insert(SECOND), insert(C)], [delete(SECOND), delete(C)]]
    modes = Modes(deletes=deletes)
    with loaded(pg, table, [A, B], modes=modes) as sink:
        sink.apply(table.window(2, [delete(B)]))
        if deletes == "ignore":  # rows that were deleted stay, and may be met
            assert sink.apply(table.window(3, *commits)).conflicts == Conflicts()
            assert names(pg) == {1: "a", 2: "b"}
            return
        marked = [[insert(B)], [delete(B)]]  # no row of the source's any more
        assert sink.apply(table.window(3, *marked)).conflicts == Conflicts()
        with pytest.raises(ConflictFound):
            sink.apply(table.window(5, *commits))
    with opened(pg, table.source(), modes=modes, conflicts="report") as sink:
        assert sink.apply(table.window(5, *commits)).conflicts == Conflicts(insert_met_row=1)
    assert pg.query("select id, _deleted_at is null from target order by 1") == [(1, False), (2, False)]


def test_what_was_put_before_may_be_put_again(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        sink.apply(table.window(2, [insert(B)]))
        sink.apply(table.window(3, [insert(C)]))
    sink = sink_of(pg)
    back = Position(1, table.table_id)
    sink.move(table.source(), Position(3, table.table_id), back, action="rewind", reason="test")
    with opened(pg, table.source()) as sink:
        again = sink.apply(table.window(2, [insert(B)], [insert(C)], [insert(A)], [delete(A)]))
        assert again.conflicts == Conflicts(insert_met_row=3)
        with pytest.raises(ConflictFound):  # from the version on that the target had been at
            sink.apply(table.window(6, [insert(person(3, "cc"))]))
    assert names(pg) == {2: "b", 3: "c"}
