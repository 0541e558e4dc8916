"""Ctrl-C, or a scheduler's TERM: the command leaves with 130, takes its open work along, and the next run goes on.

In the soak the signals are sent at 30 moments (``INTERRUPT_MOMENTS``) of a run and of a follow."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import (
    SIGNALLED,
    Database,
    Done,
    Project,
    change,
    create_source,
    pipeline,
    source_rows,
)

TARGET = "public.customers"
MOMENTS = int(os.environ.get("INTERRUPT_MOMENTS") or (30 if os.environ.get("DELTARELAY_SOAK") == "full" else 4))


@pytest.mark.timeout(600)
def test_interrupted_in_the_middle_of_a_run(
    project: Project, database: Database, spark: SparkSession, delta_path: str
) -> None:
    create_source(spark, delta_path)
    change(
        spark,
        delta_path,
        "insert into {t} select id, concat('n', id), id from range(100)",
        "update {t} set name = 'changed' where id < 50",
        "delete from {t} where id % 9 = 0",
    )
    project.write({"customers": pipeline(delta_path, start=1, window={"max_commits": 1})})

    def check(done: Done, position: int) -> None:
        assert done.code == 130, done.err
        assert "error: interrupted" in done.err.splitlines()
        assert "Traceback" not in done.err
        database.no_backends()
        assert database.leftovers() == [], "staging is left"
        assert database.value("select lease_until is null from deltarelay.position"), "the lease is left"
        assert database.position() == position
        assert database.rows(TARGET) == source_rows(spark, delta_path, position)

    run = project.start("run", "--json", own_jvm=SIGNALLED)
    stage = run.until(lambda: database.staging("stage", 1), "staging is made, after the initial copy")
    with database.locked(stage):
        run.until(lambda: database.waiting(stage, "copy"), "the COPY waits")
        run.interrupt()
        run.until(lambda: not database.waiting(stage, "copy"), "the COPY is cancelled")
    done = run.done()
    check(done, 1)
    assert json.loads(done.out)["error"]["code"] == "interrupted"

    with database.locked(TARGET, "share row exclusive"):
        for signals in (os.kill, os.killpg):  # to the driver alone, and to the JVM and the workers too
            run = project.start("run", own_jvm=SIGNALLED)
            run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
            signals(run.process.pid, signal.SIGTERM)
            done = run.done()
            check(done, 1)
            assert done.out == ""

    assert project.run("run").code == 0
    assert database.position() == 3
    assert database.rows(TARGET) == source_rows(spark, delta_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(300 + 120 * MOMENTS)
@pytest.mark.parametrize(
    ("words", "ended"), [(("run",), {130}), (("run", "--follow"), {0, 130})], ids=["run", "follow"]
)
def test_a_signal_at_any_moment_is_an_interrupt(
    project: Project,
    database: Database,
    spark: SparkSession,
    delta_path: str,
    words: tuple[str, ...],
    ended: set[int],
) -> None:
    """TERM and INT, to the process and to its whole group with the JVM and the workers, spread over a command's time."""
    create_source(spark, delta_path)
    project.write({"customers": pipeline(delta_path, start=0, window={"max_commits": 1})})
    where = random.Random(27)

    def told(number: int) -> str:
        return (project.folder / f"{number}.err").read_text()

    def started() -> tuple[int, float]:
        change(
            spark,
            delta_path,
            *(f"insert into {{t}} select {version}, 'n', 1" for version in where.sample(range(10**6), 3)),
        )
        number = len(project.started)
        running = project.start(*words, own_jvm=SIGNALLED)
        running.until(lambda: "starting Spark" in told(number), "it starts")
        return number, time.monotonic()

    number, began = started()
    project.started[number].until(lambda: database.position() == 3, "the first run ends")
    span = time.monotonic() - began + 1
    if len(words) > 1:
        project.started[number].terminate()
    assert project.started[number].done().code == 0
    for moment in range(MOMENTS):
        number, began = started()
        process = project.started[number].process
        which = (signal.SIGTERM, signal.SIGINT)[moment % 2]
        time.sleep(max(0.0, began + span * (moment + where.random()) / MOMENTS - time.monotonic()))
        before = process.poll()
        with suppress(ProcessLookupError):
            (os.killpg if moment % 4 < 2 else os.kill)(process.pid, which)
        done = project.started[number].done()
        at = f"{which.name} at {time.monotonic() - began:.1f} s of {span:.1f} s: {done.err}"
        latest = len(list(Path(delta_path, "_delta_log").glob("*.json"))) - 1
        # Where everything was done and told already, a signal changes nothing
        whole = done.code == 0 and f"at version {latest}" in done.out
        assert before == 0 or done.code in ended or whole, at
        assert not [
            word for word in ("Traceback", "unexpected error", "reading version", "ignored") if word in done.err
        ], at
        database.no_backends()
        assert database.leftovers() == [], at
        assert database.value("select lease_until is null from deltarelay.position"), at
        assert database.rows(TARGET) == source_rows(spark, delta_path, database.position()), at
    failures = {code for (code,) in database.query("select code from deltarelay.runs where code is not null")}
    assert failures <= {"interrupted"}, failures
    assert project.run("run").code == 0
    assert database.rows(TARGET) == source_rows(spark, delta_path, database.position())
