"""Connections and answers that are lost at a chosen point, strangers, and guards: in the end the target is right.

The statements are cut, held and swallowed by a proxy before the real server (``tests/fixtures/postgres_proxy.py``).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from cdf.errors import SinkUnavailable
from cdf.sink import Conflicts
from cdf.testing import delete, insert
from connectors.postgres.client import Session
from connectors.postgres.load.initial_load import analyze
from connectors.postgres.staging import tasks
from connectors.postgres.staging.columns import Staged
from connectors.postgres.steps import load_steps
from tests.acceptance.commands import wait_for
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.postgres_proxy import PostgresProxy
from tests.integration.outage_case import A2, SECOND, A, C, goes_on, second
from tests.integration.postgres_case import ON_BOTH_PATHS, loaded, names, opened, people, position, tells

OF_WINDOW = r"set version"
"""What a window's transaction has said before its COMMIT, and no other transaction of the sink."""


# ── COMMIT and its answer ────────────────────────────────────────────────────────────────────────────────────────────


@ON_BOTH_PATHS
def test_a_commit_whose_answer_is_lost_counts_once(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn, **path) as sink:
        rule = proxy.drop_answer("^commit", within=OF_WINDOW)
        applied = sink.apply(second(table))
        assert rule.hits == 1
        assert (applied.position, applied.replayed, applied.inserts, applied.updates) == (2, False, 1, 1)
        goes_on(pg, sink, table)


@ON_BOTH_PATHS
def test_a_commit_that_never_arrives_changes_nothing(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy, path: dict[str, int]
) -> None:
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn, **path) as sink:
        rule = proxy.cut("^commit", within=OF_WINDOW)
        with pytest.raises(SinkUnavailable) as found:
            sink.apply(second(table))
        assert rule.hits == 1
        assert "xanadu" not in tells(found.value)
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
        sink.apply(second(table))
        goes_on(pg, sink, table)


@pytest.mark.parametrize("next_run", [True, False], ids=["next run", "at once"])
def test_a_durable_commit_that_cannot_be_asked_about_is_found_later(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy, next_run: bool
) -> None:
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn) as sink:
        rule = proxy.drop_answer("^commit", within=OF_WINDOW)
        rule.before = lambda: setattr(proxy, "refusing", True)
        with pytest.raises(SinkUnavailable):
            sink.apply(second(table))
        proxy.clear()
        assert (names(pg), position(pg)) == (SECOND, 2)
        if next_run:
            assert sink.open(table.source()).version == 2
        assert sink.apply(second(table)).replayed
        goes_on(pg, sink, table)


@pytest.mark.parametrize("durable", [True, False])
def test_a_loads_commit_is_lost_either_way(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy, durable: bool
) -> None:
    table = people(session)
    with opened(pg, table.source(), dsn=proxy.dsn) as sink:
        (proxy.drop_answer if durable else proxy.cut)("^commit", within=OF_WINDOW)
        if durable:
            assert sink.load(table.snapshot(1, [A])).position == 1
        else:
            with pytest.raises(SinkUnavailable):
                sink.load(table.snapshot(1, [A]))
            assert position(pg) is None
            assert pg.query("select to_regclass('{schema}.target')") == [(None,)]
            sink.load(table.snapshot(1, [A]))
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
        sink.apply(second(table))
        goes_on(pg, sink, table)


def test_statistics_after_the_initial_copy_wait_for_no_lock(pg: Pg, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = []

    def analyze_locked(session: Session) -> None:
        with pg.connection.transaction():
            pg.query("lock table {schema}.target in share mode")
            session.main().execute("set statement_timeout = '10s'")
            began = time.monotonic()
            analyze(session)
            seconds.append(time.monotonic() - began)
            session.main().execute("reset statement_timeout")

    monkeypatch.setattr(load_steps, "analyze", analyze_locked)
    with loaded(pg, people(), [A]):
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
    assert len(seconds) == 1
    assert seconds[0] < 10


# ── staging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_drivers_copy_is_made_again_where_its_commits_answer_is_lost(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy
) -> None:
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn) as sink:
        sink.apply(second(table))
        rule = proxy.drop_answer("^commit", within="(?i)^copy")
        sink.apply(table.window(3, [insert(C), delete(A2)]))
        assert rule.hits == 1
        assert (names(pg), position(pg)) == ({2: "xanadu-b", 3: "xanadu-c"}, 3)
        # The first try's rows are durable in staging, under an id that nobody asks for
        stage = f"deltarelay.{sink._session.own_name('stage')}"
        assert pg.query(f"select count(*), count(distinct _attempt) from {stage}") == [(2, 1)]


