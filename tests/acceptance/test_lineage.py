"""OpenLineage events of `run`, `run --follow` and `verify`, with a real table and PostgreSQL."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.commands import Database, Project, change, create_source, pipeline
from tests.acceptance.in_process import Command, here
from tests.fixtures.openlineage import check_event, read_events

__all__ = ["here"]

KEY = "geheim-4711-lineage-key"


def write_project(project: Project, spark: SparkSession, transport: str) -> str:
    path = str(project.folder / "source")
    create_source(spark, path)
    change(
        spark,
        path,
        "alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')",
        "insert into {t} values (1, 'Zaphod-4711', 1), (2, 'b', 2)",
    )
    sink = {"connection": "warehouse", "table": "public.customers", "exclude": ["amount"], "rename": {"id": "number"}}
    project.write(
        {"customers": {**pipeline(path), "sink": sink}}, rest=f"lineage: {{namespace: prod, transport: {transport}}}"
    )
    return path


def summarize(event: dict[str, Any]) -> tuple[str, str]:
    return event["eventType"], event["job"]["name"]


def test_load_windows_and_verify_are_recorded_with_versions_columns_and_rows(
    project: Project, database: Database, spark: SparkSession, here: Command
) -> None:
    path = write_project(project, spark, "{kind: file, path: events.json}")
    file = project.folder / "events.json"
    assert here("run").code == 0
    events = read_events(file)
    assert [summarize(one) for one in events] == [
        ("START", "customers"),
        ("START", "customers.load"),
        ("COMPLETE", "customers.load"),
        ("COMPLETE", "customers"),
    ]
    run, _, load, _ = events
    assert {one["job"]["namespace"] for one in events} == {"prod"}
    assert load["run"]["facets"]["parent"]["run"]["runId"] == run["run"]["runId"] == events[3]["run"]["runId"]
    assert load["run"]["runId"] != run["run"]["runId"]
    (source,), (target,) = load["inputs"], load["outputs"]
    assert (source["namespace"], source["name"]) == ("file", path)
    assert source["facets"]["version"]["datasetVersion"] == "2"
    assert [(one["name"], one["type"]) for one in source["facets"]["schema"]["fields"]] == [
        ("id", "long"),
        ("name", "string"),
        ("amount", "decimal(10,2)"),
    ]
    server = database.connection.info
    assert target["namespace"] in {f"postgres://{host}:{server.port}" for host in (server.host, "localhost")}
    assert target["name"] == f"{server.dbname}.public.customers"
    assert [one["name"] for one in target["facets"]["schema"]["fields"]] == ["number", "name"]
    assert lineage(target) == {"number": ["id"], "name": ["name"]}
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 2

    change(
        spark,
        path,
        "update {t} set name = 'Zaphod-4712' where id = 1",
        "alter table {t} rename column name to full_name",
        "delete from {t} where id = 2",
    )
    assert here("run").code == 0
    windows = [one for one in read_events(file)[4:] if summarize(one) == ("COMPLETE", "customers.window")]
    ranges = [one["inputs"][0]["inputFacets"]["deltarelay_versions"] for one in windows]
    assert (ranges[0]["first"], ranges[-1]["last"]) == (3, 5)
    assert [b["first"] for b in ranges[1:]] == [a["last"] + 1 for a in ranges[:-1]]  # no version is left out
    renamed = [lineage(one["outputs"][0]) for one in windows]
    assert {"number": ["id"], "full_name": ["full_name", "name"]} in renamed
    changes = [one["outputs"][0]["outputFacets"]["deltarelay_changes"] for one in windows]
    assert [sum(one[kind] for one in changes) for kind in ("inserts", "updates", "deletes")] == [0, 1, 1]

    assert here("verify").code == 0
    (verified,) = [one for one in read_events(file) if summarize(one) == ("COMPLETE", "customers.verify")]
    source, target = verified["inputs"]
    assert source["facets"]["version"]["datasetVersion"] == "5"
    assert target["inputFacets"]["dataQualityAssertions"]["assertions"] == [
        {"assertion": "equal_to_source", "success": True, "params": {}}
    ]
    text = file.read_text()
    assert "full_name" in text  # the control: what is in the events would be found
    assert "Zaphod" not in text
    assert database.password not in text


def lineage(dataset: dict[str, Any]) -> dict[str, list[str]]:
    fields = dataset["facets"]["columnLineage"]["fields"]
    return {name: [one["field"] for one in found["inputFields"]] for name, found in fields.items()}


def test_a_follower_that_is_killed_is_closed_by_the_next_runner_and_a_failed_run_says_why(
    project: Project, database: Database, spark: SparkSession
) -> None:
    path = write_project(project, spark, "{kind: file, path: events.json}")
    file = project.folder / "events.json"
    running = project.start("run", "--follow", own_jvm="it is killed")
    running.until(lambda: ("COMPLETE", "customers.load") in map(summarize, read_events(file)), "the load is recorded")
    running.kill()
    database.no_backends()
    (died,) = [one for one in read_events(file) if summarize(one) == ("START", "customers")]
    assert [one for one in read_events(file) if one["run"]["runId"] == died["run"]["runId"]] == [died]

    follower = project.start("run", "--follow", own_jvm="it follows")
    # Nothing new to apply: it is closed all the same
    follower.until(lambda: ("ABORT", "customers") in map(summarize, read_events(file)), "the dead run is closed")
    follower.interrupt()
    assert follower.done().code == 0
    events = read_events(file)
    ends = [(one["run"]["runId"], one["eventType"]) for one in events if one["job"]["name"] == "customers"]
    lived = next(id for id, _ in ends if id != died["run"]["runId"])
    assert ends == [
        (died["run"]["runId"], "START"),
        (lived, "START"),
        (died["run"]["runId"], "ABORT"),
        (lived, "COMPLETE"),
    ]
    assert database.value("select document->'monitoring'->'lineage' from deltarelay.controls") == {}

    database.query("alter table public.customers drop column name")
    change(spark, path, "update {t} set name = 'Zaphod-4712' where id = 1")
    assert project.run("run", "--retry-seconds", "0").code != 0
    failed = read_events(file)[-1]
    assert summarize(failed) == ("FAIL", "customers")
    assert failed["run"]["facets"]["errorMessage"]["message"] != ""
    assert "Zaphod" not in file.read_text()


@contextmanager
def serve(answer: bool) -> Iterator[tuple[str, list[tuple[str, str | None, Any]]]]:
    """A server of the API. Without ``answer`` it takes each request and never answers. → its address, what it got"""
    received: list[tuple[str, str | None, Any]] = []
    released = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, self.headers["Authorization"], json.loads(body)))
            if not answer:
                released.wait(60)
                return
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            released.set()
            server.shutdown()


def test_events_go_to_a_server_with_the_key_which_is_shown_nowhere(
    project: Project, spark: SparkSession, here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINEAGE_KEY", KEY)
    with serve(answer=True) as (url, received):
        write_project(project, spark, f"{{kind: http, url: '{url}', api_key: '${{LINEAGE_KEY}}'}}")
        done = here("run", "--verbose")
    assert done.code == 0, done.err
    assert [(path, key) for path, key, _ in received] == [("/api/v1/lineage", f"Bearer {KEY}")] * 4
    for _, _, event in received:
        check_event(event)
    assert KEY not in done.out + done.err + "".join(json.dumps(event) for _, _, event in received)


def test_a_server_that_never_answers_neither_stops_nor_delays_the_run_and_gets_the_end_later(
    project: Project, database: Database, spark: SparkSession, here: Command
) -> None:
    with serve(answer=False) as (url, received):
        path = write_project(project, spark, f"{{kind: http, url: '{url}'}}")
        began = time.monotonic()
        done = here("run", "--json")
        seconds = time.monotonic() - began
    assert (done.code, database.position()) == (0, 2)
    assert done.document["result"]["pipelines"][0]["seconds"] + 15 > seconds
    assert [summarize(event) for _, _, event in received] == [("START", "customers")]
    ((run,),) = database.query("select jsonb_object_keys(document->'monitoring'->'lineage') from deltarelay.controls")

    text = project.config.read_text()
    project.config.write_text(
        text[: text.index("lineage:")] + "lineage: {transport: {kind: file, path: events.json}}\n"
    )
    change(spark, path, "delete from {t} where id = 2")
    assert here("run").code == 0
    ends = [(one["eventType"], one["run"]["runId"]) for one in read_events(project.folder / "events.json")]
    assert ("COMPLETE", run) in ends  # it had succeeded, and its end was not sent
    assert database.value("select document->'monitoring'->'lineage' from deltarelay.controls") == {}


def test_without_the_block_nothing_is_written(project: Project, spark: SparkSession, here: Command) -> None:
    path = write_project(project, spark, "{kind: file, path: events.json}")
    project.write({"customers": pipeline(path)})
    assert here("run").code == 0
    assert not Path(project.folder / "events.json").exists()
