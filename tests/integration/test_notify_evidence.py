"""Trails that are not anchored and overdue erasure requests: the limits of `status`, and messages to a real web server."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from audit.anchors.file import FileAnchor
from audit.erasure.model import Request
from audit.erasure.register.store import Register
from audit.proof import Checkpoint
from cdf.errors import Paused, SinkUnavailable
from infra.cli.main import main
from infra.config.models import Project
from infra.diagnostics.evidence import read_coverage
from infra.monitoring.notifier import Notifier
from infra.monitoring.observers import observe
from tests.fixtures.fix_postgres import Pg
from tests.integration.test_erasure_register import CANARY, KEYS
from tests.integration.test_metrics_evidence import SIGNER, TODAY, configure, write_ledger
from tests.unit.test_notify import WebServer, web

__all__ = ["web"]

NOWHERE = "postgresql://relay:secret-4711@127.0.0.1:1/x"
LONG_AGO = dt.timedelta(days=9)
Status = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only trails and the register are judged: the sources of these pipelines do not exist."""
    monkeypatch.setattr(Notifier, "_check", lambda *_: None)
    monkeypatch.setattr("infra.monitoring.memory._away_until", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "anchors").mkdir()


@pytest.fixture
def status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Status]:
    """→ exit code, the document, the lines without --json"""

    def call(*options: str) -> tuple[int, dict[str, Any], str]:
        config = ["--config", str(tmp_path / "deltarelay.yaml")]
        codes = []
        for more in (["--json"], []):
            capsys.readouterr()
            with pytest.raises(SystemExit) as left:
                main(["status", *config, *options, *more])
            codes.append(left.value.code)
            if more:
                document = json.loads(capsys.readouterr().out)
        assert codes[0] == codes[1]
        return int(codes[0] or 0), document, capsys.readouterr().out

    return call


def run(project: Project, pipelines: Sequence[str], error: Any = None) -> None:
    """One command in a process of its own: new observers."""
    with observe(project, pipelines) as observers:
        for name in pipelines:
            observers.begin(name)
            observers.end(name, error)


def add_requests(pg: Pg, dues: Sequence[int]) -> Register:
    """``dues``: days from today."""
    register = Register(pg.dsn, schema=pg.schema)
    register.prepare()
    received = TODAY - dt.timedelta(days=40)
    register.add(
        [
            Request(f"r{days}", "customer", {"email": CANARY}, received, TODAY + dt.timedelta(days), "basis", CANARY)
            for days in dues
        ],
        KEYS,
    )
    return register


def test_a_trail_that_is_not_anchored_sends_one_message_and_one_when_it_is(tmp_path: Path, web: WebServer) -> None:
    def configured(limit: str) -> Project:
        more = f"max_unanchored: {limit}, kinds: [not_anchored, unreachable]"
        notify = f"notify: {{urls: ['json://127.0.0.1:{web.server_port}'], {more}}}\n"
        return configure(tmp_path, NOWHERE, "deltarelay_erasure", rest=notify)

    configured("1h")
    origin = write_ledger(tmp_path, [0, None])
    FileAnchor(tmp_path / "anchors").publish(origin, SIGNER.sign(Checkpoint(origin, 2, bytes(32))))
    write_ledger(tmp_path, [0, None, None, 1, 2], age=LONG_AGO)
    time.sleep(0.05)
    # Old commits that were recorded just now, as in a first copy, are not late
    run(configured("1h"), ["people"])
    assert web.take() == []
    for error in (None, None):
        run(configured("0.01s"), ["people", "copy"], error)
    ((title, text),) = web.take()
    assert title == "deltarelay: trail of people: not anchored"
    assert text.startswith("2 commits are covered by no anchor, the oldest for ")
    ledger = tmp_path / "trails" / "people" / "ledger"
    shutil.move(ledger, tmp_path / "lost")  # a trail that is not there is not anchored
    run(configured("0.01s"), ["people"])
    assert web.take() == []
    shutil.move(tmp_path / "lost", ledger)
    anchors = tmp_path / "anchors"
    shutil.move(anchors, tmp_path / "away")  # unknown: neither over nor another incident of this kind
    for _ in range(2):
        run(configured("0.01s"), ["people"])
    missing = f"the anchor {anchors} cannot be used: no such directory"
    assert web.take() == [("deltarelay: trail of people: unreachable", missing)]
    shutil.move(tmp_path / "away", anchors)
    FileAnchor(anchors).publish(origin, SIGNER.sign(Checkpoint(origin, 5, bytes(32))))
    for _ in range(2):
        run(configured("0.01s"), ["people"])
    assert [title for title, _ in web.take()] == [
        "deltarelay: trail of people: not anchored is over",
        "deltarelay: trail of people: unreachable is over",
    ]


