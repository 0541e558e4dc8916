"""Each guard against loss and damage, seen to matter: without it the damage is there, with it the window is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.errors import Fenced, RowRejected, SinkUnavailable, WindowOutOfOrder
from cdf.testing import delete, insert, update
from connectors.postgres.client import Session
from connectors.postgres.load import initial_load as load
from connectors.postgres.staging.columns import Staged
from connectors.postgres.state import position as positions
from connectors.postgres.state.lease import Lease
from connectors.postgres.write import record_writer, target_columns
from connectors.postgres.write.statements import ApplyStatements, apply_statements
from connectors.postgres.write.window_writer import WindowWriter
from infra.embedded.postgres import EmbeddedPostgres
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import ON_BOTH_PATHS, left_of, loaded, names, opened, people, person, position

A, B = person(1, "a"), person(2, "b")
OFF = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without"])


@pytest.fixture(scope="module")
def own_server(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(server_folder / "crashing") as server:
        yield server


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Do something once, after a window was staged and before it is committed."""

    def put(action: Callable[[], None]) -> None:
        usual, todo = WindowWriter.commit, [action]

        def commit(writer: WindowWriter, *args: Any, **options: Any) -> Any:
            if todo:
                todo.pop()()
            return usual(writer, *args, **options)

        monkeypatch.setattr(WindowWriter, "commit", commit)

    return put


def switch_off(monkeypatch: pytest.MonkeyPatch, *guards: str) -> None:
    for guard in guards:
        monkeypatch.setattr(record_writer, guard, lambda *_, **__: None)


# ── the recount of staging ───────────────────────────────────────────────────────────────────────────────────────────


@OFF
def test_a_server_that_crashes_behind_a_staged_window_loses_nothing(
    session: SparkSession | None,
    own_server: EmbeddedPostgres,
    between: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    guarded: bool,
) -> None:
    schema, table = f"crash_{guarded}".lower(), people(session)
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute(f"create schema {schema}")  # type: ignore[arg-type]
        with loaded(Pg(own_server.dsn, schema, connection), table, [A]) as sink:
            connection.close()
            staged: list[int] = []

            def crash() -> None:
                main = sink._session.main()
                count = main.execute(sql.SQL("select count(*) from {}").format(sink._session.own_table("stage")))
                staged.extend(row[0] for row in count)
                own_server.stop("immediate")
                own_server.start()
                main.close()  # the sink comes back with a new connection, as after a pool or proxy has reconnected

            between(crash)
            window = table.window(2, [insert(B), update(A, person(1, "new"))])
            if guarded:
                with pytest.raises(SinkUnavailable, match="does not have the number of rows"):
                    sink.apply(window)
                assert sink.position().version == 1
                sink.apply(window)
            else:
                switch_off(monkeypatch, "recount", "refuse_swallowed")
                sink.apply(window)
            assert staged == [2]  # the crash came after the COPY had committed
            assert sink.position().version == 2
    with psycopg.connect(own_server.dsn) as connection:
        found = dict(connection.execute(f"select id, name from {schema}.target").fetchall())  # type: ignore[arg-type]
    assert found == ({1: "new", 2: "b"} if guarded else {1: "a"})  # without: the window counts as applied and is lost


# ── attempt ids ──────────────────────────────────────────────────────────────────────────────────────────────────────


def strays_count(*args: Any, **options: Any) -> ApplyStatements:
    made = apply_statements(*args, **options)
    parts = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    texts = {name: part.as_string() for name, part in parts.items() if isinstance(part, sql.Composed)}
    loose = {
        name: text.replace("any(%(attempts)s)", "any(%(attempts)s || array['stray'])") for name, text in texts.items()
    }
    assert loose["delete"] != texts["delete"]
    return dataclasses.replace(made, **{name: sql.Composed([sql.SQL(text)]) for name, text in loose.items()})  # type: ignore[arg-type]


@OFF
@ON_BOTH_PATHS
def test_what_another_attempt_has_staged_is_not_applied(
    session: SparkSession | None, pg: Pg, path: dict[str, int], between: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch, guarded: bool,
) -> None:  # fmt: skip
    table = people(session)
    with loaded(pg, table, [A, B], **path) as sink:
        # A delete too many is refused by its count, also without these guards
        strays = "('stray', 1, 9, 'ghost')" + ", ('stray', 3, 2, null)" * guarded
        stray = sql.SQL("insert into {} values " + strays)  # type: ignore[arg-type]
        between(lambda: pg.connection.execute(stray.format(sink._session.own_table("stage"))) and None)
        if not guarded:
            monkeypatch.setattr(target_columns, "apply_statements", strays_count)
            switch_off(monkeypatch, "recount", "refuse_swallowed")
        sink.apply(table.window(2, [insert(person(3, "c")), delete(A)]))
        assert names(pg) == {2: "b", 3: "c"} | ({} if guarded else {9: "ghost"})


# ── position and epoch ───────────────────────────────────────────────────────────────────────────────────────────────


