"""Two runs of one pipeline at once: one does the work, the other leaves without having touched anything."""

from __future__ import annotations

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, change, create_source, pipeline, source_rows

TARGET = "public.customers"


@pytest.mark.timeout(600)
def test_the_second_runner_leaves(project: Project, database: Database, spark: SparkSession, delta_path: str) -> None:
    create_source(spark, delta_path)
    change(
        spark,
        delta_path,
        "insert into {t} select id, concat('n', id), id from range(100)",
        "update {t} set name = 'changed' where id < 50",
        "delete from {t} where id % 9 = 0",
    )
    project.write({"customers": pipeline(delta_path, start=1, window={"max_commits": 1})})
    # The first is let through its initial copy, then held in the transaction of the window after it, however long
    patient = make_conninfo(database.dsn, options="-c lock_timeout=600s")
    first = project.start("run", environment={"WAREHOUSE_DSN": patient})
    first.until(lambda: database.position() == 1 and database.is_copied(), "the initial copy is done")
    with database.locked(TARGET, "share row exclusive"):
        first.until(lambda: database.waiting(TARGET, "lock table"), "the first runner waits in its transaction")
        at, epoch = database.position(), database.epoch()
        second = project.run("run", "--json")

        assert second.code == 75
        assert second.document["exit_code"] == 75
        refused = second.pipeline("customers")
        assert not refused["ok"]
        assert refused["error"]["code"] == "lease_held"
        assert refused["error"]["transient"]
        assert "customers: error: another runner holds the lease on public.customers" in second.err.splitlines()
        assert (database.position(), database.epoch()) == (at, epoch), "the second runner has changed something"
    done = first.done()

    assert done.code == 0, done.err
    assert database.position() == 3
    assert database.rows(TARGET) == source_rows(spark, delta_path, 3)
    assert database.leftovers() == []
