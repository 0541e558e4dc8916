"""A schema of ours is brought from any older state to this release's version, once, and a newer one is refused."""

from __future__ import annotations

import dataclasses
import threading

import psycopg
import pytest

from audit.migrations import Migration, Migrations, StateTooNew
from tests.fixtures.fix_postgres import Pg

FIRST = Migration(
    "items and their notes",
    {
        "item": "create table {item} (id bigint primary key, name text default '{{}}')",
        "note": "create table {note} (item bigint references {item}, text text)",
    },
)
ADD_PRICE = "alter table {item} add column if not exists price numeric default 1"
SECOND = Migration("the price of an item", statements=[ADD_PRICE])
THIRD = Migration("tags", {"tag": "create table {tag} (item bigint references {item}, tag text)"})


def of(pg: Pg, *migrations: Migration, schema: str | None = None) -> Migrations:
    return Migrations("the test's state", schema or f"{pg.schema}_state", migrations)


def migrate(pg: Pg, migrations: Migrations) -> tuple[str, ...]:
    with psycopg.connect(pg.dsn) as connection:
        return migrations.apply(connection)


@pytest.fixture(autouse=True)
def no_schema(pg: Pg) -> None:
    pg.query(f"drop schema if exists {pg.schema}_state cascade")


def test_an_empty_database_gets_all_of_them(pg: Pg) -> None:
    state = of(pg, FIRST, SECOND, THIRD)
    assert state.read_state(pg.connection).version == 0
    shown = state.pending(pg.connection)
    assert migrate(pg, state) == shown
    assert shown[0] == f'create schema if not exists "{pg.schema}_state"'
    assert state.read_state(pg.connection).version == 3
    assert state.pending(pg.connection) == ()
    assert migrate(pg, state) == ()
    assert pg.query(f"insert into {pg.schema}_state.item (id) values (1) returning name, price::text") == [("{}", "1")]
    versions = pg.query(f"select version, summary from {pg.schema}_state.schema_version order by 1")
    assert versions == [(1, FIRST.summary), (2, SECOND.summary), (3, THIRD.summary)]


def release_0_1(pg: Pg, *missing: str) -> None:
    pg.query(f"create schema {pg.schema}_state")
    pg.query(f"create table {pg.schema}_state.item (id bigint primary key, name text default '')")
    pg.query(f"insert into {pg.schema}_state.item values (7, 'seven')")
    if "note" not in missing:
        pg.query(f"create table {pg.schema}_state.note (item bigint, text text)")


def tables(pg: Pg) -> list[str]:
    found = pg.query(f"select tablename from pg_tables where schemaname = '{pg.schema}_state' order by 1")
    return [name for (name,) in found]


@pytest.mark.parametrize("missing", [(), ("note",)])
def test_a_state_without_versions_keeps_its_rows(pg: Pg, missing: tuple[str, ...]) -> None:
    release_0_1(pg, *missing)
    migrate(pg, of(pg, FIRST, SECOND))
    assert pg.query(f"select id, name, price::text from {pg.schema}_state.item") == [(7, "seven", "1")]
    assert pg.query(f"select * from {pg.schema}_state.note") == []
    assert pg.query(f"select version from {pg.schema}_state.schema_version order by 1") == [(1,), (2,)]


def test_a_complete_state_without_versions_needs_nothing(pg: Pg) -> None:
    release_0_1(pg)
    state = of(pg, FIRST)
    assert (state.read_state(pg.connection).version, migrate(pg, state), tables(pg)) == (1, (), ["item", "note"])


PRICE = Migration("the price of an item", {"item.price": ADD_PRICE})


def test_a_column_is_added_only_where_it_is_missing(pg: Pg) -> None:
    release_0_1(pg)
    state = of(pg, FIRST, PRICE)
    assert state.read_state(pg.connection).version == 1
    assert f'alter table "{pg.schema}_state"."item"' in migrate(pg, state)[2]
    assert pg.query(f"select id, price::text from {pg.schema}_state.item") == [(7, "1")]
    assert (state.read_state(pg.connection).version, migrate(pg, state)) == (2, ())
    # An administrator may have run the statement before
    pg.query(f"drop table {pg.schema}_state.schema_version")
    assert (state.read_state(pg.connection).version, migrate(pg, state)) == (2, ())


def test_a_column_is_added_to_a_table_that_an_earlier_migration_creates(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST, PRICE))
    assert pg.query(f"insert into {pg.schema}_state.item (id) values (1) returning price::text") == [("1",)]


def test_the_definition_of_a_table_includes_the_columns_of_its_migration(pg: Pg) -> None:
    created = Migration("items", {"item": "create table {item} (id bigint, price int)", "item.price": "select 1/0"})
    assert len(migrate(pg, of(pg, created))) == 5


