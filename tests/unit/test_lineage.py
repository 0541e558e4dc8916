"""Lineage events of one process after the other; the target is unreachable, so runs are remembered in a file."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdf.errors import Interrupted, LeaseHeld, SinkUnavailable
from cdf.results import Conflicts, Followed, Step
from cdf.sink import Applied
from connectors.dataset_names import split_address
from infra.config.load import load
from infra.config.models import Project, describe
from infra.monitoring.lineage import LineageObserver
from infra.monitoring.lineage_events import EventFactory, create_run_id
from infra.monitoring.lineage_transport import Sender, build_transport
from infra.monitoring.memory import Memory
from infra.monitoring.observers import observe
from tests.fixtures.openlineage import read_events

CONFIG = """
version: 1
connections:
  warehouse: {{kind: postgres, dsn: "postgresql://user:secret-4711@127.0.0.1:9/db?connect_timeout=1"}}
  events: {{kind: kafka, bootstrap_servers: "localhost:9"}}
pipelines:
  customers:
    source: {{table: {table}, key: [id]}}
    sink: {{connection: warehouse, table: public.customers}}
lineage: {lineage}
"""


def make_project(folder: Path, lineage: str = "{transport: {kind: file, path: events.json}}") -> Project:
    table = folder / "customers"
    if not table.exists():
        write_deltalake(str(table), pa.table({"id": [1], "name": ["Zaphod"]}))
    config = folder / "deltarelay.yaml"
    config.write_text(CONFIG.format(table=table, lineage=lineage))
    return load(config, environ={"KEY": "key-4711"})


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("infra.monitoring.memory._away_until", {})
    return make_project(tmp_path)


def create_observer(project: Project) -> LineageObserver:
    assert project.lineage is not None
    return LineageObserver(project, project.lineage)


def list_ends(folder: Path) -> list[tuple[str, str]]:
    return [(one["eventType"], one["run"]["runId"]) for one in read_events(folder / "events.json")]


STEP = Step("load", 0, 0, 0, Applied(0, inserts=1, seconds={"copy": 2.0}))


def test_a_run_that_died_is_closed_once_by_the_next_one_that_has_the_lease(configured: Project, tmp_path: Path) -> None:
    died = create_observer(configured)
    died.begin("customers", None)
    died.record_step("customers", STEP)
    died._background.close(10)  # the process is killed: nothing of it runs any more
    (_, dead), *_ = list_ends(tmp_path)

    other = create_observer(configured)  # it finds that another process has the lease, so the first one may be alive
    other.begin("customers", None)
    other.end("customers", LeaseHeld("held"))
    other.close()
    assert [kind for kind, id in list_ends(tmp_path) if id == dead] == ["START"]

    for _ in range(2):
        successor = create_observer(configured)
        successor.begin("customers", None)
        successor.record_step("customers", STEP)
        successor.end("customers", None)
        successor.close()
    assert [kind for kind, id in list_ends(tmp_path) if id == dead] == ["START", "ABORT"]
    assert sorted(kind for kind, _ in list_ends(tmp_path)) == ["ABORT"] * 2 + ["COMPLETE"] * 5 + ["START"] * 7


def test_a_run_that_waits_for_the_lease_is_not_closed_by_the_one_that_has_it(
    configured: Project, tmp_path: Path
) -> None:
    waiting, holder = create_observer(configured), create_observer(configured)
    waiting.begin("customers", None)
    wait_for(tmp_path, 1)
    for one in (holder, waiting):  # one after the other
        if one is holder:
            one.begin("customers", None)
        one.record_step("customers", STEP)
        one.end("customers", None)
        one.close()
    ends = list_ends(tmp_path)
    assert [kind for kind, id in ends if id == ends[0][1]] == ["START", "COMPLETE"]


def wait_for(folder: Path, events: int) -> None:
    deadline = time.monotonic() + 10
    while not (folder / "events.json").exists() or len(list_ends(folder)) < events:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_while_the_receiver_is_away_twenty_runs_are_remembered_and_sent_afterwards(
    configured: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TimeoutError("no answer")

    def replicate() -> None:
        observer = create_observer(configured)
        observer.begin("customers", None)
        observer.record_step("customers", STEP)
        observer.end("customers", None)
        observer.close()

    with monkeypatch.context() as away:
        away.setattr(Sender, "send", refuse)
        for _ in range(25):
            replicate()
    memory = Memory(configured, "customers", "lineage")
    remembered = memory.change(lambda runs: runs)
    assert [run["event"] for run in remembered.values()] == ["COMPLETE"] * 20
    replicate()
    sent = list_ends(tmp_path)
    # One place is that of the run itself
    assert [id for kind, id in sent if kind == "COMPLETE" and id in remembered] == list(remembered)[1:]
    assert memory.change(lambda runs: runs) == {}


def test_what_was_sent_before_the_receiver_failed_is_forgotten(
    configured: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(configured, "customers", "lineage")
    runs = {create_run_id(): {"at": f"2026-01-0{day}T00:00:00+00:00", "event": "FAIL"} for day in (1, 2, 3)}
    memory.change(lambda _: runs)
    send = Sender.send

    def fail_later(sender: Sender, event: Any) -> None:
        if event.run.runId == list(runs)[1]:
            raise TimeoutError("no answer")
        send(sender, event)

    monkeypatch.setattr(Sender, "send", fail_later)
    observer = create_observer(configured)
    observer.begin("customers", None)
    observer.end("customers", None)
    observer.close()
    assert [id for kind, id in list_ends(tmp_path) if kind == "FAIL"] == list(runs)[:1]
    assert list(memory.change(lambda runs: runs)) == list(runs)[1:]


def test_the_step_of_a_follower_counts_its_changes(configured: Project, tmp_path: Path) -> None:
    step = Followed(
        "customers", "t", dt.datetime.now(dt.UTC), "load", 0, 0, 8, 6, 3.0, {"total": 2.0}, Conflicts(), 0, (), 0, 0,
        0, 0.0, None, None, None, inserts=3, updates=2, deletes=1,
    )  # fmt: skip
    observer = create_observer(configured)
    observer.begin("customers", lambda: None)
    observer.record_step("customers", step)
    observer.end("customers", None)
    observer.close()
    (ended,) = [one for one in read_events(tmp_path / "events.json") if one["job"]["name"] == "customers.load"][1:]
    facet = ended["outputs"][0]["outputFacets"]["deltarelay_changes"]
    assert (facet["inserts"], facet["updates"], facet["deletes"]) == (3, 2, 1)


def test_a_step_has_its_own_pair_of_events_with_its_duration_and_no_values(configured: Project, tmp_path: Path) -> None:
    observer = create_observer(configured)
    observer.begin("customers", None)
    observer.record_step("customers", STEP)
    observer.end("customers", None)
    observer.close()
    run, began, ended, _ = read_events(tmp_path / "events.json")
    assert began["job"] == ended["job"]
    assert (began["job"]["namespace"], began["job"]["name"]) == ("deltarelay", "customers.load")
    assert began["run"] == ended["run"]
    assert began["run"]["facets"]["parent"]["run"]["runId"] == run["run"]["runId"]
    times = [dt.datetime.fromisoformat(one["eventTime"]) for one in (began, ended)]
    assert (times[1] - times[0]).total_seconds() == 2.0
    (target,) = ended["outputs"]
    assert (target["namespace"], target["name"]) == ("postgres://127.0.0.1:9", "db.public.customers")
    text = (tmp_path / "events.json").read_text()
    assert "public.customers" in text  # the control
    assert "Zaphod" not in text
    assert "secret-4711" not in text


@pytest.mark.parametrize(
    ("error", "event"),
    [(None, "COMPLETE"), (SinkUnavailable("no answer"), "FAIL"), (Interrupted("interrupted"), "ABORT")],
)
def test_the_end_of_a_run_says_how_it_ended(
    configured: Project, tmp_path: Path, error: Interrupted | None, event: str
) -> None:
    observer = create_observer(configured)
    observer.begin("customers", None)
    observer.end("customers", error)
    observer.close()
    last = read_events(tmp_path / "events.json")[-1]
    assert last["eventType"] == event
    message = last["run"]["facets"].get("errorMessage", {}).get("message")
    assert message == ("no answer (sink_unavailable)" if event == "FAIL" else None)


def test_a_run_that_an_interrupt_ended_is_aborted_when_the_command_ends(configured: Project, tmp_path: Path) -> None:
    with observe(configured, ["customers"]) as observers:
        observers.begin("customers")
    assert [kind for kind, _ in list_ends(tmp_path)] == ["START", "ABORT"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/data/customers", ("file", "/data/customers")),
        ("s3a://lake/sales/orders", ("s3://lake", "sales/orders")),
        ("abfss://raw@account.dfs.core.windows.net/a/b", ("abfss://raw@account.dfs.core.windows.net", "a/b")),
        ("https://user:secret@host/a", ("https://host", "a")),
        ("hdfs://name:8020/data/a", ("hdfs://name:8020", "/data/a")),
    ],
)
def test_tables_have_the_names_of_the_standard_without_passwords(address: str, name: tuple[str, str]) -> None:
    assert split_address(address) == name


@pytest.mark.parametrize(
    ("lineage", "message"),
    [
        ("{transport: {kind: kafka, connection: warehouse, topic: t}}", "must be a connection of kind kafka"),
        ("{transport: {kind: kafka, connection: event, topic: t}}", "did you mean `events`?"),
        ("{transport: {kind: carrier}}", "lineage.transport.kind"),
        ("{transport: {kind: http, url: 'http://user:secret-4711@host'}}", "lineage.transport.url"),
        ("{}", "lineage.transport"),
    ],
)
def test_wrong_settings_are_refused_with_line_and_column(tmp_path: Path, lineage: str, message: str) -> None:
    with pytest.raises(Exception, match=r"deltarelay\.yaml:10:") as refused:
        make_project(tmp_path, lineage)
    assert message in str(refused.value)
    assert "secret-4711" not in str(refused.value)


def test_the_key_of_the_api_is_masked(tmp_path: Path) -> None:
    lineage = "{transport: {kind: http, url: 'https://host', api_key: '${KEY}'}}"
    project = make_project(tmp_path, lineage)
    assert "key-4711" not in json.dumps(describe(project)) + repr(project)
    assert describe(project)["lineage"]["transport"]["api_key"] == "***"


def test_kafka_takes_each_event_within_seconds_or_it_is_an_error(tmp_path: Path) -> None:
    """The client's own broker in memory is used instead of a cluster; nothing listens at the other address."""
    configured = make_project(tmp_path, "{transport: {kind: kafka, connection: events, topic: lineage}}")
    assert configured.lineage is not None
    config = tmp_path / "deltarelay.yaml"
    sender = Sender(build_transport(configured, configured.lineage))
    event = EventFactory("prod").build_event("START", dt.datetime.now(dt.UTC), "customers", create_run_id())
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="Kafka did not store the event"):
        sender.send(event)
    with pytest.raises(TimeoutError, match="an earlier event"):  # at once, without a request
        sender.send(event)
    assert time.monotonic() - began < 6

    client = 'bootstrap_servers: "localhost:9", client: {test.mock.num.brokers: 1}'
    config.write_text(config.read_text().replace('bootstrap_servers: "localhost:9"', client))
    alive = load(config, environ={})
    assert alive.lineage is not None
    Sender(build_transport(alive, alive.lineage)).send(event)
