"""Locks, time limits, strangers who write, restored targets and two runners at once: in the end the target is right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from cdf.errors import CdfError, ConflictFound, Fenced, LeaseHeld, SinkUnavailable, WindowOutOfOrder
from cdf.sink import Conflicts
from cdf.testing import delete, insert, update
from connectors.postgres.state import position as positions
from connectors.postgres.write.window_writer import WindowWriter
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.postgres_proxy import PostgresProxy
from tests.integration.outage_case import A2, B2, A, B, C, goes_on, second
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, names, opened, people, person, position, tells

# ── time limits and locks ────────────────────────────────────────────────────────────────────────────────────────────


def slow(pg: Pg, seconds: float) -> None:
    """Every upsert takes so long."""
    pg.query(
        "create function {schema}.slow() returns trigger language plpgsql as"
        f" 'begin perform pg_sleep({seconds}); return null; end'"
    )
    pg.query("create trigger slow before insert on target for each statement execute function {schema}.slow()")


@ON_BOTH_PATHS
def test_a_statement_timeout_is_named_and_changes_nothing(
    session: SparkSession | None, pg: Pg, path: dict[str, int]
) -> None:
    table, dsn = people(session), make_conninfo(pg.dsn, options="-c statement_timeout=2000")
    with loaded(pg, table, [A], dsn=dsn, **path) as sink:
        slow(pg, 6)
        with pytest.raises(SinkUnavailable, match="cancelled by the server") as found:
            sink.apply(second(table))
        assert "statement_timeout" in str(found.value.hint)
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
        pg.query("drop trigger slow on target")
        sink.apply(second(table))
        goes_on(pg, sink, table)


LOCKS = pytest.mark.parametrize(
    "lock",
    ["lock table {schema}.target in access exclusive mode", "select from {schema}.target where id = 1 for update"],
    ids=["table", "row"],
)


def strangers(pg: Pg, statement: str) -> psycopg.Connection[Any]:
    """A transaction of somebody else's that has said this and stays open."""
    stranger = psycopg.connect(pg.dsn)
    stranger.execute(statement.replace("{schema}", pg.schema))  # type: ignore[arg-type]
    return stranger


@LOCKS
def test_a_strangers_lock_is_waited_for(session: SparkSession | None, pg: Pg, lock: str) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink, strangers(pg, lock) as stranger:
        timer = threading.Timer(1.5, stranger.rollback)
        began = time.monotonic()
        timer.start()
        sink.apply(second(table))
        waited = time.monotonic() - began
        timer.join()
        assert waited >= 1.49
        goes_on(pg, sink, table)


@LOCKS
def test_a_strangers_lock_that_stays_is_reported(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    assert positions.LOCK_SECONDS == 60.0
    monkeypatch.setattr(positions, "LOCK_SECONDS", 0.7)
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        with strangers(pg, lock) as stranger:
            began = time.monotonic()
            with pytest.raises(SinkUnavailable, match="a lock that another session holds") as found:
                sink.apply(second(table))
            assert time.monotonic() - began < 50
            assert "pg_blocking_pids" in str(found.value.hint)
            stranger.rollback()
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
        sink.apply(second(table))
        goes_on(pg, sink, table)


def test_a_lock_timeout_of_the_users_own_counts_instead(session: SparkSession | None, pg: Pg) -> None:
    table, dsn = people(session), make_conninfo(pg.dsn, options="-c lock_timeout=2000")
    with loaded(pg, table, [A], dsn=dsn) as sink:
        with strangers(pg, "lock table {schema}.target in access exclusive mode") as stranger:
            began = time.monotonic()
            with pytest.raises(SinkUnavailable, match="lock"):
                sink.apply(second(table))
            assert time.monotonic() - began < 50
            stranger.rollback()
        sink.apply(second(table))
        goes_on(pg, sink, table)


# ── strangers who write ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Do something once, after a window was staged and before it is committed."""

    def put(action: Callable[[], Any]) -> None:
        usual, todo = WindowWriter.commit, [action]

        def commit(writer: WindowWriter, *args: Any, **options: Any) -> Any:
            if todo:
                todo.pop()()
            return usual(writer, *args, **options)

        monkeypatch.setattr(WindowWriter, "commit", commit)

    return put


def test_a_strangers_row_of_the_same_key_is_overwritten_and_counted(
    session: SparkSession | None, pg: Pg, between: Callable[[Callable[[], Any]], None]
) -> None:
    table = people(session)
    with loaded(pg, table, [A], conflicts="report") as sink:
        between(lambda: pg.query("insert into target values (2, 'a stranger')"))
        applied = sink.apply(second(table))
        assert applied.conflicts == Conflicts(insert_met_row=1)
        goes_on(pg, sink, table)


def test_a_strangers_row_of_the_same_key_can_be_refused(
    session: SparkSession | None, pg: Pg, between: Callable[[Callable[[], Any]], None]
) -> None:
    table = people(session)
    with loaded(pg, table, [A], conflicts="refuse") as sink:
        between(lambda: pg.query("insert into target values (2, 'a stranger')"))
        with pytest.raises(ConflictFound, match="1 inserts of existing rows"):
            sink.apply(second(table))
        assert (names(pg), position(pg)) == ({1: "xanadu-a", 2: "a stranger"}, 1)
        pg.query("delete from target where id = 2")
        sink.apply(second(table))
        goes_on(pg, sink, table)


def test_a_strangers_row_that_is_not_committed_yet_is_waited_for(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A], conflicts="report") as sink:
        with strangers(pg, "insert into {schema}.target values (2, 'a stranger')") as stranger:
            timer = threading.Timer(1.0, stranger.commit)
            timer.start()
            applied = sink.apply(second(table))
            timer.join()
        assert applied.conflicts == Conflicts(insert_met_row=1)
        goes_on(pg, sink, table)


