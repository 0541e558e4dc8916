"""One runner at a time: who waits, for how long, and what is known when the answer to COMMIT is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdf.errors import LeaseHeld, SinkUnavailable
from cdf.testing import insert
from connectors.postgres import PostgresSink
from connectors.postgres.state import lease as leases
from connectors.postgres.write.window_writer import WindowWriter
from infra.embedded.postgres import EmbeddedPostgres
from tests.acceptance.commands import wait_for
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import left_of, loaded, names, opened, people, person, position, sink_of

A, B = person(1, "a"), person(2, "b")


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.4)


def vanish(sink: PostgresSink) -> None:
    """As a process does that is killed: it renews no more and gives nothing back."""
    assert sink._open_target.renewal is not None
    sink._open_target.renewal.stop()


def kill_connections(pg: Pg) -> int:
    """Of all sinks in this test, as a failover or an administrator does."""
    return len(pg.query(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'deltarelay' and pid <> pg_backend_pid()"
    ))  # fmt: skip


def test_a_living_runner_is_recognised_long_before_its_lease_ends(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60.0)
    source = people(session).source()
    with opened(pg, source) as first:
        began = time.monotonic()
        with pytest.raises(LeaseHeld) as found:
            sink_of(pg).open(source)
        assert time.monotonic() - began < 45
        assert found.value.fields["target"] == f"{pg.schema}.target"
        first.load(people(session).snapshot(1, [A]))  # and has lost nothing by it
    assert names(pg) == {1: "a"}


def test_a_lease_is_renewed_for_as_long_as_its_runner_lives(session: SparkSession | None, pg: Pg) -> None:
    target = f"{pg.schema}.target"
    with opened(pg, people(session).source()):
        ((begun,),) = pg.query("select lease_until from deltarelay.position where target = %s", target)
        renewed = (
            "select epoch from deltarelay.position where target = %s and lease_until > clock_timestamp()"
            " and lease_until > %s + make_interval(secs => %s)"
        )
        found = wait_for(lambda: pg.query(renewed, target, begun, leases.LEASE_SECONDS), "a lease of renewals")
        assert found == [(1,)]


def test_a_long_transaction_shows_its_runner(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No renewal gets through while it holds the position's row."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.0)
    table = people(session)
    with loaded(pg, table, [A]) as sink, psycopg.connect(pg.dsn) as other:
        holder = sink.standing().lease_holder
        other.execute(f"lock table {pg.schema}.target in access exclusive mode")
        applying = threading.Thread(target=sink.apply, args=(table.window(2, [insert(B)]),))
        applying.start()
        time.sleep(2.5)
        found = sink_of(pg).standing()
        other.rollback()
        applying.join()
        assert (found.lease_holder, found.position.version) == (holder, 1)
        assert found.lease_until is not None
    assert sink_of(pg).standing().lease_holder is None


def test_a_dead_runner_is_succeeded_within_one_lease(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as dead:
        vanish(dead)
        began = time.monotonic()
        left = pg.query(
            "select extract(epoch from lease_until - clock_timestamp())::float from deltarelay.position where target = %s",
            f"{pg.schema}.target",
        )[0][0]
        with opened(pg, table.source()) as successor:
            waited = time.monotonic() - began
            assert 0 < left <= 3.0
            assert left - 0.1 < waited < left + 20
            successor.apply(table.window(2, [insert(B)]))
    assert names(pg) == {1: "a", 2: "b"}
    assert left_of(pg, successor) == []


def test_a_closed_runner_is_succeeded_at_once(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60.0)
    source = people(session).source()
    for broken in (False, True):
        with opened(pg, source):
            if broken:  # also where its connection was cut
                assert kill_connections(pg) >= 1
        held = "select lease_until from deltarelay.position where target = %s"
        assert pg.query(held, f"{pg.schema}.target") == [(None,)]
        began = time.monotonic()
        with opened(pg, source):
            assert time.monotonic() - began < 45


def test_a_connection_cut_between_windows_costs_one_try(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        sink.apply(table.window(2, [insert(B)]))
        assert kill_connections(pg) >= 1
        window = table.window(3, [insert(person(3, "c"))])
        for _ in range(3):  # each of its connections may have to find out by itself
            try:
                sink.apply(window)
                break
            except SinkUnavailable:
                assert position(pg) == 2
        assert position(pg) == 3
    assert names(pg) == {1: "a", 2: "b", 3: "c"}


# ── the answer to COMMIT is lost ─────────────────────────────────────────────────────────────────────────────────────


def test_killed_in_commit_before_it_was_durable_it_is_unavailable_and_nothing_happened(
    session: SparkSession | None, pg: Pg
) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        pg.query(
            "create function {schema}.die() returns trigger language plpgsql as"
            " 'begin perform pg_terminate_backend(pg_backend_pid()); return null; end'"
        )
        pg.query(
            "create constraint trigger die after insert on target deferrable initially deferred"
            " for each row execute function {schema}.die()"  # deferred: it fires inside of COMMIT
        )
        with pytest.raises(SinkUnavailable):
            sink.apply(table.window(2, [insert(B)]))
        assert (names(pg), position(pg)) == ({1: "a"}, 1)
        pg.query("drop trigger die on target")
        sink.apply(table.window(2, [insert(B)]))
    assert (names(pg), position(pg)) == ({1: "a", 2: "b"}, 2)


def test_killed_in_commit_after_it_was_durable_it_counts_as_applied(
    session: SparkSession | None, server_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that waits for a standby is durable here already; killed in that wait, the client never hears of it."""
    table, killed = people(session), list[str]()

    def kill_what_waits() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as other:
            deadline = time.monotonic() + 60
            while not killed and time.monotonic() < deadline:
                time.sleep(0.05)
                waiting = other.execute(
                    "select pid, query from pg_stat_activity"
                    " where wait_event = 'SyncRep' and backend_type = 'client backend'"
                ).fetchall()
                for pid, query in waiting:
                    other.execute("select pg_terminate_backend(%s, 5000)", [pid])
                    killed.append(query)
            other.execute("alter system reset synchronous_standby_names")
            other.execute("select pg_reload_conf()")

    def commit(writer: WindowWriter, *args: Any, **options: Any) -> Any:
        with psycopg.connect(server.dsn, autocommit=True) as other:
            other.execute("alter system set synchronous_standby_names = 'nobody'")
            other.execute("select pg_reload_conf()")
        time.sleep(3)  # until every process of the server has heard of it
        killer.start()
        return usual(writer, *args, **options)

    usual, killer = WindowWriter.commit, threading.Thread(target=kill_what_waits)
    with (
        EmbeddedPostgres(server_folder / "waiting") as server,
        psycopg.connect(server.dsn, autocommit=True) as connection,
    ):
        connection.execute("create schema waits")
        connection.execute("set search_path = waits")
        corner = Pg(server.dsn, "waits", connection)
        with loaded(corner, table, [A]) as sink:
            vanish(sink)  # so that only the window's own connection is found waiting
            before = sink._session.main().info.backend_pid
            monkeypatch.setattr(WindowWriter, "commit", commit)
            applied = sink.apply(table.window(2, [insert(B)]))
            killer.join()
            assert killed == ["COMMIT"]
            assert sink._session.main().info.backend_pid != before
            assert (applied.position, applied.inserts, applied.replayed) == (2, 1, False)
            assert (names(corner), position(corner)) == ({1: "a", 2: "b"}, 2)
            monkeypatch.undo()
            sink.apply(table.window(3, [insert(person(3, "c"))]))
        assert names(corner) == {1: "a", 2: "b", 3: "c"}
