"""The schema ``deltarelay`` in a database of the test's own: created, completed, migrated, and refused where it is newer."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from audit.erasure.scan.search_terms import SearchTerms
from audit.erasure.sink_contract import ErasureTask
from audit.migrations import Migration, StateTooNew
from audit.postgres_session import PinnedConnection
from cdf.errors import CdfError, TargetNotReady
from cdf.sink import Position
from connectors.postgres import PostgresSink
from connectors.postgres.state import migrations
from tests.acceptance.commands import Database
from tests.integration.postgres_case import people, person

STATE = migrations.STATE
TABLES = ("position", "position_log", "progress", "runs")
SOURCE = people().source()
SCHEMA_CHANGES = STATE.migrations[1].objects["runs.schema_changes"]
NOTE = Migration("a note", {"position.note": "alter table deltarelay.position add column note text default 'none'"})


def sink_of(database: Database, **options: Any) -> PostgresSink:
    return PostgresSink(options.pop("dsn", database.dsn), table="target", **options)


def opened_once(sink: PostgresSink) -> None:
    sink.open(SOURCE)
    sink.close()


def release_0_1(database: Database, *missing: str) -> None:
    """The schema as release 0.1 has left it, with the position of another target, but without these objects."""
    database.query("create schema deltarelay")
    for table in TABLES:
        if table not in missing:
            database.query(STATE.migrations[0].objects[table])
    if "position.holds_rows" in missing:
        database.query("alter table deltarelay.position drop column holds_rows")
    database.query("insert into deltarelay.position (target, pipeline, source, version) values ('other', 'p', 's', 7)")


def tables(database: Database) -> list[str]:
    found = database.query("select tablename from pg_tables where schemaname = 'deltarelay' order by 1")
    return [name for (name,) in found]


def versions(database: Database) -> list[int]:
    return [number for (number,) in database.query("select version from deltarelay.schema_version order by 1")]


def contents(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    return {table: database.rows(f"deltarelay.{table}") for table in tables(database)}


def newer_release(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = dataclasses.replace(STATE, migrations=[*STATE.migrations, NOTE])
    monkeypatch.setattr(migrations, "STATE", newer)


@pytest.fixture
def clerk(database: Database) -> Iterator[str]:
    """The dsn of a role that may use the tables of the schema, once that is there, and owns nothing."""
    role = f"clerk_{database.connection.info.dbname}"
    database.query(f"create role {role} login")
    database.query(f"grant usage, create on schema public to {role}")
    yield make_conninfo(database.dsn, user=role)
    database.query(f"drop owned by {role} cascade")
    database.query(f"drop role {role}")


def grant(database: Database) -> None:
    role = f"clerk_{database.connection.info.dbname}"
    database.query(f"grant usage, create on schema deltarelay to {role}")
    database.query(f"grant select, insert, update, delete on all tables in schema deltarelay to {role}")


def test_a_new_database_is_created_as_the_plan_shows(database: Database) -> None:
    sink = sink_of(database)
    shown = sink.inspect(SOURCE).ddl
    assert tables(database) == []
    opened_once(sink)
    assert (tables(database), versions(database)) == ([*TABLES, "schema_version"], [1, 2])
    again = sink.inspect(SOURCE).ddl
    assert [text for text in shown if text not in again] == list(shown[: len(shown) - len(again)])
    assert shown[0] == 'create schema if not exists "deltarelay"'
    database.query("drop schema deltarelay cascade")
    for statement in shown[: len(shown) - len(again)]:  # an administrator runs them
        database.query(statement)
    assert sink.inspect(SOURCE).ddl == again


@pytest.mark.parametrize("missing", [(), ("runs", "progress"), ("position.holds_rows",)], ids=str)
def test_a_state_of_release_0_1_gets_what_it_lacks(database: Database, missing: tuple[str, ...]) -> None:
    release_0_1(database, *missing)
    opened_once(sink_of(database))
    assert database.position("other") == 7
    assert database.value("select holds_rows from deltarelay.position where target = 'other'") is None
    assert (tables(database), versions(database)) == ([*TABLES, "schema_version"], [1, 2])


def test_the_history_of_release_0_1_can_be_read_and_continued(database: Database, clerk: str) -> None:
    release_0_1(database)
    grant(database)
    database.query(
        "insert into deltarelay.runs (target, pipeline, source, started_at, kind, first_version, last_version, seconds, "
        "retries) values ('public.target', 'p', 's', now(), 'window', 3, 4, '{}', 0)"
    )
    sink = sink_of(database, dsn=clerk)
    (old,) = sink.runs(5)
    assert (old.first, old.last, old.schema_changes, sink.runs(5, schema_changes=True)) == (3, 4, (), ())
    with pytest.raises(TargetNotReady, match="of an earlier version") as refused:
        sink.open(SOURCE)
    assert SCHEMA_CHANGES in str(refused.value)
    sink.record_failure(refused.value, pipeline="p", source="s", retries=0)
    assert [record.code for record in sink.runs(5)] == ["target_not_ready", None]
    database.query(SCHEMA_CHANGES)
    opened_once(sink)
    assert [record.schema_changes for record in sink.runs(5)] == [(), ()]


def test_a_state_without_some_of_the_tables_can_be_read(database: Database) -> None:
    release_0_1(database, "position_log", "progress", "runs")
    sink = PostgresSink(database.dsn, table="other")
    database.query("update deltarelay.position set target = 'public.other', source_table_id = 'id'")
    assert sink.position() == Position(7, "id")
    assert (sink.standing().position.version, sink.standing().records) == (7, ())
    assert (sink.reported(), sink.runs(1), sink.dead_letters(), sink.drop_dead_letters()) == (None, (), [], 0)
    assert "schema_version" not in tables(database)


def test_a_role_that_owns_nothing_goes_on_with_a_complete_state(database: Database, clerk: str) -> None:
    release_0_1(database)
    database.query(SCHEMA_CHANGES)
    grant(database)
    sink = sink_of(database, dsn=clerk)
    assert sink.inspect(SOURCE).problems == ()
    opened_once(sink)
    assert tables(database) == list(TABLES)


def test_a_role_that_may_not_create_reads_a_complete_state(database: Database, clerk: str) -> None:
    opened_once(sink_of(database))
    grant(database)
    database.query(f"revoke create on schema deltarelay from clerk_{database.connection.info.dbname}")
    database.query(f"revoke all on deltarelay.schema_version from clerk_{database.connection.info.dbname}")
    sink = sink_of(database, dsn=clerk)
    assert sink.standing().epoch == 1
    assert [problem for problem in sink.inspect(SOURCE).problems if "create in schema deltarelay" not in problem] == []


@pytest.mark.parametrize("recorded", [False, True])
def test_a_role_that_cannot_migrate_is_told_what_the_owner_must_run(
    database: Database, clerk: str, monkeypatch: pytest.MonkeyPatch, *, recorded: bool
) -> None:
    if recorded:
        opened_once(sink_of(database))
    else:
        release_0_1(database)
    grant(database)
    newer_release(monkeypatch)
    with pytest.raises(TargetNotReady, match="of an earlier version") as refused:
        sink_of(database, dsn=clerk).open(SOURCE)
    assert "add column note text default 'none'" in str(refused.value)
    opened_once(sink_of(database))
    opened_once(sink_of(database, dsn=clerk))


@pytest.mark.parametrize("missing", [(), ("position",), ("position.holds_rows",)], ids=str)
def test_a_later_migration_upgrades_a_state_of_release_0_1(
    database: Database, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    if "position" not in missing:
        release_0_1(database, *missing)
    newer_release(monkeypatch)
    opened_once(sink_of(database))
    assert versions(database) == [1, 2, 3]
    assert set(database.query("select note from deltarelay.position")) == {("none",)}


def fail(*_: Any) -> Any:
    raise AssertionError("not reached")


TASK = ErasureTask(
    "run-1", ("r1",), "people", (), ("id",), "delete", ("name",), keys=fail, catch=fail, search_terms=SearchTerms([])
)
TABLE_ID = SOURCE.table_id
CALLS: dict[str, Callable[[PostgresSink], Any]] = {
    "inspect": lambda sink: sink.inspect(SOURCE),
    "open": lambda sink: sink.open(SOURCE),
    "reload": lambda sink: sink.open_to_reload(SOURCE),
    "move": lambda sink: sink.move(SOURCE, Position(1, TABLE_ID), Position(0, TABLE_ID), action="rewind"),
    "drop": lambda sink: sink.drop_dead_letters(),
    "list": lambda sink: sink.dead_letters(),
    "position": lambda sink: sink.position(),
    "standing": lambda sink: sink.standing(),
    "reported": lambda sink: sink.reported(),
    "runs": lambda sink: sink.runs(5),
    "erase": lambda sink: sink.erasure.erase(TASK),
    "purge": lambda sink: sink.erasure.purge(TASK, now=dt.datetime(2026, 11, 23, tzinfo=dt.UTC)),
    "scan": lambda sink: sink.erasure.scan(TASK.search_terms),
}


def test_a_newer_state_is_refused_by_name_and_unchanged(database: Database) -> None:
    sink = sink_of(database)
    sink.open(SOURCE)
    sink.load(people().snapshot(1, [person(1, "a")]))
    sink.close()
    database.query("insert into deltarelay.schema_version (version, summary) values (3, 'of a newer release')")
    before = contents(database)
    for name, call in CALLS.items():
        with pytest.raises(StateTooNew, match="has version 3, and this release knows versions up to 2"):
            pytest.fail(f"{name}: {call(sink)}")
        sink.close()
    sink.record_failure(CdfError("x"), pipeline="p", source="s", retries=0)
    assert contents(database) == before
    assert database.rows("target") == [(1, "a")]


def test_a_failure_is_recorded_unless_the_state_is_newer(database: Database) -> None:
    sink = sink_of(database)
    opened_once(sink)
    sink.record_failure(CdfError("x"), pipeline="p", source="s", retries=0)
    assert len(database.rows("deltarelay.runs")) == 1


def test_the_version_costs_an_open_no_statement_and_a_window_none(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    execute = psycopg.Connection.execute

    def recorded(connection: PinnedConnection, query: Any, *rest: Any, **options: Any) -> Any:
        sent.append(query if isinstance(query, str) else query.as_string(connection))
        return execute(connection, query, *rest, **options)

    sink, table = sink_of(database), people()
    opened_once(sink)
    monkeypatch.setattr(psycopg.Connection, "execute", recorded)
    sink.open(SOURCE)
    settings = "pg_catalog.set_config('search_path'"  # before each statement outside of a transaction
    assert len([text for text in sent if settings not in text]) == 14, "as many as in release 0.1"
    sent.clear()
    sink.load(table.snapshot(1, [person(1, "a")]))
    sink.apply(table.window(2, []))
    assert [text for text in sent if "schema_version" in text] == []
    sink.close()