def test_a_window_that_is_chosen_in_a_deadlock_changes_nothing_and_is_applied_again(
    session: SparkSession | None, pg: Pg
) -> None:
    table = people(session)
    # The server ends the one that looks first: the window, a second after it began to wait
    dsn = make_conninfo(pg.dsn, options="-c deadlock_timeout=1s")
    with loaded(pg, table, [A], dsn=dsn) as sink:
        sink.apply(table.window(2, [insert(B)]))
        with strangers(pg, "update {schema}.target set name = 'stranger' where id = 2") as stranger:
            stranger.execute("set local deadlock_timeout = '60s'")
            failed = list[CdfError]()

            def apply() -> None:
                try:
                    sink.apply(table.window(3, [update(A, A2), update(B, B2)]))
                except CdfError as error:
                    failed.append(error)

            thread = threading.Thread(target=apply)
            thread.start()
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'deltarelay'"
            deadline = time.monotonic() + 20
            while not pg.query(waits) and time.monotonic() < deadline:
                time.sleep(0.02)
            stranger.execute(f"update {pg.schema}.target set name = 'stranger' where id = 1")  # type: ignore[arg-type]
            stranger.rollback()
            thread.join()
        [error] = failed
        assert isinstance(error, SinkUnavailable)
        assert error.condition == "40P01"
        assert (names(pg), position(pg)) == ({1: "xanadu-a", 2: "xanadu-b"}, 2)
        assert "xanadu" not in tells(error)
        sink.apply(table.window(3, [update(A, A2), update(B, B2)]))
    assert (names(pg), position(pg)) == ({1: "xanadu-new", 2: "xanadu-newer"}, 3)


# ── the past, and two at once ────────────────────────────────────────────────────────────────────────────────────────


def test_a_target_that_is_restored_two_windows_back_goes_on_from_there(session: SparkSession | None, pg: Pg) -> None:
    """Rows and position come back together, as from a backup, under an open sink."""
    table = people(session)
    third = table.window(3, [insert(C), delete(A2)])
    with loaded(pg, table, [A]) as sink:
        pg.query("create table kept as select * from target")
        sink.apply(second(table))
        sink.apply(third)
        with pg.connection.transaction():
            pg.query("delete from target")
            pg.query("insert into target select * from kept")
            pg.query("update deltarelay.position set version = 1 where target = %s", f"{pg.schema}.target")
        fourth = table.window(4, [insert(person(4, "xanadu-d"))])
        with pytest.raises(WindowOutOfOrder, match="is at version 1"):
            sink.apply(fourth)
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
        assert sink.open(table.source()).version == 1
        for window in (second(table), third, fourth):
            assert sink.apply(window).conflicts == Conflicts()
    assert (names(pg), position(pg)) == ({2: "xanadu-b", 3: "xanadu-c", 4: "xanadu-d"}, 4)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without"])
def test_the_epoch_keeps_out_who_has_lost_the_lease_but_not_the_position(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Both stand at version 1: the position alone would let the one in that has no lease."""
    table = people(session)
    with loaded(pg, table, [A]) as zombie:
        assert zombie._open_target.renewal is not None
        zombie._open_target.renewal.stop()
        pg.query("update deltarelay.position set lease_until = now() where target = %s", f"{pg.schema}.target")
        with opened(pg, table.source()) as successor:
            if guarded:
                with pytest.raises(Fenced):
                    zombie.apply(second(table))
                assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
                successor.apply(second(table))
                goes_on(pg, successor, table)
                return
            held = successor._session.require_lease()
            for name in ("lock_position", "move_position"):
                usual: Any = getattr(positions, name)
                monkeypatch.setattr(
                    positions, name, lambda connection, _, usual=usual, **rest: usual(connection, held, **rest)
                )
            zombie.apply(second(table))  # two who write: the rightful one finds the position moved under it
            with pytest.raises(WindowOutOfOrder):
                successor.apply(second(table))


def test_a_runner_that_freezes_in_its_transaction_does_not_hold_the_row_for_ever(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy
) -> None:
    """What it says next comes 40 s late: by then the server has ended its transaction, and a successor has applied it."""
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn) as zombie:
        zombie._open_target.renewal.stop()  # type: ignore[union-attr]
        proxy.delay("insert into", 40, within="for update")
        failed = list[CdfError]()

        def apply() -> None:
            try:
                zombie.apply(second(table))
            except CdfError as error:
                failed.append(error)

        thread = threading.Thread(target=apply)
        thread.start()
        deadline = time.monotonic() + 35
        while not proxy.rules[0].hits and time.monotonic() < deadline:
            time.sleep(0.05)
        deadline = time.monotonic() + 35
        while True:
            with suppress(LeaseHeld), opened(pg, table.source()) as successor:
                successor.apply(second(table))
                goes_on(pg, successor, table)
                break
            assert time.monotonic() < deadline
        thread.join()
        assert [type(error) for error in failed] == [SinkUnavailable]
        with pytest.raises(Fenced):
            zombie.apply(second(table))
    assert (names(pg), position(pg)) == ({2: "xanadu-b", 3: "xanadu-c"}, 3)
