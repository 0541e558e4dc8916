"""A log that machines read: nothing but JSON lines on stderr, and no row in it, also where a window fails."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, change, create_source, pipeline

ROW = "canary-row-4711"


def test_a_window_that_fails_leaves_no_row_in_the_log(
    project: Project, database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    for path in (good, bad):
        create_source(spark, path)
        change(spark, path, f"insert into {{t}} values (4711, '{ROW}', 1)")
    project.write({"bad": pipeline(bad, table="public.bad"), "good": pipeline(good, table="public.good")})
    as_json = {"DELTARELAY_LOG_FORMAT": "json"}
    assert project.run("run", environment=as_json).code == 0

    change(spark, bad, f"update {{t}} set name = concat('{ROW}', char(0)) where id = 4711")
    change(spark, good, f"insert into {{t}} values (4712, '{ROW} too', 2)")
    done = project.run("run", environment=as_json)
    assert done.code == 1
    assert database.rows("public.good")[1][1] == f"{ROW} too"  # the row was there to be told
    said = [json.loads(line) for line in done.err.splitlines()]
    assert "4711" not in done.err
    assert len({line["run"] for line in said}) == 1
    (failed,) = [line for line in said if line["level"] == "error"]
    assert (failed["pipeline"], failed["code"]) == ("bad", "row_rejected")
    taken = [line["target"] for line in said if line["event"] == "lease taken"]
    assert sorted(taken) == ["public.bad", "public.good"]  # the two run side by side: either may be first