def test_overdue_requests_send_one_message_whichever_pipeline_runs_and_name_no_person(
    pg: Pg, tmp_path: Path, web: WebServer
) -> None:
    notify = f"notify: {{urls: ['json://127.0.0.1:{web.server_port}']}}\n"
    project = configure(tmp_path, pg.dsn, pg.schema, rest=notify)
    add_requests(pg, [-3, -1, 0, 2])
    for name in ("copy", "people", "copy"):
        run(project, [name])
    text = "2 requests are past their due date and not certified"
    assert web.received == [("deltarelay: erasure requests: erasure overdue", text)]
    pg.query("update {schema}.request set due = current_date + 1 returning id")
    run(project, ["people"])
    assert [title for title, _ in web.received[1:]] == ["deltarelay: erasure requests: erasure overdue is over"]
    run(project, ["copy"], Paused("paused"))
    with observe(project, ["copy"]) as observers:  # as after `erase run`
        observers.record_erasure(None)  # type: ignore[arg-type]
    assert len(web.received) == 2
    assert CANARY not in str(web.received)


def test_a_register_that_does_not_answer_is_no_overdue_request_and_delays_no_other_message(
    tmp_path: Path, web: WebServer
) -> None:
    notify = f"notify: {{urls: ['json://127.0.0.1:{web.server_port}']}}\n"
    project = configure(tmp_path, NOWHERE, "deltarelay_erasure", anchors=False, rest=notify)
    for _ in range(2):
        run(project, ["people"])
    text = "the erasure register deltarelay_erasure cannot be reached"
    assert web.take() == [("deltarelay: erasure requests: unreachable", text)]


