"""What the sink does with the target: makes it, takes over an empty one, follows it, or names everything in the way."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.errors import TargetNotReady
from cdf.sink import Position, Source
from cdf.testing import SampleTable, delete, insert, update
from connectors.postgres import PostgresSink
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import left_of, loaded, names, opened, people, person, sink_of

A, B = person(1, "a"), person(2, "b")
WIDE = StructType().add("id", "long").add("name", "string").add("sum", "decimal(10,2)").add("at", "timestamp")


def wide() -> Source:
    return Source("people", "id", WIDE, ("id",), "test")


def test_the_target_is_made_with_its_key_and_room_on_its_pages(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    inspection = sink_of(pg).inspect(table.source())
    with opened(pg, table.source()) as sink:
        applied = sink.load(table.snapshot(1, [A, B]))
    assert names(pg) == {1: "a", 2: "b"}
    assert pg.query("select reloptions from pg_class where oid = 'target'::regclass") == [(["fillfactor=70"],)]
    keys = "select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'target'::regclass"
    assert pg.query(keys + " and contype = 'p'") == [("target_pkey", "PRIMARY KEY (id)")]
    assert inspection.ddl[-3:] == applied.ddl
    for statement in ("drop table target", *applied.ddl):  # what it says is what it does
        pg.query(statement)
    assert pg.query(keys + " and contype = 'p'") == [("target_pkey", "PRIMARY KEY (id)")]
    assert left_of(pg, sink) == []


@pytest.mark.parametrize(
    ("target", "columns"),
    [
        ("target", ("id", "i d")),
        ("t" * 63, ("c" * 62 + "1", "c" * 62 + "2")),
        ("ü" * 30, ("c" * 30, "ä" * 31)),
        ("t" * 20, ("c" * 63, "é" * 20)),
    ],
)
def test_constraints_have_the_names_that_postgres_gives(
    session: SparkSession | None, pg: Pg, target: str, columns: tuple[str, str]
) -> None:
    """Not those of the table that was loaded; by the catalog, for NOT NULL has a name in some versions only."""
    table = SampleTable(session, StructType().add(columns[0], "long").add(columns[1], "long"), columns)
    pg.query(f'create table "{target[:58]}_pkey" ()')  # the first choice is taken
    given = "select conname from pg_constraint where conrelid = '{schema}.\"" + target + "\"'::regclass order by 1"
    with opened(pg, table.source(), table=target) as sink:
        ddl = sink.load(table.snapshot(1, [])).ddl
    made = pg.query(given)
    sink = sink_of(pg, table=target)
    try:
        sink.open_to_reload(table.source())
        sink.reload(table.snapshot(2, []))
    finally:
        sink.close()
    assert pg.query(given) == made
    for statement in (f'drop table {pg.schema}."{target}"', *ddl):
        pg.query(statement)
    assert pg.query(given) == made


def test_an_empty_table_is_filled_and_stays_what_it_was(session: SparkSession | None, pg: Pg) -> None:
    table = people(session).with_schema(WIDE)
    pg.query(
        "create table target (own text default 'kept', name text, id bigint not null, n int generated always as identity,"
        " shape point, check (id < 100))"
    )
    pg.query("create unique index by_id on target (id)")
    pg.query("grant select on target to public")
    before = pg.query("select 'target'::regclass::oid, relacl::text from pg_class where oid = 'target'::regclass")
    with opened(pg, table.source()) as sink:
        added = sink.load(table.snapshot(1, [A, B])).ddl
        sink.apply(table.window(2, [update(A, person(1, "aa")), delete(B)]))
    assert pg.query("select id, name, own, n > 0, sum, at from target") == [(1, "aa", "kept", True, None, None)]
    assert pg.query(
        "select 'target'::regclass::oid, relacl::text from pg_class where oid = 'target'::regclass"
    ) == before  # fmt: skip
    assert [statement.rsplit('"', 1)[1].strip() for statement in added] == ["numeric(10,2)", "timestamp with time zone"]


def test_a_partitioned_table_is_filled_and_its_conflicts_counted(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    pg.query("create table target (id bigint primary key, name text) partition by hash (id)")
    for part in (0, 1):
        pg.query(f"create table part{part} partition of target for values with (modulus 2, remainder {part})")
    with loaded(pg, table, [A, B], conflicts="report") as sink:
        changes = [insert(person(1, "met")), insert(person(3, "new")), update(person(4, "?"), person(4, "none"))]
        applied = sink.apply(table.window(2, [*changes, delete(B)]))
    assert names(pg) == {1: "met", 3: "new", 4: "none"}
    assert applied.conflicts.to_dict() == {
        "insert_met_row": 1, "update_met_none": 1, "delete_met_none": 0, "within_window": 0
    }  # fmt: skip


def test_rows_of_others_are_left_alone(session: SparkSession | None, pg: Pg) -> None:
    pg.query("create table target (id bigint primary key, name text)")
    pg.query("insert into target values (7, 'theirs')")
    with pytest.raises(TargetNotReady, match="did not come from this source"):
        sink_of(pg).open(people(session).source())
    assert names(pg) == {7: "theirs"}


def test_a_table_that_fills_while_it_is_loaded_is_refused(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    pg.query("create table target (id bigint primary key, name text)")
    with opened(pg, table.source()) as sink:
        pg.query("insert into target values (7, 'theirs')")
        with pytest.raises(TargetNotReady, match="another session"):
            sink.load(table.snapshot(1, [A]))
    assert names(pg) == {7: "theirs"}


def test_everything_in_the_way_is_named_in_one_list(pg: Pg) -> None:
    pg.query("create table target (id bigint unique deferrable, name point, sum text, at date, must text not null)")
    pg.query("create unique index partial on target (id) where id > 0")
    problems = sink_of(pg).inspect(wide()).problems
    assert [problem.removeprefix(f"{pg.schema}.target") for problem in problems] == [
        ".name is point, the source needs text or a type that holds it",
        ".sum is text, the source needs numeric(10,2) or a type that holds it",
        ".at is date, the source needs timestamp with time zone or a type that holds it",
        ".must is NOT NULL without a default, and the source has no such column",
        " has no primary key or unique index on exactly the key (id) that is checked immediately: an index that is "
        "deferrable, partial or on expressions cannot find the row of a change",
    ]
    with pytest.raises(TargetNotReady) as found:
        sink_of(pg).open(wide())
    assert found.value.fields["problems"] == list(problems)


def test_what_only_looks_like_the_target_is_named(pg: Pg) -> None:
    pg.query("create view target as select 1::bigint as id")
    assert "not a table" in " ".join(sink_of(pg).inspect(wide()).problems)
    pg.query("drop view target")
    pg.query("create table target (id bigint primary key, name text generated always as ('x') stored)")
    assert "generated by the database" in " ".join(sink_of(pg).inspect(wide()).problems)
    missing = PostgresSink(pg.dsn, table="no_such_schema.target").inspect(wide()).problems
    assert "schema 'no_such_schema' does not exist" in " ".join(missing)
    gone = sink_of(pg, "gone")
    gone.open(wide())
    gone.close()
    pg.query("update deltarelay.position set version = 3 where target = %s", f"{pg.schema}.gone")
    assert "does not exist, but its position (3)" in " ".join(gone.inspect(wide()).problems)


@pytest.fixture
def clerk(pg: Pg) -> Iterator[Pg]:
    """A role that may do nothing yet."""
    role = f"clerk_{pg.schema}"
    pg.query(f"create role {role} login")
    dsn = make_conninfo(pg.dsn, user=role)
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Pg(dsn, pg.schema, connection)
    pg.query(f"drop owned by {role}")
    pg.query(f"drop role {role}")


def test_rights_that_are_missing_are_named_and_those_granted_are_enough(
    session: SparkSession | None, pg: Pg, clerk: Pg
) -> None:
    table, role = people(session), f"clerk_{pg.schema}"
    with opened(pg, table.source(), table="other"):
        pass  # the administrator has made deltarelay.position by now
    pg.query("create table target (id bigint primary key)")
    problems = "; ".join(sink_of(clerk).inspect(table.source()).problems)
    assert "may not use schema" in problems
    assert "grant usage, create on it" in problems
    assert "may not write deltarelay.position" in problems
    assert "may not select, insert, update and delete" in problems
    assert 'add column "name" text' in problems
    assert (
        "may not create tables" in " ".join(sink_of(clerk, "new").inspect(table.source()).problems) or "use" in problems
    )
    pg.query("drop table target")
    pg.query(f"grant usage, create on schema {{schema}}, deltarelay to {role}")
    pg.query(f"grant select, insert, update on deltarelay.position to {role}")
    assert sink_of(clerk).inspect(table.source()).problems == ()
    with loaded(clerk, table, [A]) as sink:  # without the right to create schemas, as in the hint
        sink.apply(table.window(2, [insert(B)]))
    assert names(pg) == {1: "a", 2: "b"}


def test_an_added_column_is_null_in_the_rows_from_before(spark: SparkSession, pg: Pg) -> None:
    table = people(spark)
    later = table.with_schema(StructType([*table.schema.fields]).add("100% new", StructType().add("a", "integer")))
    with loaded(pg, table, [A, B]) as sink:
        applied = sink.apply(later.window(2, [insert({**person(3, "c"), "100% new": {"a": 1}})]))
    assert applied.ddl == (f'alter table "{pg.schema}"."target" add column "100% new" jsonb',)
    rows = pg.query('select id, name, "100% new"::text from target order by id')
    assert rows == [(1, "a", None), (2, "b", None), (3, "c", '{"a": 1}')]


AWKWARD = ["ID", "with space", 'a"b', "naïve 漢", "50% off", "a.b", "_attempt", "_operation", "c0", "select", "%s"]


@pytest.mark.parametrize("target", ['"Up Case"', '"a""b.c"', '"漢字 %s"', f'"{"x" * 63}"', f'"{"ä" * 31}y"'])
def test_names_count_as_they_are_written(session: SparkSession | None, pg: Pg, target: str) -> None:
    schema = StructType()
    for name in AWKWARD:
        schema.add(name, "string")
    table = SampleTable(session, schema, ("ID", "_attempt"), table="awkward")
    row = {name: name for name in AWKWARD}
    for other in ("one", "two"):  # the same table name in two schemas, at once
        pg.query(f"create schema {{schema}}_{other}")
    sinks = [PostgresSink(pg.dsn, table=f"{pg.schema}_{other}.{target}") for other in ("one", "two")]
    try:
        for sink in sinks:
            assert sink.open(table.source()) == Position()
            sink.load(table.snapshot(1, [row]))
        changed, new = {**row, "c0": "new"}, {**row, "ID": "2"}
        sinks[0].apply(table.window(2, [update(row, changed), insert(new)], [delete(new)]))
        found = {}
        for other, sink in zip(("one", "two"), sinks, strict=True):
            name = sql.Identifier(f"{pg.schema}_{other}", sink.target.table)
            cursor = pg.connection.execute(sql.SQL("select * from {}").format(name))
            assert [column.name for column in cursor.description or ()] == AWKWARD
            found[other] = cursor.fetchall()
        assert found == {"one": [tuple(changed.values())], "two": [tuple(row.values())]}
        assert [sink.position().version for sink in sinks] == [2 + 1, 1]
    finally:
        for sink in sinks:
            sink.close()
        for other in ("one", "two"):
            pg.query(f"drop schema {{schema}}_{other} cascade")
            pg.query("delete from deltarelay.position where starts_with(target, %s)", f"{pg.schema}_{other}.")
