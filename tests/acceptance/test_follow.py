"""``run --follow`` as a process: killed at every point, stopped politely, its database restarted under it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

from infra.embedded.postgres import EmbeddedPostgres
from tests.acceptance.commands import (
    KILLED,
    SIGNALLED,
    Database,
    Project,
    Running,
    change,
    create_source,
    descendants,
    pipeline,
    source_rows,
    wait_for,
)

TARGET = "public.customers"
FOLLOW = ("run", "--follow", "--interval-seconds", "0.1")

HELD = 20_261
"""The advisory lock at which a follower is held right after its window's commit."""
HOLD = (
    "create function public.hold() returns trigger language plpgsql set lock_timeout = 0 as"
    f" $$ begin perform pg_advisory_xact_lock({HELD}); return new; end $$",
    "create trigger hold before insert or update on deltarelay.progress for each row execute function public.hold()",
)
HOLDING = (
    "select count(*) from pg_locks l join pg_stat_activity a on a.pid = l.pid where l.locktype = 'advisory'"
    f" and l.objid = {HELD} and not l.granted and a.application_name = 'deltarelay' and a.query ~ 'deltarelay.progress'"
)
WRITTEN = "select xmin::text, ctid::text, id, name, amount from public.customers where id < 4 order by id"
"""The rows and which transaction wrote each: a window that is applied again writes its rows again."""


def start(project: Project, database: Database, own_jvm: str | None = None) -> tuple[Running, int]:
    """A follower at work, and its epoch."""
    epoch = database.epoch() + 1
    running = project.start(*FOLLOW, own_jvm=own_jvm)
    running.until(lambda: database.epoch() == epoch, "the lease is taken")
    return running, epoch


def equal(database: Database, spark: SparkSession, path: str, version: int) -> None:
    assert database.position() == version
    assert database.rows(TARGET) == source_rows(spark, path, version)


def insert(spark: SparkSession, path: str, number: int) -> None:
    change(spark, path, f"insert into {{t}} values ({number}, 'n{number}', 1)")