def test_a_table_that_was_dropped_is_created_again(pg: Pg) -> None:
    state = of(pg, FIRST, PRICE)
    migrate(pg, state)
    pg.query(f"drop table {pg.schema}_state.note; alter table {pg.schema}_state.item drop column price")
    assert [text.split("(")[0].split()[0] for text in migrate(pg, state)] == ["create", "alter"]
    assert tables(pg) == ["item", "note", "schema_version"]


def test_a_table_whose_loss_must_be_seen_is_not_created_again(pg: Pg) -> None:
    state = dataclasses.replace(of(pg, FIRST, PRICE), recreates=False)
    migrate(pg, state)
    pg.query(f"drop table {pg.schema}_state.note")
    assert (migrate(pg, state), state.read_state(pg.connection).version) == ((), 2)
    assert state.read_state(pg.connection).objects == {"schema_version", "item", "item.price"}
    later = dataclasses.replace(state, migrations=[FIRST, PRICE, THIRD])
    assert [text.split()[0] for text in migrate(pg, later)] == ["create", "insert"]


def test_optional_tables_are_created_on_request_and_changed_where_they_exist(pg: Pg) -> None:
    extra = Migration("the reason", {"extra.reason": "alter table {extra} add column reason text"})
    before = Migrations("it", f"{pg.schema}_state", [FIRST], {"extra": "create table {extra} (id int)"})
    now = Migrations(
        "it", f"{pg.schema}_state", [FIRST, extra], {"extra": "create table {extra} (id int, reason text)"}
    )
    release_0_1(pg)
    assert (now.read_state(pg.connection).version, migrate(pg, now)) == (2, ())
    with psycopg.connect(pg.dsn) as connection:
        before.apply(connection, optional=["extra"])
        assert before.pending(connection, optional=["extra"]) == ()
        assert [text.split()[0] for text in now.apply(connection)] == ["alter", "insert"]
        assert now.pending(connection, optional=["extra"]) == ()
        connection.execute(f"drop table {pg.schema}_state.extra")
        assert now.pending(connection) == ()
        assert [text.split()[0] for text in now.apply(connection, optional=["extra"])] == ["create"]
        assert now.find_objects(connection) == {"schema_version", "item", "note", "extra", "extra.reason"}


def test_a_later_release_adds_what_is_new(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST))
    pg.query(f"insert into {pg.schema}_state.item values (7, 'seven')")
    later = of(pg, FIRST, SECOND, THIRD)
    assert [text.split("(")[0].strip() for text in migrate(pg, later)] == [
        f'alter table "{pg.schema}_state"."item" add column if not exists price numeric default 1',
        f'create table "{pg.schema}_state"."tag"',
        f'insert into "{pg.schema}_state"."schema_version"',
        f'insert into "{pg.schema}_state"."schema_version"',
    ]
    assert pg.query(f"select id, price::text from {pg.schema}_state.item") == [(7, "1")]


def test_a_newer_state_is_refused_by_name_and_unchanged(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST, SECOND, THIRD))
    older = of(pg, FIRST)
    for call in (older.read_state, older.pending, older.apply):
        with pytest.raises(StateTooNew, match="has version 3, and this release knows versions up to 1") as refused:
            call(pg.connection)
        assert refused.value.fields == {"version": 3, "known": 1}
    assert of(pg, FIRST, SECOND, THIRD).read_state(pg.connection).version == 3


def test_a_failed_migration_leaves_the_state_as_it_was(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST))
    broken = of(pg, FIRST, Migration("broken", statements=["alter table {item} add column price int", "select 1/0"]))
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(pg, broken)
    assert broken.read_state(pg.connection).version == 1
    assert len(pg.query(f"select * from information_schema.columns where table_schema = '{pg.schema}_state'")) == 7


def test_two_sessions_migrate_once(pg: Pg) -> None:
    state, ran, start = of(pg, FIRST, SECOND), [], threading.Barrier(2)

    def run() -> None:
        start.wait()
        ran.append(migrate(pg, state))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(bool, ran)) == [False, True]
    assert state.read_state(pg.connection).version == 2


def test_a_role_without_rights_reads_what_is_pending(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST))
    role = f"r_{pg.schema}"
    pg.query(f"create role {role} login password 'x'")
    try:
        pg.query(f"grant usage on schema {pg.schema}_state to {role}")
        pg.query(f"grant select on all tables in schema {pg.schema}_state to {role}")
        with psycopg.connect(psycopg.conninfo.make_conninfo(pg.dsn, user=role, password="x")) as connection:
            assert of(pg, FIRST).apply(connection) == ()
            assert len(of(pg, FIRST, SECOND).pending(connection)) == 2
            connection.commit()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                of(pg, FIRST, SECOND).apply(connection)
    finally:
        pg.query(f"drop owned by {role}; drop role {role}")
