"""``deltarelay run`` with nothing to apply: without Java, and with the same result as with Spark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Done, Project, change, create_source, pipeline
from tests.acceptance.in_process import Command, here

__all__ = ["here"]

NO_JAVA = {"PATH": "/nowhere", "JAVA_HOME": None}
WHY = "there is no Java on its PATH"
MONITORING = """
metrics: {{textfile: '{folder}/metrics.prom'}}
lineage: {{transport: {{kind: file, path: '{folder}/lineage.jsonl'}}}}
"""


def run_without_java(project: Project, *words: str) -> Done:
    return project.run(*words, environment=NO_JAVA, own_jvm=WHY)


def without_seconds(text: str) -> str:
    return re.sub(r" *\d+\.\d+", " S", text)


def without_times(done: Done) -> dict[str, Any]:
    document = done.document
    for one in document["result"]["pipelines"]:
        one.pop("seconds", None)
    return document


def recorded(database: Database) -> list[tuple[Any, ...]]:
    return database.query(
        "select (select count(*) from deltarelay.runs), p.version, p.owner, g.figures from deltarelay.position p "
        "join deltarelay.progress g on g.target = p.target order by p.target"
    )


def read_lineage(file: Path) -> list[tuple[str, str]]:
    events = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    return [(one["job"]["name"], one["eventType"]) for one in events]


def read_metrics(file: Path) -> list[str]:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    file.unlink()
    return sorted(re.sub(r"(last_success\S*|_created\S*) .*", r"\1", line) for line in lines)


def test_an_idle_run_needs_no_java_and_does_what_a_run_with_spark_does(
    project: Project, database: Database, spark: SparkSession, here: Command
) -> None:
    pipelines = {}
    for name in ("a", "b"):
        path = str(project.folder / name)
        create_source(spark, path)
        change(spark, path, "insert into {t} select id, 'a', 1 from range(10)")
        pipelines[name] = pipeline(path, table=f"public.{name}")
    project.write(pipelines, rest=MONITORING.format(folder=project.folder))
    assert here("run").code == 0
    metrics, lineage = project.folder / "metrics.prom", project.folder / "lineage.jsonl"
    read_lineage(lineage), read_metrics(metrics)

    seen = []
    for run in (here, lambda *words: run_without_java(project, *words)):
        database.query("update deltarelay.progress set figures = '{}'")
        before = database.epoch("public.a")
        found = run("run", "--json")
        assert found.code == 0, found.err
        text = run("run")
        assert text.code == 0, text.err
        assert database.epoch("public.a") == before + 2
        seen.append(
            (
                without_times(found),
                sorted(without_seconds(text.out).splitlines()),
                recorded(database),
                read_lineage(lineage),
                read_metrics(metrics),
            )
        )
    assert seen[1][0] == seen[0][0]
    assert seen[1][1] == seen[0][1]
    assert seen[1][2] == seen[0][2] == [(2, 1, None, {"pipeline": name, "run": "succeeded"}) for name in ("a", "b")]
    assert sorted(seen[1][3]) == sorted(seen[0][3])
    assert ("a", "COMPLETE") in seen[1][3]
    assert seen[1][4] == seen[0][4]
    assert 'deltarelay_state{pipeline="a",state="up_to_date"} 1.0' in seen[1][4]

    # Java is needed as soon as one pipeline has something to apply; the other one has run by then
    change(spark, str(project.folder / "b"), "delete from {t} where id = 1")
    refused = run_without_java(project, "run", "--json")
    assert (refused.code, refused.document["error"]["message"]) == (2, "Java is not installed, and Spark needs it")

    # A paused pipeline starts nothing either
    assert here("pause", "b", "--reason", "rebuild", "--by", "maria").code == 0
    paused = [here("run", "--json"), run_without_java(project, "run", "--json")]
    assert [one.code for one in paused] == [0, 0]
    assert without_times(paused[1]) == without_times(paused[0])
    assert "b is paused since" in paused[1].err
    assert (database.position("public.a"), database.position("public.b")) == (1, 1)
