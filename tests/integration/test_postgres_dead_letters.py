"""Rows that cannot be stored are set aside, with the others of their window applied: ``rejects: dead_letter``."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.errors import ConflictFound, RowRejected
from cdf.sink import Conflicts, DeadLetter
from cdf.testing import SampleTable, delete, insert, update
from cdf.testing.changes import Row
from connectors.postgres import PostgresSink
from connectors.postgres.options import Modes
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import (
    ON_BOTH_PATHS,
    QueryTable,
    loaded,
    names,
    opened,
    people,
    person,
    position,
    sink_of,
    tells,
)

ASIDE = Modes(rejects="dead_letter")
WITH_ROWS = Modes(rejects="dead_letter", reject_rows=True)
NUL = "xanadu\0"

COLUMNS = (
    "id bigint, name string, must string, amount decimal(12,3), small bigint, day date, mail string, slot bigint,"
    " long string, deep struct<a: string, b: array<string>>"
)
TARGET = """
create table target (
    id bigint primary key,
    name varchar(8) constraint no_shouting check (name <> 'SHOUT'),
    must text not null,
    amount numeric(6,1),
    small smallint,
    day date,
    mail text constraint one_mail unique,
    slot bigint,
    long text,
    deep jsonb,
    constraint apart exclude using gist (int8range(slot, slot + 10) with &&)
);
create index on target (long);
create function no_trouble() returns trigger language plpgsql as $$
begin
    if new.name = 'trouble' then raise exception 'xanadu is %', new.mail; end if;
    return new;
