"""A schema of ours is brought from any older state to this release's version, once, and a newer one is refused."""

from __future__ import annotations

import threading

import psycopg
import pytest

from audit.migrations import Migration, Migrations, StateTooNew
from tests.fixtures.fix_postgres import Pg

FIRST = Migration(
    "items and their notes",
    tables={
        "item": "create table {item} (id bigint primary key, name text default '{{}}')",
        "note": "create table {note} (item bigint references {item}, text text)",
    },
)
SECOND = Migration(
    "the price of an item", statements=["alter table {item} add column if not exists price numeric default 1"]
)
THIRD = Migration("tags", tables={"tag": "create table {tag} (item bigint references {item}, tag text)"})


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
    assert state.version(pg.connection) == 0
    shown = state.pending(pg.connection)
    assert migrate(pg, state) == shown
    assert shown[0] == f'create schema "{pg.schema}_state"'
    assert state.version(pg.connection) == 3
    assert state.pending(pg.connection) == ()
    assert migrate(pg, state) == ()
    assert pg.query(f"insert into {pg.schema}_state.item (id) values (1) returning name, price::text") == [("{}", "1")]
    versions = pg.query(f"select version, summary from {pg.schema}_state.schema_version order by 1")
    assert versions == [(1, FIRST.summary), (2, SECOND.summary), (3, THIRD.summary)]


@pytest.mark.parametrize("missing", [(), ("note",)])
def test_a_state_without_versions_keeps_its_rows(pg: Pg, missing: tuple[str, ...]) -> None:
    pg.query(f"create schema {pg.schema}_state")
    pg.query(f"create table {pg.schema}_state.item (id bigint primary key, name text default '')")
    pg.query(f"insert into {pg.schema}_state.item values (7, 'seven')")
    if "note" not in missing:
        pg.query(f"create table {pg.schema}_state.note (item bigint, text text)")
    migrate(pg, of(pg, FIRST, SECOND))
    assert pg.query(f"select id, name, price::text from {pg.schema}_state.item") == [(7, "seven", "1")]
    assert pg.query(f"select * from {pg.schema}_state.note") == []


def test_a_later_release_adds_what_is_new(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST))
    pg.query(f"insert into {pg.schema}_state.item values (7, 'seven')")
    later = of(pg, FIRST, SECOND, THIRD)
    assert [text.split("(")[0].strip() for text in migrate(pg, later)] == [
        f'alter table "{pg.schema}_state"."item" add column if not exists price numeric default 1',
        f'insert into "{pg.schema}_state".schema_version',
        f'create table "{pg.schema}_state"."tag"',
        f'insert into "{pg.schema}_state".schema_version',
    ]
    assert pg.query(f"select id, price::text from {pg.schema}_state.item") == [(7, "1")]


def test_a_newer_state_is_refused_by_name_and_unchanged(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST, SECOND, THIRD))
    older = of(pg, FIRST)
    for call in (older.version, older.pending, older.apply):
        with pytest.raises(StateTooNew, match="has version 3, and this release knows versions up to 1") as refused:
            call(pg.connection)
        assert refused.value.fields == {"version": 3, "known": 1}
    assert of(pg, FIRST, SECOND, THIRD).version(pg.connection) == 3


def test_a_failed_migration_leaves_the_state_as_it_was(pg: Pg) -> None:
    migrate(pg, of(pg, FIRST))
    broken = of(pg, FIRST, Migration("broken", statements=["alter table {item} add column price int", "select 1/0"]))
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(pg, broken)
    assert broken.version(pg.connection) == 1
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
    assert state.version(pg.connection) == 2


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
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                of(pg, FIRST, SECOND).apply(connection)
    finally:
        pg.query(f"drop owned by {role}; drop role {role}")