@pytest.mark.parametrize("way", ["cut", "drop_answer"])
def test_a_tasks_copy_that_loses_its_connection_is_unavailable_and_leaves_no_trace(
    spark: SparkSession, pg: Pg, proxy: PostgresProxy, way: str
) -> None:
    table = people(spark)
    with loaded(pg, table, [A], dsn=proxy.dsn, small_window_bytes=0) as sink:
        rule = getattr(proxy, way)("^commit", within="(?i)^copy")
        with pytest.raises(SinkUnavailable) as found:
            sink.apply(second(table))
        assert rule.hits == 1
        assert "xanadu" not in tells(found.value)
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
        sink.apply(second(table))
        goes_on(pg, sink, table)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without"])
def test_two_attempts_of_every_task_finish_and_one_counts(
    spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A task that is retried after its COPY committed, or runs twice: Spark hands on the report of one attempt alone."""
    table, usual = people(spark), tasks.copy_from_tasks
    reports: list[Staged] = []

    def twice(*args: Any) -> Staged:
        reports.extend((usual(*args), usual(*args)))
        first, second = reports[-2:]
        return second if guarded else dataclasses.replace(second, attempts=first.attempts + second.attempts)

    with loaded(pg, table, [A], small_window_bytes=0) as sink:
        monkeypatch.setattr(tasks, "copy_from_tasks", twice)
        if not guarded:
            with pytest.raises(
                SinkUnavailable, match="does not have the number of rows"
            ):  # the recount is the second guard
                sink.apply(second(table))
            assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
            return
        applied = sink.apply(second(table))
        assert not set(reports[0].attempts) & set(reports[1].attempts)
        assert (applied.inserts, applied.updates, applied.conflicts) == (1, 1, Conflicts())
        goes_on(pg, sink, table)


# ── the connection breaks elsewhere ──────────────────────────────────────────────────────────────────────────────────


def test_cut_before_any_statement_of_a_window_it_is_unavailable_or_done_and_goes_on(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy
) -> None:
    """The same window again and again, cut one statement later each time, until it has gone through."""
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn) as sink:
        sink._open_target.renewal.stop()  # type: ignore[union-attr]  # so that the statements are the window's alone
        for number in range(1, 60):
            proxy.clear()
            passed = iter(range(1, number))
            rule = proxy.cut("")
            rule.fits = lambda *_, left=passed, rule=rule: rule.hits == 0 and next(left, None) is None  # type: ignore[method-assign]
            try:
                sink.apply(second(table))
            except SinkUnavailable:
                assert rule.hits == 1
                assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
                continue
            assert (names(pg), position(pg)) == (SECOND, 2)
            if rule.hits == 0:
                break
            # It got over that: back to before, by hand
            pg.query("delete from target")
            pg.query("insert into target values (1, 'xanadu-a')")
            pg.query("update deltarelay.position set version = 1 where target = %s", f"{pg.schema}.target")
            sink._open_target.position = dataclasses.replace(sink._open_target.position, version=1)
        else:
            pytest.fail("never got through")
        assert number > 5
        proxy.clear()
        goes_on(pg, sink, table)


def end_idle(pg: Pg, proxy: PostgresProxy) -> None:
    found = pg.query(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'deltarelay'"
    )
    assert found


@pytest.mark.parametrize("end", [end_idle, lambda _, proxy: proxy.cut_all()], ids=["server", "network"])
def test_connections_that_end_between_windows_cost_nothing(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy, end: Callable[[Pg, PostgresProxy], None]
) -> None:
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn) as sink:
        sink.apply(second(table))
        links = set(proxy._links)
        end(pg, proxy)
        wait_for(lambda: not links & proxy._links, "the proxy to pass it on")
        goes_on(pg, sink, table)


def test_connections_that_a_firewall_has_forgotten_cost_nothing(
    session: SparkSession | None, pg: Pg, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.postgres.spare_connections.IDLE_SECONDS", 0.0)
    table = people(session)
    with loaded(pg, table, [A], dsn=proxy.dsn) as sink:
        sink.apply(second(table))
        assert proxy.forget_all() >= 2
        goes_on(pg, sink, table)


def test_an_idle_session_timeout_of_the_server_costs_nothing(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    dsn = make_conninfo(pg.dsn, application_name=pg.schema, options="-c idle_session_timeout=1000")
    with loaded(pg, table, [A], dsn=dsn) as sink:
        assert sink._open_target.renewal is not None
        sink._open_target.renewal.stop()  # it connects anew every few seconds
        sink.apply(second(table))
        ours = "select pid from pg_stat_activity where application_name = %s"
        wait_for(lambda: not pg.query(ours, pg.schema), "the server to end every session")
        goes_on(pg, sink, table)
