"""A database that cannot be reached, or not with this login, is named as what it is; no secret and no value is told."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from cdf.errors import CdfError, ConfigError, SinkUnavailable, TargetNotReady
from cdf.testing import insert
from connectors.postgres import PostgresSink
from connectors.postgres.staging import adbc_copy, tasks
from infra.embedded.postgres import EmbeddedPostgres
from tests.fixtures.fix_postgres import Pg
from tests.integration.postgres_case import loaded, names, opened, people, person, position, tells

SECRET = "hunter2secret"
A, B = person(1, "xanadu-a"), person(2, "xanadu-b")


def refusal(dsn: str, session: SparkSession | None) -> CdfError:
    """What each way to the database says: all alike."""
    told = []
    source = people(session).source()
    sink = PostgresSink(dsn, table="public.target")
    for call in (
        lambda: sink.inspect(source),
        lambda: sink.open(source),
        sink.position,
        lambda: sink.image(source).__enter__(),
    ):
        with pytest.raises(CdfError) as found:
            call()
        assert SECRET not in tells(found.value)
        told.append((type(found.value), found.value.hint))
    sink.close()
    assert len(set(told)) == 1
    return found.value


def test_a_closed_port_is_unavailable_at_once(session: SparkSession | None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        began = time.monotonic()
        error = refusal(f"postgresql://me:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/db", session)
    assert isinstance(error, SinkUnavailable)
    assert time.monotonic() - began < 30


def test_a_host_that_never_answers_is_given_up_after_the_connect_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        sink = PostgresSink(f"postgresql://me:{SECRET}@127.0.0.1:{port}/db?connect_timeout=2", table="target")
        began = time.monotonic()
        with pytest.raises(SinkUnavailable) as found:
            sink.position()
        assert time.monotonic() - began < 8
    assert SECRET not in tells(found.value)


@pytest.fixture(scope="module")
def strict_server(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    """Asks ``clerk`` for a password."""
    with EmbeddedPostgres(server_folder / "strict") as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"create role clerk login password '{SECRET}-right'")
            rules = server.data / "pg_hba.conf"
            rules.write_text("local all clerk scram-sha-256\n" + rules.read_text())
            connection.execute("select pg_reload_conf()")
        yield server


def test_a_wrong_login_or_database_is_named(session: SparkSession | None, strict_server: EmbeddedPostgres) -> None:
    wrong = refusal(make_conninfo(strict_server.dsn, user="clerk", password=f"{SECRET}-wrong"), session)
    assert isinstance(wrong, TargetNotReady)
    assert "refused the login" in str(wrong)
    nobody = refusal(make_conninfo(strict_server.dsn, user="nobody", password=SECRET), session)
    assert "refused the login" in str(nobody)
    nowhere = refusal(make_conninfo(strict_server.dsn, dbname="nowhere", password=SECRET), session)
    assert isinstance(nowhere, TargetNotReady)
    assert "database" in str(nowhere)
    assert "does not exist" in str(nowhere)


def test_a_dsn_that_is_none_is_refused_without_being_repeated() -> None:
    for dsn in (f"postgresql://me:{SECRET}@[::1/db", f"pasword={SECRET}"):
        with pytest.raises(ConfigError) as found:
            PostgresSink(dsn, table="target").position()
        assert SECRET not in tells(found.value)
    assert SECRET not in repr(PostgresSink(f"postgresql://me:{SECRET}@host/db", table="target"))


def test_a_database_out_of_the_executors_reach_is_said_to_be_so(
    spark: SparkSession, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, usual = people(spark), tasks.copy_from_tasks
    elsewhere = f"postgresql://me:{SECRET}@127.0.0.1:1/db"
    with opened(pg, table.source(), small_window_bytes=0) as sink:
        with monkeypatch.context() as patch:
            patch.setattr(tasks, "copy_from_tasks", lambda rows, _, *rest: usual(rows, elsewhere, *rest))
            with pytest.raises(SinkUnavailable, match="as seen from the executors") as load:
                sink.load(table.snapshot(1, [A]))
        sink.load(table.snapshot(1, [A]))
        monkeypatch.setattr(tasks, "copy_from_tasks", lambda rows, _, *rest: usual(rows, elsewhere, *rest))
        with pytest.raises(SinkUnavailable, match="as seen from the executors") as window:
            sink.apply(table.window(2, [insert(B)]))
        assert (names(pg), position(pg)) == ({1: "xanadu-a"}, 1)
    for error in (load.value, window.value):
        assert SECRET not in tells(error)
        assert "xanadu" not in tells(error)


def test_the_driver_is_not_called_an_executor(
    session: SparkSession | None, pg: Pg, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, usual = people(session), adbc_copy.bulk_connection
    with loaded(pg, table, [A]) as sink:
        monkeypatch.setattr(adbc_copy, "bulk_connection", lambda _: usual("postgresql://127.0.0.1:1/db"))
        with pytest.raises(SinkUnavailable) as found:
            sink.apply(table.window(2, [insert(B)]))
    assert "executors" not in str(found.value)
    assert "xanadu" not in tells(found.value)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("drop table target", "does not exist"),
        ("alter table target drop column name", None),
        ("drop schema {schema} cascade", "does not exist"),
    ],
)
def test_a_target_that_went_away_is_named(session: SparkSession | None, pg: Pg, damage: str, named: str | None) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        pg.query(damage)
        call: Any = lambda: sink.apply(table.window(2, [insert(B)]))  # noqa: E731
        if named is None:  # a column that is missing is added, as when the source has gained it
            assert call().ddl
            assert pg.query("select id, name from target order by id") == [(1, None), (2, "xanadu-b")]
            return
        with pytest.raises(TargetNotReady, match=named) as found:
            call()
    assert "xanadu" not in tells(found.value)


def test_a_key_index_that_went_away_in_the_run_is_named(session: SparkSession | None, pg: Pg) -> None:
    table = people(session)
    with loaded(pg, table, [A]) as sink:
        sink.apply(table.window(2, [insert(B)]))
        pg.query("alter table target drop constraint target_pkey")
        with pytest.raises(TargetNotReady, match="has changed since the run began"):
            sink.apply(table.window(3, [insert(person(3, "xanadu-c"))]))
        assert position(pg) == 2
