"""Kill -9 at every point of a run: each time the target equals the source at its position, and the next run goes on.

No point is guessed at by sleeping. A lock that the test holds, or a driver that it has stopped, keeps the process at the
point, and the database shows that it is there.
"""

from __future__ import annotations

import os
import signal

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed
from connectors.postgres.sink import SMALL_WINDOW_BYTES
from tests.acceptance.commands import (
    KILLED,
    Database,
    Project,
    Running,
    change,
    create_source,
    pipeline,
    source_rows,
)

TARGET = "public.customers"
LEASE_SECONDS = 15
LARGE, LAST = 6, 8
"""The versions of the history below that is copied by tasks, and at which it ends."""


def history(spark: SparkSession, path: str) -> None:
    create_source(spark, path)
    text = "sha2(cast(id as string), 512)"
    change(
        spark,
        path,
        "insert into {t} select id, concat('n', id), id / 4 from range(400)",
        "update {t} set name = concat(name, '+') where id % 3 = 0",
        "delete from {t} where id % 7 = 0",
        "update {t} set id = id + 1000 where id < 100",
        "insert into {t} select id, 'again', 1 from range(50) where id % 7 = 0",
        f"insert into {{t}} select id, {text}, id / 4 from range(10000, 40000)",
        f"update {{t}} set name = concat({text}, '+') where id >= 10000 and id % 2 = 0",
        "delete from {t} where id % 5 = 0",
    )
    large = next(ChangeFeed(spark, path).log.commits(LARGE, LARGE))
    assert large.change_bytes > SMALL_WINDOW_BYTES


@pytest.mark.timeout(900)
def test_killed_at_every_point_of_a_run(
    project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    history(spark, delta_path)
    # A task that is lost is run again: local masters do that only when they are told how often
    project.write(
        {"customers": pipeline(delta_path, start=1, window={"max_commits": 1})}, rest="spark: {master: 'local[2,4]'}"
    )

    def check(position: int | None) -> None:
        """After a kill: the dead runner's sessions end, and what it left is whole."""
        database.no_backends()
        assert database.position() == position
        if position is None:
            assert not database.exists(TARGET)
        else:
            assert database.rows(TARGET) == source_rows(spark, delta_path, position)

    _kill_in_the_initial_copy(project, database)
    check(None)
    _kill_while_reading(project, database)
    check(1)
    _kill_while_staging(project, database)
    check(1)
    _kill_before_the_commit(project, database)
    check(1)
    position = _kill_after_a_commit(project, database)
    check(position)
    _kill_a_worker(project, database)
    check(LAST)
    assert database.leftovers() == []
    assert project.run("verify").code == 0


def _start(project: Project, database: Database) -> tuple[Running, int]:
    """A run, and the epoch that it will have."""
    epoch = database.epoch() + 1
    return project.start("run", own_jvm=KILLED), epoch


def _kill_in_the_initial_copy(project: Project, database: Database) -> None:
    run, epoch = _start(project, database)
    loading = run.until(lambda: database.staging("load", epoch), "the table to load into is made")
    with database.locked(loading):
        run.until(lambda: database.waiting(loading, "copy"), "the COPY of the initial copy waits")
        assert database.position() is None
        run.kill()
    assert database.staging("load", epoch) == loading


def _kill_while_reading(project: Project, database: Database) -> None:
    """The successor of a runner that was killed: it waits for the lease, starts the copy over, and dies in its turn."""
    lease_until = database.value("select lease_until from deltarelay.position")
    run, epoch = _start(project, database)
    run.until(lambda: database.epoch() == epoch, "the lease is taken")
    taken, connected = database.query(
        "select lease_until - make_interval(secs => %s), (select min(backend_start) from pg_stat_activity"
        " where datname = current_database() and application_name = 'deltarelay') from deltarelay.position",
        LEASE_SECONDS,
    )[0]
    assert taken >= lease_until, "the lease of a killed runner was not respected"
    waited = (taken - max(lease_until, connected)).total_seconds()
    assert waited < LEASE_SECONDS, "the successor waited longer than the lease"
    stage = run.until(lambda: database.staging("stage", epoch), "staging is made for the first window")
    run.freeze()
    assert not [query for query in database.backends() if query.lower().startswith("copy")]
    assert database.value(f"select count(*) from {stage}") == 0
    assert database.position() == 1
    assert database.leftovers() == [stage.removeprefix("deltarelay.")], "the table of the dead epoch is still there"
    run.kill()


def _kill_while_staging(project: Project, database: Database) -> None:
    run, epoch = _start(project, database)
    stage = run.until(lambda: database.staging("stage", epoch), "staging is made")
    with database.locked(stage):
        run.until(lambda: database.waiting(stage, "copy"), "the COPY into staging waits")
        run.kill()
    assert database.leftovers() == [stage.removeprefix("deltarelay.")]


def _kill_before_the_commit(project: Project, database: Database) -> None:
    with database.locked(TARGET, "share row exclusive"):
        run, epoch = _start(project, database)
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        assert database.value(f"select count(*) from {database.staging('stage', epoch)}") > 0
        run.kill()


def _kill_after_a_commit(project: Project, database: Database) -> int:
    before = database.position()
    run, _ = _start(project, database)
    run.until(lambda: database.position() != before, "the first window is committed")
    run.kill()
    position = database.position()
    assert position is not None
    assert 1 < position < LARGE, "the run was not killed in its middle"
    return position


def _kill_a_worker(project: Project, database: Database) -> None:
    """One task loses its process in the middle of its COPY: it is run again, and counts once."""
    run, epoch = _start(project, database)
    run.until(lambda: database.position() == LARGE - 1, "the windows before the large one are applied")
    stage = run.until(lambda: database.staging("stage", epoch), "staging is made")
    with database.locked(stage):
        before = set(run.until(lambda: database.waiting(stage, "copy"), "the COPY of a task waits"))
        workers = run.until(run.workers, "there are Python workers")
        os.kill(workers[0], signal.SIGKILL)
        run.until(lambda: set(database.waiting(stage, "copy")) - before, "the task is run again")
    done = run.done()
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1].startswith(f"customers: version {LAST}: ")
