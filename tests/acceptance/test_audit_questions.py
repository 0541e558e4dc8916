"""A trail is asked on the command line: what is printed, and what never is."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from connectors.delta_audit.sink import DeltaAuditSink
from connectors.postgres.sink import PostgresSink
from tests.acceptance.commands import Database, Project, change, create_source, pipeline
from tests.acceptance.in_process import Command, here

__all__ = ["here"]  # a fixture

NAME = "Canary-Ann-4711"
TARGET = "public.customers"


@pytest.fixture(scope="module")
def trailed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A source at version 3, and the folder with its trail."""
    folder = tmp_path_factory.mktemp("trailed")
    source = str(folder / "source")
    create_source(spark, source, "id bigint, name string, version decimal(10,2)")
    change(
        spark,
        source,
        f"insert into {{t}} values (1, '{NAME}', 1.5), (2, '=2+3', null)",
        "update {t} set version = 0 where id = 1",
        "delete from {t} where id = 2",
    )
    sink = DeltaAuditSink(str(folder / "audit" / "customers"), spark=spark)
    Pipeline(ChangeFeed(spark, source), sink, key=["id"], start="earliest").run()
    return source, folder / "audit"


def configure(project: Project, trailed: tuple[str, Path]) -> None:
    source, audit = trailed
    project.write(
        {
            "trail": pipeline(source, connection="trail", table="customers"),
            "replica": pipeline(source, table=TARGET),
            "elsewhere": pipeline(source + "-other", table="public.others"),
        },
        connections=f"  trail: {json.dumps({'kind': 'delta_audit', 'path': str(audit)})}",
    )


def test_has_every_sink_this_change(
    project: Project, here: Command, database: Database, spark: SparkSession, trailed: tuple[str, Path]
) -> None:
    configure(project, trailed)
    Pipeline(ChangeFeed(spark, trailed[0]), PostgresSink(database.dsn, table=TARGET), key=["id"], start=1).run(2)

    behind = project.run("audit", "sinks", "trail", "--json")
    assert (behind.code, behind.document["ok"]) == (3, False)
    result = behind.document["result"]
    assert (result["version"], result["source"]) == (3, trailed[0])
    assert [(one["pipeline"], one["kind"], one["position"], one["has"]) for one in result["sinks"]] == [
        ("trail", "delta_audit", 3, True),
        ("replica", "postgres", 2, False),
    ]
    reached = here("audit", "sinks", "trail", "--version", "2")
    assert reached.code == 0, reached.err
    assert "NO" not in reached.out
    beyond = here("audit", "sinks", "trail", "--version", "4", "--json")
    assert [one["has"] for one in beyond.document["result"]["sinks"]] == [False, False]

    project.write(
        {
            "trail": pipeline(trailed[0], connection="trail", table="customers"),
            "replica": pipeline(trailed[0], connection="down"),
        },
        connections=f"  trail: {json.dumps({'kind': 'delta_audit', 'path': str(trailed[1])})}\n"
        "  down: {kind: postgres, dsn: 'host=127.0.0.1 port=1 dbname=none'}",
    )
    unknown = here("audit", "sinks", "trail", "--json")
    assert unknown.code == 1
    assert [(one["has"], bool(one["error"])) for one in unknown.document["result"]["sinks"]] == [
        (True, False),
        (None, True),
    ]


def test_the_questions_are_listed_without_a_jvm(project: Project, here: Command, trailed: tuple[str, Path]) -> None:
    configure(project, trailed)
    listed = project.run("audit", "queries", "--json", environment={"JAVA_HOME": "/nowhere", "PATH": "/nowhere"})
    assert listed.code == 0, listed.err
    queries = {one["name"]: one for one in listed.document["result"]["queries"]}
    assert queries["history"]["parameters"] == ["record"]
    assert {name for name, one in queries.items() if one["shows_values"]} == {
        "history", "record-as-of", "as-of", "diff", "column-changes", "deletes", "events-of",
    }  # fmt: skip
    unknown = here("audit", "query", "everything", "-p", "trail")
    assert unknown.code == 2
    assert "history" in unknown.err
    for words in (("--param", NAME), ("--param", f"record={NAME}"), ("--param", f"wrong={NAME}")):
        refused = here("audit", "query", "history", "-p", "trail", *words)
        assert refused.code == 2
        assert NAME not in refused.err + refused.out


def test_a_trail_is_asked(project: Project, here: Command, trailed: tuple[str, Path]) -> None:
    configure(project, trailed)
    history = project.run("audit", "history", "trail", "--key", "id=1", "--format", "json")
    assert history.code == 0, history.err
    rows = history.document["result"]["rows"]
    assert [(row["version"], row["change_type"], row["row.version"]) for row in rows] == [
        (1, "insert", "1.50"),
        (2, "update_preimage", "1.50"),
        (2, "update_postimage", "0.00"),
    ]
    assert {row["row.name"] for row in rows} == {NAME}
    assert NAME not in history.err

    refused = here("audit", "history", "trail", "--key", f"id={NAME}")
    assert refused.code == 2
    assert "bigint" in refused.err
    assert NAME not in refused.err + refused.out

    deletes = here("audit", "query", "deletes", "-p", "trail", "--format", "csv")
    assert [
        (row["version"], row["row.name"], row["row.version"]) for row in csv.DictReader(io.StringIO(deletes.out))
    ] == [("3", "'=2+3", "")]
    table = here("audit", "as-of", "trail", "1")
    assert [line.split() for line in table.out.splitlines()] == [
        ["id", "name", "version"], ["1", NAME, "1.50"], ["2", "=2+3", "-"],
    ]  # fmt: skip
    outside = here("audit", "as-of", "trail", "4")
    assert outside.code == 2
    assert "to version 3" in outside.err

    different = here("audit", "diff", "trail", "2", "3", "--format", "html")
    assert "<th>key.id</th><th>before.id</th>" in different.out
    assert "<td>removed</td><td>2</td>" in different.out
    who = here("audit", "who", "trail", "--column", "version", "--format", "json")
    assert [(row["key.id"], row["old_value"], row["new_value"]) for row in who.document["result"]["rows"]] == [
        (1, "1.50", "0.00")
    ]
    view = project.run(
        "audit", "sql", "trail", "--for", "duckdb", environment={"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    )
    assert (view.code, view.err) == (0, "")
    assert len(view.out.splitlines()) > 10
    assert f"delta_scan('{trailed[1]}/customers/events')" in view.out
    assert 'as "row.version"' in view.out

    logs = [*(project.folder / "tmp").rglob("*.log")]
    assert [log.name for log in logs if NAME in log.read_text(errors="replace")] == []
