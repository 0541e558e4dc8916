"""``run --follow`` over a real Spark Connect server: killed in a window, stopped politely, its server stopped."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, Running, change, create_source, source_rows
from tests.acceptance.test_run_over_connect import NO_JVM, use_server
from tests.fixtures.fix_connect import connect_server, connect_session

TARGET = "public.people"
FOLLOW = ("run", "--follow", "--interval-seconds", "0.1")


def start(project: Project, database: Database, *, position: int) -> Running:
    running = project.start(*FOLLOW, own_jvm=NO_JVM)
    running.until(lambda: database.position(TARGET) == position, f"version {position}")
    return running


def insert(spark: SparkSession, path: str, number: int) -> None:
    change(spark, path, f"insert into {{t}} values ({number}, 'n{number}', 1)")


def reports(running: Running) -> str:
    return Path(running._err).read_text()


def test_killed_in_a_window_its_successor_continues_exactly_once(
    project: Project, database: Database, connect: SparkSession, connect_address: str, delta_path: str
) -> None:
    create_source(connect, delta_path)
    insert(connect, delta_path, 1)
    use_server(project, delta_path, connect_address)
    run = start(project, database, position=1)
    run.until(lambda: '"following"' in reports(run), "polling")
    with database.locked(TARGET, "share row exclusive"):
        change(connect, delta_path, "update {t} set name = 'x' where id = 1")
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        run.kill()
    database.no_backends()
    assert (database.position(TARGET), database.rows(TARGET)) == (1, source_rows(connect, delta_path, 1))

    run = start(project, database, position=2)
    insert(connect, delta_path, 3)
    run.until(lambda: database.position(TARGET) == 3, "the next commit")
    assert database.rows(TARGET) == source_rows(connect, delta_path, 3)
    applied = (
        "select first_version, last_version from deltarelay.runs where code is null and kind = 'window' order by 1"
    )
    assert database.query(applied) == [(2, 2), (3, 3)]
    run.terminate()
    assert run.done().code == 0
    assert database.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_stopped_in_the_middle_of_a_window_it_finishes_it(
    project: Project,
    database: Database,
    connect: SparkSession,
    connect_address: str,
    delta_path: str,
    number: signal.Signals,
) -> None:
    create_source(connect, delta_path)
    insert(connect, delta_path, 1)
    use_server(project, delta_path, connect_address)
    run = start(project, database, position=1)
    with database.locked(TARGET, "share row exclusive"):
        insert(connect, delta_path, 2)
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        run.interrupt() if number is signal.SIGINT else run.terminate()
        run.until(lambda: "stopping" in reports(run), "it says so")
    done = run.done()
    assert done.code == 0, done.err
    assert "people: at version 2" in done.out
    assert database.rows(TARGET) == source_rows(connect, delta_path, 2)
    assert database.value("select lease_until is null from deltarelay.position")
    database.no_backends()


def test_a_server_that_stops_ends_it_with_one_error(
    project: Project, database: Database, delta_path: str, tmp_path: Path
) -> None:
    with connect_server(tmp_path, {"spark.sql.shuffle.partitions": "2"}) as address:
        with connect_session(address) as session:
            create_source(session, delta_path)
        use_server(project, delta_path, address)
        run = start(project, database, position=0)
        run.until(lambda: '"following"' in reports(run), "polling")
    done = run.done()
    assert done.code == 75, done.err
    assert done.err.count("the Spark Connect server does not answer, or has ended this session") == 1, done.err
    assert "Traceback" not in done.err
    assert database.value("select lease_until is null from deltarelay.position")
    database.no_backends()
