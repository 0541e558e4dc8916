"""Kill -9 of an executor, a worker and the driver of a standalone cluster, while executors copy: the target stays right.

As in ``test_kill``, no point is guessed at by sleeping: a lock that the test holds keeps the tasks at the point.
"""

from __future__ import annotations

import json
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
    descendants,
    pipeline,
    source_rows,
    wait_for,
)
from tests.fixtures.fix_spark_cluster import SparkCluster

OWN_JVM = KILLED
TARGET = "public.customers"
TEXT = "sha2(cast(id as string), 512)"


@pytest.fixture(scope="session")
def postgres_dsn(tcp_postgres_dsn: str) -> str:
    """Of all databases of this file."""
    return tcp_postgres_dsn


def history(spark: SparkSession, path: str) -> None:
    """Versions 2 and 3 are windows that executors copy: with updates, deletes, and keys that come back."""
    create_source(spark, path)
    change(
        spark,
        path,
        f"insert into {{t}} select id, {TEXT}, id / 4 from range(20000)",
        f"merge into {{t}} t using (select id, {TEXT} as text from range(10000, 40000)) s on t.id = s.id"
        " when matched and t.id % 2 = 0 then delete when matched then update set name = concat(text, '+')"
        " when not matched then insert (id, name, amount) values (s.id, text, 1)",
        f"merge into {{t}} t using (select id, {TEXT} as text from range(5000, 30000)) s on t.id = s.id"
        " when matched and t.id % 3 = 0 then delete when matched then update set name = concat(text, '-')"
        " when not matched then insert (id, name, amount) values (s.id, text, 2)",
    )
    changes = list(ChangeFeed(spark, path).log.commits(2, 3))
    assert min(commit.change_bytes for commit in changes) > SMALL_WINDOW_BYTES, "the driver would copy a window"


@pytest.mark.timeout(900)
def test_killed_on_a_cluster(
    spark_cluster: SparkCluster, project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    history(spark, delta_path)
    settings = json.dumps({"master": spark_cluster.url, "conf": spark_cluster.conf})
    project.write({"customers": pipeline(delta_path, start=1, window={"max_commits": 1})}, rest=f"spark: {settings}")

    def check(position: int | None) -> None:
        """After a kill: the sessions of the dead end, executors too, and the target is whole."""
        wait_for(lambda: not spark_cluster.executors(), "the executors of a dead driver to end")
        database.no_backends()
        assert database.position() == position
        if position is None:
            assert not database.exists(TARGET)
        else:
            assert database.rows(TARGET) == source_rows(spark, delta_path, position)

    _kill_the_driver_in_the_copy(project, database)
    check(None)
    _kill_executors_and_a_worker(spark_cluster, project, database)
    check(2)
    _kill_the_java_of_the_driver_in_a_window(project, database)
    check(2)
    done = project.run("run", "--json")
    assert done.code == 0, done.err
    assert done.pipeline("customers")["position"] == 3
    check(3)
    assert database.leftovers() == []


def _kill_the_driver_in_the_copy(project: Project, database: Database) -> None:
    run = project.start("run")
    loading = run.until(lambda: database.staging("load", 1), "the table to load into is made")
    with database.locked(loading):
        run.until(lambda: database.waiting(loading, "copy"), "an executor copies")
        run.kill()


def _kill_executors_and_a_worker(cluster: SparkCluster, project: Project, database: Database) -> None:
    """The run continues: Spark starts another executor, or uses the other worker, and repeats what was lost."""
    run, epoch = project.start("run", "--until", "2", "--json"), database.epoch() + 1
    loading = run.until(lambda: database.staging("load", epoch), "the table to load into is made")
    with database.locked(loading):
        _kill_executor(cluster, run, database, loading)
    stage = run.until(lambda: database.staging("stage", epoch), "staging is made")
    with database.locked(stage):
        _kill_executor(cluster, run, database, stage)
        before, executor = _copying(cluster, run, database, stage)
        worker = cluster.executors()[executor]
        worker.kill()
        worker.wait()
        run.until(lambda: set(database.waiting(stage, "copy")) - before, "the other worker copies")
    cluster.start_worker()
    done = run.done()
    assert done.code == 0, done.err
    result = done.pipeline("customers")
    assert (result["position"], result["loaded_rows"], result["windows"]) == (2, 20_000, 1)
    assert (result["inserts"], result["updates"], result["deletes"]) == (20_000, 5_000, 5_000)


def _copying(cluster: SparkCluster, run: Running, database: Database, table: str) -> tuple[set[int], int]:
    """The backends whose COPY waits, also those of the dead, and the executor of one of them."""
    waiting = run.until(lambda: database.waiting(table, "copy"), "an executor copies")
    ports = database.query("select client_port from pg_stat_activity where pid = any(%s)", waiting)
    return {*waiting}, cluster.executor_at([port for (port,) in ports])


def _kill_executor(cluster: SparkCluster, run: Running, database: Database, table: str) -> None:
    before, executor = _copying(cluster, run, database, table)
    os.kill(executor, signal.SIGKILL)
    run.until(lambda: set(database.waiting(table, "copy")) - before, "the lost task is run again")


def _kill_the_java_of_the_driver_in_a_window(project: Project, database: Database) -> None:
    with database.locked(TARGET, "share row exclusive"):
        run, epoch = project.start("run"), database.epoch() + 1
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        assert database.value(f"select count(*) from {database.staging('stage', epoch)}") > 0
        (java,) = [pid for pid, (_, words) in descendants(run.process.pid).items() if "SparkSubmit" in words]
        os.kill(java, signal.SIGKILL)
        run.kill()