end $$;
create trigger no_trouble before insert or update on target for each row execute function no_trouble()
"""
UNFAITHFUL = "text with a NUL character or bytes that are not UTF-8"
# id → the columns that are not as they should be; (reason, column, constraint, SQLSTATE) of the letter
BAD = {
    11: ("concat('xanadu', char(0)) name", UNFAITHFUL, "name", None, None),
    12: ("cast(unhex('78616eff') as string) name", UNFAITHFUL, "name", None, None),
    13: ("named_struct('a', 'xanadu', 'b', array('x', char(0))) deep", UNFAITHFUL, "deep", None, None),
    14: (
        "date_from_unix_date(2147483647) day",
        "a date or time outside PostgreSQL's calendar",
        "day",
        None,
        None,
    ),
    15: ("123456.7bd amount", "a value does not fit", "amount", None, None),
    16: ("0.125bd amount", "a value does not fit", "amount", None, None),
    17: ("40000L small", "a value does not fit", "small", None, None),
    18: ("'xanadu-xanadu' name", "a value does not fit", "name", None, None),
    19: ("'SHOUT' name", "a check constraint is violated", None, "no_shouting", "23514"),
    20: ("null must", "a required value is missing", "must", None, "23502"),
    21: ("'stays' mail", "another row has the value of a unique index", None, "one_mail", "23505"),
    22: ("105L slot", "an exclusion constraint is violated", None, "apart", "23P01"),
    23: (
        "(select concat_ws('', collect_list(md5(cast(id as string)))) from range(200)) long",
        "a value is larger than an index entry may be",
        None,
        "target_long_idx",
        "54000",
    ),
    24: ("'trouble' name", "a trigger refuses the row", None, None, "P0001"),
}
PLAIN = {
    "name": "'fine'",
    "must": "'there'",
    "amount": "1.5bd",
    "small": "1L",
    "day": "date'2026-01-01'",
    "mail": "concat('mail-', id)",
    "slot": "id * 1000",
    "long": "'short'",
    "deep": "named_struct('a', 'x', 'b', array('y'))",
}
KINDS = dict(part.strip().split(" ", 1) for part in COLUMNS.replace("<a: string, b: array<string>>", "").split(", "))
KINDS["deep"] = "struct<a: string, b: array<string>>"
GOOD = (1, 2, 30, 31)


def of_rows(ids: Sequence[int]) -> str:
    """A query with a row for each id, bad where ``BAD`` says so."""
    rows = []
    for number in ids:
        values = dict(PLAIN)
        if number in BAD:
            value, _, name = BAD[number][0].rpartition(" ")
            values[name] = value
        columns = ", ".join(f"cast({value} as {KINDS[name]}) {name}" for name, value in values.items())
        rows.append(f"select id, {columns} from (select {number}L id)")
    return " union all ".join(rows)


def letters(sink: PostgresSink) -> dict[str, DeadLetter]:
    """key → letter"""
    found = sink.dead_letters()
    by_key = {one.key: one for one in found}
    assert len(by_key) == len(found)
    return by_key


def keys(sink: PostgresSink) -> list[int]:
    return sorted(int(json.loads(key)["id"]) for key in letters(sink))


def check_letters(sink: PostgresSink, version: int) -> None:
    found = letters(sink)
    assert {int(json.loads(key)["id"]) for key in found} == set(BAD)
    for key, letter in found.items():
        _, reason, column, constraint, state = BAD[int(json.loads(key)["id"])]
        assert (letter.reason, letter.column, letter.constraint, letter.sqlstate) == (
            reason,
            column,
            constraint,
            state,
        ), key
        assert (letter.version, letter.change, letter.row) == (version, "insert", None)


@ON_BOTH_PATHS
def test_every_kind_in_one_window(
    spark: SparkSession, pg: Pg, path: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="deltarelay")
    table = QueryTable(spark, of_rows([100]).replace("concat('mail-', id)", "'stays'").replace("id * 1000", "100"))
    pg.query(TARGET)
    with opened(pg, table.source(), modes=ASIDE, **path) as sink:
        sink.load(table.snapshot(1))
        applied = sink.apply(table.window(2, of_rows([*GOOD, *BAD])))
        assert (applied.inserts, applied.rejected, applied.conflicts) == (len(GOOD) + len(BAD), len(BAD), Conflicts())
        assert sorted(pg.query("select id from target")) == [(number,) for number in sorted([*GOOD, 100])]
        check_letters(sink, 2)
        assert position(pg) == 2
    assert "xanadu" not in caplog.text


def test_every_kind_in_the_first_copy_into_a_table_that_is_there(spark: SparkSession, pg: Pg) -> None:
    first = of_rows([100]).replace("concat('mail-', id)", "'stays'").replace("id * 1000", "100")
    table = QueryTable(spark, f"{first} union all {of_rows([*GOOD, *BAD])}")
    pg.query(TARGET)
    with opened(pg, table.source(), modes=ASIDE) as sink:
        applied = sink.load(table.snapshot(3))
        stored = {number for (number,) in pg.query("select id from target")}
        aside = set(keys(sink))
        assert stored | aside == {100, *GOOD, *BAD}
        assert applied.rejected == len(aside) == len(sink.dead_letters())
        # 100 stands in the way of 21 and 22: either it is stored, or they are
        assert (stored, aside) in (({100, *GOOD}, set(BAD)), ({21, 22, *GOOD}, {100, *BAD} - {21, 22}))
        assert position(pg) == 3


def test_the_first_copy_into_a_fresh_table(spark: SparkSession, pg: Pg) -> None:
    """Its types hold everything but what PostgreSQL itself cannot hold."""
    table = QueryTable(spark, of_rows([*GOOD, *BAD]))
    with opened(pg, table.source(), modes=ASIDE) as sink:
        applied = sink.load(table.snapshot(3))
        assert (applied.inserts, applied.rejected) == (len(GOOD) + len(BAD), 4)
        assert keys(sink) == [11, 12, 13, 14]
        stored = {number for (number,) in pg.query("select id from target")}
        assert stored == {*GOOD, *BAD} - {11, 12, 13, 14}
        assert pg.query("select count(*) from pg_index where indrelid = 'target'::regclass and indisprimary") == [(1,)]


# ── the life of a letter ─────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_the_target_keeps_the_former_row_until_a_good_change_comes(
    session: SparkSession | None, pg: Pg, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one"), person(2, "two")], modes=WITH_ROWS, **path) as sink:
        bad = table.window(2, [update(person(1, "one"), person(1, NUL)), insert(person(3, "three"))])
        assert sink.apply(bad).rejected == 1
        assert names(pg) == {1: "one", 2: "two", 3: "three"}
        (letter,) = sink.dead_letters()
        assert (letter.change, letter.version, json.loads(letter.key)) == ("update", 2, {"id": 1})
        assert letter.row is not None
        assert json.loads(letter.row) == {"id": 1, "name": NUL}
        assert letter.committed_at is not None

        assert sink.apply(bad).replayed
        assert sink.apply(table.window(3, [update(person(1, NUL), person(1, NUL + "2"))])).rejected == 1
        (again,) = sink.dead_letters()
        assert (again.id, again.version, again.key_digest) == (letter.id, 3, letter.key_digest)

        mended = sink.apply(table.window(4, [update(person(1, NUL + "2"), person(1, "mended"))]))
        assert (mended.rejected, mended.conflicts) == (0, Conflicts())
        assert names(pg) == {1: "mended", 2: "two", 3: "three"}
        assert sink.dead_letters() == []


@ON_BOTH_PATHS
@pytest.mark.parametrize("conflicts", ["report", "refuse"])
def test_what_a_letter_brings_about_is_no_conflict(
    session: SparkSession | None, pg: Pg, path: dict[str, int], conflicts: str
) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one")], modes=ASIDE, conflicts=conflicts, **path) as sink:
        assert sink.apply(table.window(2, [insert(person(number, NUL)) for number in (2, 3, 4)])).rejected == 3
        third = sink.apply(
            table.window(
                3,
                [
                    update(person(2, NUL), person(2, "mended")),
                    delete(person(3, NUL)),
                    update(person(4, NUL), person(4, NUL)),
                ],
            )
        )
        assert (third.rejected, third.conflicts) == (1, Conflicts())
        assert names(pg) == {1: "one", 2: "mended"}
        assert keys(sink) == [4]
        assert sink.apply(table.window(4, [delete(person(4, NUL)), delete(person(1, "one"))])).conflicts == Conflicts()
        assert names(pg) == {2: "mended"}
        assert keys(sink) == []


@pytest.mark.parametrize(
    ("first", "modes", "second"),
    [("insert", ASIDE, "two"), ("update", ASIDE, "two"), ("insert", ASIDE, NUL), ("update", Modes(), "two")],
    ids=["insert", "update", "both are set aside", "no longer set aside"],
)
def test_a_second_row_of_a_key_that_has_a_letter_is_refused(
    session: SparkSession | None, pg: Pg, first: str, modes: Modes, second: str
) -> None:
    """With the first of the two deleted, the source has a row, and the target neither a row nor a letter."""
    table = people(session)
    start = [person(30, "one")] if first == "update" else [person(1, "one")]
    with loaded(pg, table, start, modes=ASIDE) as sink:
        bad = update(start[0], person(30, NUL)) if first == "update" else insert(person(30, NUL))
        assert sink.apply(table.window(2, [bad])).rejected == 1
    with opened(pg, table.source(), modes=modes) as sink:
        with pytest.raises(ConflictFound, match="1 inserts of existing rows"):
            sink.apply(table.window(3, [insert(person(30, second))]))
        assert keys(sink) == [30]
        assert sink.apply(table.window(3, [delete(person(30, NUL))])).conflicts == Conflicts()
        assert sink.apply(table.window(4, [insert(person(30, "two"))])).conflicts == Conflicts()


def test_a_real_conflict_is_still_counted_beside_a_letter(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one")], modes=ASIDE) as sink:
        sink.apply(table.window(2, [insert(person(2, NUL))]))
        applied = sink.apply(
            table.window(3, [update(person(2, NUL), person(2, "x")), update(person(9, "?"), person(9, "y"))])
        )
        assert applied.conflicts == Conflicts(update_met_none=1)


@ON_BOTH_PATHS
def test_a_delete_takes_the_letter_and_the_former_row(
    session: SparkSession | None, pg: Pg, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one"), person(2, "two")], modes=ASIDE, **path) as sink:
        sink.apply(table.window(2, [update(person(1, "one"), person(1, NUL))]))
        applied = sink.apply(table.window(3, [delete(person(1, NUL))]))
        assert (applied.deletes, applied.rejected, applied.conflicts) == (1, 0, Conflicts())
        assert names(pg) == {2: "two"}
        assert sink.dead_letters() == []


@ON_BOTH_PATHS
def test_a_key_that_cannot_be_stored(session: SparkSession | None, pg: Pg, path: dict[str, int]) -> None:
    schema = StructType().add("code", "string").add("name", "string")
    table = SampleTable(session, schema, ("code",))

    def row(code: str, name: str) -> Row:
        return {"code": code, "name": name}

    long = "".join(f"{number:x}" for number in range(4000))
    with loaded(pg, table, [row("a", "one")], modes=ASIDE, **path) as sink:
        applied = sink.apply(table.window(2, [insert(row("b\0", "x")), insert(row(long, "x")), insert(row("c", "x"))]))
        assert (applied.rejected, applied.conflicts) == (2, Conflicts())
        assert {one.sqlstate for one in sink.dead_letters()} == {None, "54000"}
        assert {json.loads(one.key)["code"] for one in sink.dead_letters()} == {"b\0", long}
        assert sink.apply(table.window(3, [update(row("b\0", "x"), row("b\0", "y"))])).rejected == 1
        assert len(sink.dead_letters()) == 2
        applied = sink.apply(table.window(4, [delete(row("b\0", "y")), delete(row(long, "x"))]))
        assert (applied.deletes, applied.rejected, applied.conflicts) == (2, 0, Conflicts())
        assert sink.dead_letters() == []
        assert sorted(pg.query("select code from target")) == [("a",), ("c",)]


def test_a_key_change_whose_new_row_cannot_be_stored(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one")], modes=ASIDE) as sink:
        applied = sink.apply(table.window(2, [update(person(1, "one"), person(2, NUL))]))
        assert (applied.rejected, applied.conflicts) == (1, Conflicts())
        assert names(pg) == {}
        assert keys(sink) == [2]


def test_a_delete_that_a_trigger_refuses(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [person(number, "x") for number in range(8)], modes=ASIDE) as sink:
        pg.query(
            "create function keep() returns trigger language plpgsql as "
            "$$ begin if old.id = 5 then raise exception 'xanadu'; end if; return old; end $$"
        )
        pg.query("create trigger keep before delete on target for each row execute function keep()")
        applied = sink.apply(table.window(2, [delete(person(number, "x")) for number in (3, 4, 5, 6)]))
        assert (applied.deletes, applied.rejected, applied.conflicts) == (4, 1, Conflicts())
        assert set(names(pg)) == {0, 1, 2, 5, 7}
        assert [(one.change, one.sqlstate) for one in sink.dead_letters()] == [("delete", "P0001")]
        # A key that came and went meets that row, which is the letter's doing; then it goes, and the letter with it
        again = table.window(3, [insert(person(5, "y"))], [delete(person(5, "y"))])
        applied = sink.apply(again)
        assert (applied.deletes, applied.rejected, applied.conflicts) == (0, 1, Conflicts())
        assert [(one.change, one.version) for one in sink.dead_letters()] == [("delete", 4)]
        pg.query("drop trigger keep on target")
        assert sink.apply(table.window(5, [insert(person(5, "y"))], [delete(person(5, "y"))])).conflicts == Conflicts()
        assert set(names(pg)) == {0, 1, 2, 7}
        assert sink.dead_letters() == []


@ON_BOTH_PATHS
def test_soft_deletes(session: SparkSession | None, pg: Pg, path: dict[str, int]) -> None:
    table = people(session)
    modes = Modes(deletes="soft", rejects="dead_letter")
    with loaded(pg, table, [person(1, "one"), person(2, "two")], modes=modes, **path) as sink:
        sink.apply(table.window(2, [update(person(1, "one"), person(1, NUL)), delete(person(2, "two"))]))
        sink.apply(table.window(3, [delete(person(1, NUL)), insert(person(2, NUL))]))
        assert pg.query("select count(*) from target where _deleted_at is not null") == [(2,)]
        applied = sink.apply(table.window(4, [insert(person(1, "new")), update(person(2, NUL), person(2, "newer"))]))
        assert applied.conflicts == Conflicts()
        assert pg.query("select id, name from target where _deleted_at is null order by 1") == [
            (1, "new"),
            (2, "newer"),
        ]
        assert sink.dead_letters() == []


# ── limits, transactions, refusing ───────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_the_limit_stops_with_nothing_applied(session: SparkSession | None, pg: Pg, path: dict[str, int]) -> None:
    table = people(session)
    modes = Modes(rejects="dead_letter", reject_limit=2)
    with loaded(pg, table, [person(1, "one")], modes=modes, **path) as sink:
        sink.apply(table.window(2, [insert(person(2, NUL))]))
        with pytest.raises(RowRejected, match="more than the limit of 2") as found:
            sink.apply(table.window(3, [insert(person(3, NUL)), insert(person(4, NUL)), insert(person(5, "fine"))]))
        assert "xanadu" not in tells(found.value)
        assert (position(pg), names(pg), keys(sink)) == (2, {1: "one"}, [2])
        # What is refused by the target itself counts as well
        pg.query("alter table target add check (name <> 'no')")
        with pytest.raises(RowRejected, match="more than the limit of 2"):
            sink.apply(table.window(3, [insert(person(number, "no")) for number in range(3, 9)]))
        assert (position(pg), names(pg), keys(sink)) == (2, {1: "one"}, [2])
        # One letter goes, another comes
        sink.apply(
            table.window(3, [update(person(2, NUL), person(2, "ok")), insert(person(3, NUL)), insert(person(4, NUL))])
        )
        assert keys(sink) == [3, 4]


def test_the_limit_stops_the_first_copy(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with opened(pg, table.source(), modes=Modes(rejects="dead_letter", reject_limit=2)) as sink:
        with pytest.raises(RowRejected, match="more than the limit of 2"):
            sink.load(table.snapshot(1, [person(number, NUL) for number in range(3)]))
        assert position(pg) is None
        assert pg.query("select to_regclass('target')") == [(None,)]
        assert sink.dead_letters() == []


def test_letters_and_rows_are_one_transaction(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one")], modes=ASIDE) as sink:
        pg.query("alter table target add check (name <> 'no')")
        window = table.window(2, [insert(person(2, NUL)), insert(person(3, "no")), insert(person(4, "fine"))])

        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("connectors.postgres.state.position.move_position", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sink.apply(window)
        assert (position(pg), names(pg), keys(sink)) == (1, {1: "one"}, [])
        assert sink.apply(window).rejected == 2
        assert (position(pg), names(pg), keys(sink)) == (2, {1: "one", 4: "fine"}, [2, 3])
    with opened(pg, table.source(), modes=ASIDE) as sink:
        assert sink.apply(window).replayed
        assert keys(sink) == [2, 3]


@ON_BOTH_PATHS
@pytest.mark.parametrize("bad", [NUL, "no"], ids=["text", "check"])
def test_refusing_is_the_default_and_applies_nothing(
    session: SparkSession | None, pg: Pg, path: dict[str, int], bad: str
) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one")], **path) as sink:
        pg.query("alter table target add check (name <> 'no')")
        with pytest.raises(RowRejected) as found:
            sink.apply(table.window(2, [insert(person(2, bad)), insert(person(3, "fine"))]))
        assert "xanadu" not in tells(found.value)
        assert (position(pg), names(pg)) == (1, {1: "one"})


def test_a_fault_of_the_target_is_no_fault_of_a_row(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one")], modes=ASIDE) as sink:
        pg.query("create table other (id bigint primary key)")
        pg.query("alter table target add foreign key (id) references other not valid")
        pg.query("alter table target add check (name <> 'no')")
        for also in ([], [insert(person(3, "no"))], [insert(person(3, NUL))]):
            with pytest.raises(RowRejected) as found:
                sink.apply(table.window(2, [insert(person(2, "two")), *also]))
            assert found.value.condition == "23503"
        assert (position(pg), keys(sink)) == (1, [])


def test_one_among_a_hundred_thousand(spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    table = QueryTable(spark, "select 0L id, 'x' name")
    many = "select id, if(id = 54321, 'no', cast(id as string)) name from range(1, 100001)"
    statements: list[str] = []
    execute = psycopg.Connection.execute

    def counted(self: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        statements.append(query.as_string(self) if isinstance(query, sql.Composable) else str(query))
        return execute(self, query, *arguments, **named)

    with opened(pg, table.source(), modes=ASIDE, small_window_bytes=0) as sink:
        sink.load(table.snapshot(1))
        pg.query("alter table target add constraint never check (name <> 'no')")
        monkeypatch.setattr(psycopg.Connection, "execute", counted)
        applied = sink.apply(table.window(2, many))
        monkeypatch.undo()
        assert (applied.inserts, applied.rejected, applied.conflicts) == (100_000, 1, Conflicts())
        assert keys(sink) == [54321]
    assert pg.query("select count(*), count(*) filter (where id = 54321) from target") == [(100_000, 0)]
    # 17 halvings of two parts each, and the tries before them
    assert sum("insert into" in one and "from deltarelay" in one.replace('"', "") for one in statements) < 45


def test_rows_that_wait_for_others_are_tried_again(session: SparkSession | None, pg: Pg) -> None:
    """Where rows cannot be rearranged; and those between them are not met a second time."""
    table = SampleTable(session, StructType().add("id", "long").add("mail", "string"), ("id",))

    def row(number: int, mail: str) -> Row:
        return {"id": number, "mail": mail}

    waiting = {number: f"old {number}" for number in (0, 20, 40, 60)}
    start = [row(1000 + number, mail) for number, mail in waiting.items()]
    with loaded(pg, table, [*start, row(5000, "taken")], modes=ASIDE) as sink:
        pg.query("create unique index on target (mail)")
        pg.query("create table hangs (id bigint references target on delete cascade)")
        rows = [row(number, waiting.get(number, f"mail {number}")) for number in range(200)]
        rows[190] = row(190, "taken")
        edits = [*map(insert, rows), *(update(one, row(one["id"], f"new {one['id']}")) for one in start)]
        applied = sink.apply(table.window(2, edits))
        assert (applied.rejected, applied.conflicts) == (1, Conflicts())
        assert keys(sink) == [190]
        assert pg.query("select count(*) from target") == [(204,)]


@pytest.mark.parametrize("several", [1, 5, 40])
def test_halving_counts_no_row_twice(session: SparkSession | None, pg: Pg, several: int) -> None:
    """Rows between those that fail are not met a second time when these are tried again."""
    table = SampleTable(session, StructType().add("id", "long").add("name", "string").add("mail", "string"), ("id",))

    def row(number: int, mail: str) -> Row:
        return {"id": number, "name": "x", "mail": mail}

    with loaded(pg, table, [row(-1, "taken")], modes=ASIDE) as sink:
        pg.query("create unique index on target (mail)")
        pg.query(
            "create table hangs (id bigint references target on delete cascade)"
        )  # so that it cannot be rearranged
        step = 200 // several
        rows = [row(n, "taken" if n % step == 0 else f"mail {n}") for n in range(200)]
        applied = sink.apply(table.window(2, [insert(one) for one in rows]))
        assert applied.conflicts == Conflicts()
        assert applied.rejected == len(sink.dead_letters()) == sum(one["mail"] == "taken" for one in rows)
        assert pg.query("select count(*) from target") == [(201 - applied.rejected,)]


def test_the_letters_of_one_target_are_its_own(session: SparkSession | None, pg: Pg) -> None:
    source = people(session)
    with (
        opened(pg, source.source(), modes=ASIDE) as one,
        opened(pg, source.source(), modes=ASIDE, table="other") as other,
    ):
        for sink in (one, other):
            sink.load(source.snapshot(1, []))
            sink.apply(source.window(2, [insert(person(2, NUL)), insert(person(3, NUL))]))
        first, _ = one.dead_letters()
        assert other.drop_dead_letters([first.id]) == 0
        assert one.drop_dead_letters([first.id]) == 1
        assert (keys(one), keys(other)) == ([3], [2, 3])
        assert one.drop_dead_letters() == 1
        assert (keys(one), keys(other)) == ([], [2, 3])


def test_without_any_letter_nothing_is_needed(session: SparkSession | None, pg: Pg) -> None:
    sink = sink_of(pg, table="nowhere", modes=ASIDE)
    assert list(sink.dead_letters()) == []
    assert sink.drop_dead_letters() == 0


def test_letters_of_earlier_days_go_without_the_mode_too(session: SparkSession | None, pg: Pg) -> None:
    """The mode was taken off: what happens to a key still counts for more than its letter."""
    table = people(session)
    with loaded(pg, table, [person(1, "one")], modes=ASIDE) as sink:
        sink.apply(table.window(2, [insert(person(2, NUL)), insert(person(3, NUL))]))
    with opened(pg, table.source(), conflicts="refuse") as sink:
        applied = sink.apply(table.window(3, [update(person(2, NUL), person(2, "ok")), insert(person(4, "four"))]))
        assert applied.conflicts == Conflicts()
        assert (names(pg), keys(sink)) == ({1: "one", 2: "ok", 4: "four"}, [3])
        replayed = sink.replay(
            table.snapshot(3, [person(1, "one"), person(2, "ok"), person(3, "o"), person(4, "four")])
        )
        assert (replayed.inserts, replayed.rejected) == (1, 0)
        assert (names(pg), keys(sink)) == ({1: "one", 2: "ok", 3: "o", 4: "four"}, [])


@pytest.mark.parametrize("modes", [Modes(), ASIDE], ids=["refuse", "dead_letter"])
def test_a_new_table_inherits_no_letters(session: SparkSession | None, pg: Pg, modes: Modes) -> None:
    table = people(session)
    with loaded(pg, table, [person(1, "one"), person(2, NUL)], modes=ASIDE):
        pg.query("drop table target")
        pg.query("delete from deltarelay.position where target = %s", f"{pg.schema}.target")
    with loaded(pg, table, [person(1, "one")], modes=modes) as sink:
        assert keys(sink) == []