@OFF
def test_a_runner_that_wakes_up_late_overwrites_nothing(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    table, newest = people(session), person(1, "newest")
    with loaded(pg, table, [A]) as zombie:
        assert zombie._open_target.renewal is not None
        zombie._open_target.renewal.stop()
        pg.query(
            "update deltarelay.position set lease_until = now() - interval '1 s' where target = %s",
            f"{pg.schema}.target",
        )
        with opened(pg, table.source()) as successor:
            successor.apply(table.window(2, [update(A, person(1, "new"))], [update(person(1, "new"), newest)]))
            late = table.window(2, [update(A, person(1, "new"))])
            if guarded:
                with pytest.raises(Fenced):
                    zombie.apply(late)
                assert (names(pg), position(pg)) == ({1: "newest"}, 3)
            else:
                monkeypatch.setattr(positions, "lock_position", lambda *_, **__: None)
                monkeypatch.setattr(positions, "move_position", moved_by_force)
                zombie.apply(late)
                assert (names(pg), position(pg)) == ({1: "new"}, 2)  # the past, come back


def moved_by_force(connection: psycopg.Connection[Any], lease: Lease, *, version: int, **_: Any) -> None:
    connection.execute("update deltarelay.position set version = %s where target = %s", [version, lease.target])


@pytest.mark.parametrize("check", ["lock_position", "move_position"])
def test_the_position_is_compared_when_it_is_locked_and_again_when_it_moves(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    table = people(session)
    other = ({"lock_position", "move_position"} - {check}).pop()
    with loaded(pg, table, [A]) as sink:
        # A copy restored from a backup, behind the back of the runner
        pg.query("update deltarelay.position set version = 0 where target = %s", f"{pg.schema}.target")
        monkeypatch.setattr(positions, other, lambda *_, **__: None)
        with pytest.raises((WindowOutOfOrder, Fenced)):
            sink.apply(table.window(2, [insert(B)]))
        assert (names(pg), position(pg)) == ({1: "a"}, 0)
        if check == "move_position":
            monkeypatch.setattr(positions, "move_position", moved_by_force)
            sink.apply(table.window(2, [insert(B)]))
            assert (names(pg), position(pg)) == ({1: "a", 2: "b"}, 2)  # and version 1 is never applied


# ── DELETE first ─────────────────────────────────────────────────────────────────────────────────────────────────────


def delete_last(*args: Any, **options: Any) -> ApplyStatements:
    made = apply_statements(*args, **options)
    nothing = sql.SQL("delete from {} where false and %(attempts)s::text[] is null").format(made_target(args))
    return dataclasses.replace(made, delete=nothing, clear_some=made.delete)


def made_target(args: Any) -> sql.Identifier:
    return sql.Identifier(args[0].schema, args[0].table)


@OFF
def test_a_deleted_rows_unique_value_is_free_for_another(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    table = people(session)
    with loaded(pg, table, [A, B]) as sink:
        pg.query("create unique index by_name on target (name)")
        window = table.window(2, [delete(A), update(B, person(2, "a"))], [insert(person(3, "b"))])
        if guarded:
            sink.apply(window)
            assert names(pg) == {2: "a", 3: "b"}
        else:
            monkeypatch.setattr(target_columns, "apply_statements", delete_last)
            switch_off(monkeypatch, "refuse_swallowed")  # it counts the rows that the delete has left
            with pytest.raises(RowRejected, match="by_name"):
                sink.apply(window)


# ── the recount of a load ────────────────────────────────────────────────────────────────────────────────────────────


def doubling(pg: Pg, monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[str]:
    """The first copies of a load come with a row too many, as where a task runs twice. → the tables that were copied to"""
    usual, copied = load._copy_in_memory, list[str]()

    def copy(session: Session, schema: StructType, rows: pa.Table) -> Staged:
        staged, name = usual(session, schema, rows), session.own_name("load")
        if len(copied) < times:
            pg.query(f"insert into deltarelay.{name} values (9, 'ghost')")
        copied.append(name)
        return staged

    monkeypatch.setattr(load, "_copy_in_memory", copy)
    return copied


@OFF
def test_a_load_whose_task_ran_twice_starts_over(pg: Pg, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    copied = doubling(pg, monkeypatch, times=1)
    if not guarded:
        monkeypatch.setattr(load, "recount", lambda *_: True)
    with loaded(pg, people(), [A, B]):
        pass
    assert names(pg) == ({1: "a", 2: "b"} if guarded else {1: "a", 2: "b", 9: "ghost"})
    assert len(copied) == (2 if guarded else 1)


def test_a_load_that_never_adds_up_is_given_up(pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = doubling(pg, monkeypatch, times=99)
    with opened(pg, people().source()) as sink:
        with pytest.raises(SinkUnavailable, match="3 times"):
            sink.load(people().snapshot(1, [A, B]))
        assert left_of(pg, sink) == []
    assert len(copied) == load.LOAD_TRIES
    assert pg.query("select to_regclass('{schema}.target')") == [(None,)]
    assert position(pg) is None
