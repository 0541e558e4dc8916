"""Ctrl-C, or a scheduler's TERM: the command leaves with 130, takes its open work along, and the next run goes on."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Done, Project, change, create_source, pipeline, source_rows

pytestmark = pytest.mark.long

TARGET = "public.customers"


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

    run = project.start("run", "--json")
    stage = run.until(lambda: database.staging("stage", 1), "staging is made, after the initial copy")
    with database.locked(stage):
        run.until(lambda: database.waiting(stage, "copy"), "the COPY waits")
        run.interrupt()
        run.until(lambda: not database.waiting(stage, "copy"), "the COPY is cancelled")
    done = run.done()
    check(done, 1)
    assert json.loads(done.out)["error"]["code"] == "interrupted"

    with database.locked(TARGET, "share row exclusive"):
        run = project.start("run")
        run.until(lambda: database.waiting(TARGET, "lock table"), "the applying transaction waits")
        run.terminate()
        done = run.done()
    check(done, 1)
    assert done.out == ""

    assert project.run("run").code == 0
    assert database.position() == 3
    assert database.rows(TARGET) == source_rows(spark, delta_path, 3)