@pytest.mark.timeout(900)
def test_killed_at_every_point_of_following(
    project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    create_source(spark, delta_path)
    insert(spark, delta_path, 1)
    project.write({"customers": pipeline(delta_path)})
    run, epoch = start(project, database, KILLED)
    run.until(lambda: database.position() == 1, "the initial copy")
    insert(spark, delta_path, 2)
    run.until(lambda: database.position() == 2, "the first commit that is followed")

    # while the rows of a window are being staged
    stage = database.staging("stage", epoch)
    assert stage is not None
    with database.locked(stage):
        change(spark, delta_path, "update {t} set name = 'x' where id = 1")
        run.until(lambda: database.waiting(stage, "copy"), "the COPY into staging waits")
        run.kill()
    database.no_backends()
    equal(database, spark, delta_path, 2)

    # in the applying transaction, of the successor
    with database.locked(TARGET, "share row exclusive"):
        run, epoch = start(project, database, KILLED)
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        run.kill()
    database.no_backends()
    equal(database, spark, delta_path, 2)

    # right after a commit
    run, _ = start(project, database, KILLED)
    run.until(lambda: database.position() == 3, "the pending commit")
    change(spark, delta_path, "delete from {t} where id = 2")
    run.until(lambda: database.position() == 4, "the delete")
    run.kill()
    database.no_backends()
    equal(database, spark, delta_path, 4)

    run, _ = start(project, database, KILLED)
    insert(spark, delta_path, 5)
    run.until(lambda: database.position() == 5, "the last one goes on")
    equal(database, spark, delta_path, 5)
    run.interrupt()
    assert run.done().code == 0
    assert database.leftovers() == []


@pytest.mark.timeout(900)
def test_killed_after_the_commit_before_the_step_is_recorded(
    project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    """The sink has the window, and the follower does not know it yet: the successor does not apply it again."""
    create_source(spark, delta_path)
    insert(spark, delta_path, 1)
    project.write({"customers": pipeline(delta_path)})
    run = project.start(*FOLLOW, own_jvm=KILLED)
    run.until(lambda: database.position() == 1, "the initial copy")
    run.until(lambda: "following" in _events(run), "it follows")
    insert(spark, delta_path, 2)
    run.until(lambda: 2 in _applied(run), "the first commit that is followed, and the figures of its step")

    # The sink keeps the figures of a step right after the step's commit: there it waits
    for statement in HOLD:
        database.query(statement)
    database.query("select pg_advisory_lock(%s)", HELD)
    change(
        spark,
        delta_path,
        "merge into {t} t using (select * from values (1, 'x', 7.5), (3, 'n3', 1) s(id, name, amount)) s on t.id = s.id"
        " when matched then update set * when not matched then insert *",
    )
    run.until(lambda: database.value(HOLDING), "it waits after its commit")
    equal(database, spark, delta_path, 3)
    run.kill()
    assert 3 not in _applied(run), "the kill came too late"
    written = database.query(WRITTEN)
    database.query("select pg_advisory_unlock(%s)", HELD)
    database.query("drop trigger hold on deltarelay.progress")
    database.no_backends()
    equal(database, spark, delta_path, 3)

    run = project.start(*FOLLOW, own_jvm=KILLED)
    run.until(lambda: "following" in _events(run), "the successor follows")
    insert(spark, delta_path, 4)
    run.until(lambda: database.position() == 4, "it goes on")
    equal(database, spark, delta_path, 4)
    assert database.query(WRITTEN) == written, "the window was applied a second time"
    run.interrupt()
    done = run.done()
    assert done.code == 0, done.err
    assert [(line["first_version"], line["version"]) for line in _lines(run) if line["event"] == "window applied"] == [
        (4, 4)
    ]


def _lines(run: Running) -> list[dict[str, Any]]:
    """The log so far; a line that is being written is not looked at."""
    return [json.loads(line) for line in Path(run._err).read_text().splitlines(keepends=True) if line.endswith("\n")]


def _applied(run: Running) -> list[int]:
    """The last version of each window that the log reports as applied: it does so after the step's figures are kept."""
    return [line["version"] for line in _lines(run) if line["event"] == "window applied"]


def _events(run: Running) -> list[str]:
    return [line["event"] for line in _lines(run)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_stopped_in_the_middle_of_a_window_it_finishes_it(
    project: Project, database: Database, spark: SparkSession, delta_path: str, number: signal.Signals
) -> None:
    create_source(spark, delta_path)
    insert(spark, delta_path, 1)
    project.write({"customers": pipeline(delta_path)})
    run, _ = start(project, database, "its JVM and workers end with it")
    run.until(lambda: database.position() == 1 and database.is_copied(), "the initial copy")
    with database.locked(TARGET, "share row exclusive"):
        insert(spark, delta_path, 2)
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        below = descendants(run.process.pid)
        assert any("java" in command for _, command in below.values())
        if number is signal.SIGINT:
            run.interrupt()
        else:
            run.terminate()
        run.until(lambda: "stopping" in Path(run._err).read_text(), "it says so")
    done = run.done()
    assert done.code == 0, done.err
    assert "customers: at version 2" in done.out
    equal(database, spark, delta_path, 2)
    assert database.leftovers() == []
    database.no_backends()
    wait_for(lambda: not _still(below), "its JVM and workers are gone")
    lines = [json.loads(line) for line in done.err.splitlines()]
    applied = [line for line in lines if line["event"] == "window applied"]
    assert [line["version"] for line in applied] == [2]
    assert {"time", "run", "pipeline", "rows_in", "rows_applied", "seconds", "lag_versions"} <= applied[0].keys()


def _still(recorded: dict[int, tuple[int, str]]) -> list[int]:
    return [
        pid
        for pid, (_, command) in recorded.items()
        if Path(f"/proc/{pid}").exists() and command and command.split()[0] in _command(pid)
    ]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_pressed_twice_it_leaves_at_once(
    project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    create_source(spark, delta_path)
    insert(spark, delta_path, 1)
    project.write({"customers": pipeline(delta_path)})
    run, _ = start(project, database, SIGNALLED)
    run.until(lambda: database.position() == 1 and database.is_copied(), "the initial copy")
    with database.locked(TARGET, "share row exclusive"):
        insert(spark, delta_path, 2)
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        run.interrupt()
        run.until(lambda: "stopping" in Path(run._err).read_text(), "it says so")
        run.interrupt()
        assert run.done().code == 130
    database.no_backends()
    assert database.position() == 1, "a window that was broken off is applied"
    assert project.run("run").code == 0
    equal(database, spark, delta_path, 2)


def test_a_database_that_is_restarted_is_waited_for(
    project: Project, database: Database, spark: SparkSession, delta_path: str, server_folder: Path
) -> None:
    create_source(spark, delta_path)
    insert(spark, delta_path, 1)
    project.write({"customers": pipeline(delta_path)})
    server = EmbeddedPostgres(server_folder / "restarted")
    server.start()
    try:
        parts = conninfo_to_dict(server.dsn) | {"password": database.password}
        own = Database(make_conninfo("", **parts), database.password)
        run = project.start(*FOLLOW, environment={"WAREHOUSE_DSN": own.dsn})
        run.until(lambda: own.position() == 1, "the initial copy")
        own.connection.close()
        server.close()
        insert(spark, delta_path, 2)
        run.until(lambda: "waiting before the next attempt" in Path(run._err).read_text(), "it says that it waits")
        server.start()
        own = Database(own.dsn, own.password)
        run.until(lambda: own.position() == 2, "it goes on by itself")
        assert own.rows(TARGET) == source_rows(spark, delta_path, 2)
        insert(spark, delta_path, 3)
        run.until(lambda: own.position() == 3, "it follows again")
        run.terminate()
        assert run.done().code == 0
        own.connection.close()
    finally:
        server.close()


def test_a_database_that_never_was_there_is_told_at_once(
    project: Project, spark: SparkSession, delta_path: str
) -> None:
    create_source(spark, delta_path)
    project.write({"customers": pipeline(delta_path)})
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=2"
    done = project.run(*FOLLOW, "--json", environment={"WAREHOUSE_DSN": nowhere})
    assert done.code == 75
    entry = done.pipeline("customers")
    assert entry["ok"] is False
    assert entry["error"]["code"] == "sink_unavailable"
    assert entry["state"] == "failed"


def test_until_does_not_go_with_follow(project: Project, delta_path: str) -> None:
    project.write({"customers": pipeline(delta_path)})
    done = project.run("run", "--follow", "--until", "3")
    assert done.code == 2
    assert "--until" in done.err


def test_status_is_watched_until_ctrl_c(project: Project, spark: SparkSession, delta_path: str) -> None:
    create_source(spark, delta_path)
    project.write({"customers": pipeline(delta_path)})
    watching = project.start("status", "--watch", "--interval-seconds", "0.2")
    watching.until(lambda: Path(watching._out).read_text().count("empty") >= 3, "the third look")
    watching.interrupt()
    assert watching.done().code == 0
    assert project.run("status", "--watch", "--json").code == 2
