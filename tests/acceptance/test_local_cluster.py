"""Executors in processes of their own: the tasks have the code, the database driver and the dsn, and it all adds up."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed
from connectors.postgres.sink import SMALL_WINDOW_BYTES
from tests.acceptance.commands import Database, Project, change, create_source, pipeline, source_rows

OWN_JVM = "executors are processes below its JVM"


@pytest.mark.timeout(900)
def test_a_run_on_two_executors(project: Project, database: Database, spark: SparkSession, delta_path: str) -> None:
    create_source(spark, delta_path)
    change(
        spark,
        delta_path,
        "insert into {t} select id, sha2(cast(id as string), 512), id / 4 from range(20000)",
        "insert into {t} select id, sha2(cast(id as string), 512), id / 4 from range(20000, 40000)",
        "delete from {t} where id % 2 = 0",
    )
    changes = ChangeFeed(spark, delta_path).log.commits(2, 3)
    assert sum(commit.change_bytes for commit in changes) > SMALL_WINDOW_BYTES, (
        "the window would not be copied by tasks"
    )
    project.write({"customers": pipeline(delta_path, start=1)}, rest="spark: {master: 'local-cluster[2,1,1024]'}")

    done = project.run("run", "--json")

    assert done.code == 0, done.err
    result = done.pipeline("customers")
    assert (result["position"], result["loaded_rows"], result["windows"]) == (3, 20_000, 1)
    assert (result["inserts"], result["deletes"]) == (10_000, 10_000)
    assert database.rows("public.customers") == source_rows(spark, delta_path, 3)
    verified = project.run("verify", "--json")
    assert verified.code == 0, verified.err
    assert verified.pipeline("customers")["target_rows"] == 20_000