def test_a_follower_looks_at_its_trail(tmp_path: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.monitoring.notifier.CHECK_SECONDS", 0.1)
    notify = f"notify: {{urls: ['json://127.0.0.1:{web.server_port}'], max_unanchored: 0.01s, kinds: [not_anchored]}}\n"
    project = configure(tmp_path, NOWHERE, "deltarelay_erasure", rest=notify)
    write_ledger(tmp_path, [0])
    done = threading.Event()
    with observe(project, ["people"]) as observers:
        observers.begin("people", lambda: None)
        deadline = time.monotonic() + 20
        while not web.received and time.monotonic() < deadline:
            done.wait(0.05)
        done.wait(0.5)
    assert [title for title, _ in web.take()] == ["deltarelay: trail of people: not anchored"]


def test_status_names_what_is_not_anchored_and_what_is_overdue(pg: Pg, tmp_path: Path, status: Status) -> None:
    configure(tmp_path, pg.dsn, pg.schema)
    write_ledger(tmp_path, [0, 1], age=LONG_AGO)
    for _ in range(2):
        write_deltalake(
            tmp_path / "lake" / "customers",
            pa.table({"id": [1], "name": [CANARY]}),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
        )
    register = add_requests(pg, [-3])
    code, document, shown = status("--max-unanchored", "0.01s", "--max-overdue-erasures", "0")
    assert code == 3
    people, copy = document["result"]["pipelines"]
    (incident,) = people["incidents"]
    assert incident["kind"] == "not_anchored"
    assert incident["text"].startswith("2 commits are covered by no anchor, the oldest for ")
    assert (people["state"], copy["state"], copy["incidents"]) == ("up_to_date", "empty", [])
    overdue = {"kind": "erasure_overdue", "text": "1 request is past its due date and not certified"}
    assert document["result"]["erasures"] == {"incidents": [overdue], "unread": None}
    assert "erasure requests: erasure overdue: 1 request is past its due date and not certified" in shown
    assert "people: not anchored: 2 commits are covered by no anchor" in shown
    assert CANARY not in shown + json.dumps(document)
    assert register.requests()[0].overdue

    code, document, shown = status("--max-unanchored", "1h", "--max-overdue-erasures", "1")
    assert code == 0
    assert "not anchored" not in shown
    assert document["result"]["erasures"] == {"incidents": [], "unread": None}

    shutil.rmtree(tmp_path / "anchors")
    code, document, shown = status("--max-unanchored", "0.01s")
    assert code == 75
    people, _ = document["result"]["pipelines"]
    assert people["incidents"] == []
    assert people["unread"]["code"] == "anchor_unavailable"
    assert f"people: unknown: the anchor {tmp_path / 'anchors'} cannot be used: no such directory" in shown


@pytest.mark.parametrize(
    ("option", "value", "rest"),
    [("--max-unanchored", "1h", "anchors"), ("--max-overdue-erasures", "0", "block `erasure`")],
)
def test_a_limit_that_nothing_can_exceed_is_refused(
    tmp_path: Path, option: str, value: str, rest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, NOWHERE, "deltarelay_erasure", anchors=False)
    config = tmp_path / "deltarelay.yaml"
    config.write_text(config.read_text().split("erasure:\n")[0])
    with pytest.raises(SystemExit) as left:
        main(["status", "--config", str(config), option, value])
    assert left.value.code == 2
    shown = capsys.readouterr().err
    assert option in shown
    assert rest in shown


def test_the_recording_of_a_commit_is_found_and_else_its_time(tmp_path: Path) -> None:
    project = configure(tmp_path, NOWHERE, "deltarelay_erasure")
    before = dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=1)
    write_ledger(tmp_path, [0], age=LONG_AGO)
    time.sleep(0.01)
    between = dt.datetime.now(dt.UTC)
    time.sleep(0.01)
    for versions in ([0, None], [0, None, 1], [0, None, 1, 2]):
        origin = write_ledger(tmp_path, versions, age=LONG_AGO)
    coverage = read_coverage(project, "people")
    assert coverage is not None
    assert coverage.unanchored_since is not None
    assert before < coverage.unanchored_since < between
    FileAnchor(tmp_path / "anchors").publish(origin, SIGNER.sign(Checkpoint(origin, 1, bytes(32))))
    coverage = read_coverage(project, "people")
    assert coverage is not None
    assert coverage.unanchored_since is not None
    assert coverage.unanchored_since > between


def test_a_history_that_cannot_be_read_is_an_error_and_read_only_if_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = configure(tmp_path, NOWHERE, "deltarelay_erasure")
    write_ledger(tmp_path, [0, None, 1])

    def fail(*_: object) -> None:
        raise DeltaError("planted")

    monkeypatch.setattr(DeltaTable, "history", fail)
    with pytest.raises(SinkUnavailable, match=r"cannot be read \(DeltaError\)"):
        read_coverage(project, "people")
    coverage = read_coverage(project, "people", with_time=False)
    assert coverage is not None
    assert (coverage.unanchored_commits, coverage.unanchored_since) == (2, None)
    (tmp_path / "anchors").rmdir()  # unknown which commits it covers
    coverage = read_coverage(project, "people")
    assert coverage is not None
    assert (len(coverage.failures), coverage.unanchored_since) == (1, None)
