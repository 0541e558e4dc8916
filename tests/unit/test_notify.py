"""Messages about incidents: exact texts to a real web server and a real mail server, once for each incident."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from aiosmtpd.controller import Controller
from deltalake import write_deltalake

from cdf import Verification
from cdf.errors import BrakeStopped, CdfError, FeedNotEnabled, LeaseHeld, Paused, SinkError, SinkUnavailable
from cdf.sink import Controls, Pause
from infra.cli.main import main
from infra.config.load import load
from infra.config.models import Project, describe
from infra.diagnostics.status import PipelineStatus
from infra.monitoring.health import Incident, list_unjudged
from infra.monitoring.incidents import find_messages
from infra.monitoring.notifier import Notifier
from infra.monitoring.observers import observe

CONFIG = """
version: 1
connections:
  warehouse: {{kind: postgres, dsn: "postgresql://user:secret-4711@127.0.0.1:9/db?connect_timeout=1"}}
pipelines:
  customers:
    source: {{table: {table}, key: [id]}}
    sink: {{connection: warehouse, table: public.customers}}
notify: {notify}
"""
VERIFIED = Verification("customers", "t", 7, 9, 8, False, 1, 0, 2, 0, 0, 0, True, 1, 1, (), 0.3)
EQUAL = Verification("customers", "t", 8, 9, 9, True, 0, 0, 0, 0, 0, 0, True, 1, 0, (), 0.3)


class WebServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []
        self.status = 200
        self.hangs = False
        self.released = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.received.append((body["title"], body["message"]))
                if outer.hangs:
                    outer.released.wait(60)
                    return
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)

    def take(self) -> list[tuple[str, str]]:
        taken, self.received = self.received, []
        return taken


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


@pytest.fixture
def configured(tmp_path: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The target is unreachable: incidents are remembered in a file."""
    monkeypatch.setattr("infra.monitoring.memory._away_until", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return make_project(tmp_path, f"{{urls: ['json://127.0.0.1:{web.server_port}/hook-4711']}}")


def make_project(folder: Path, notify: str) -> Project:
    table = folder / "customers"
    if not table.exists():
        write_deltalake(str(table), pa.table({"id": [1], "name": ["Zaphod"]}))
    (folder / "deltarelay.yaml").write_text(CONFIG.format(table=table, notify=notify))
    return load(folder / "deltarelay.yaml", environ={})


def run(project: Project, error: CdfError | None, *, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """One command in a process of its own: a new observer."""
    with observe(project, ["customers"]) as observers:
        observers.begin("customers")
        observers.end("customers", error)


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the runs are judged: the target of these tests never answers."""
    monkeypatch.setattr(Notifier, "_check", lambda *_: None)


def test_one_message_when_an_incident_begins_and_one_when_it_is_over(
    configured: Project, web: WebServer, healthy: None
) -> None:
    for _ in range(3):
        run(configured, SinkUnavailable("cannot connect to PostgreSQL at 127.0.0.1:9"))
    begun = [("deltarelay: customers: unreachable", "cannot connect to PostgreSQL at 127.0.0.1:9")]
    assert web.take() == begun
    for error in (LeaseHeld("held"), Paused("paused")):  # they say nothing about it
        run(configured, error)
    assert web.take() == []
    run(configured, None)
    ((title, text),) = web.take()
    assert title == "deltarelay: customers: unreachable is over"
    assert text.startswith("since 20")
    assert text.endswith(" UTC: cannot connect to PostgreSQL at 127.0.0.1:9")
    run(configured, None)
    assert web.take() == []
    run(configured, SinkUnavailable("cannot connect to PostgreSQL at 127.0.0.1:9"))
    assert web.take() == begun  # another incident


def test_kinds_follow_from_the_error(configured: Project, web: WebServer, healthy: None) -> None:
    run(configured, BrakeStopped("the window 2..3 would delete 9 of 10 rows"))
    run(configured, FeedNotEnabled("column 'a' was dropped"))
    assert [title for title, _ in web.take()] == [
        "deltarelay: customers: stopped by brake",
        "deltarelay: customers: failed",
    ]


def test_only_a_success_ends_the_incidents_of_runs(configured: Project, web: WebServer, healthy: None) -> None:
    returned = SinkError("a row of an erased person came back")
    returned.code = "erased_person_returned"  # type: ignore[misc]
    run(configured, returned)
    run(configured, SinkUnavailable("no answer"))
    assert [title for title, _ in web.take()] == [
        "deltarelay: customers: person returned",
        "deltarelay: customers: unreachable",
    ]
    run(configured, None)
    assert {title for title, _ in web.take()} == {
        "deltarelay: customers: person returned is over",
        "deltarelay: customers: unreachable is over",
    }


def test_verify_reports_a_difference_and_its_end_and_no_run_closes_it(
    configured: Project, web: WebServer, healthy: None
) -> None:
    def verify(found: Verification) -> None:
        with observe(configured, ["customers"]) as observers:
            observers.record_verification("customers", found)

    verify(VERIFIED)
    verify(VERIFIED)
    run(configured, None)
    text = "at version 7 the target differs from its source: 1 missing, 0 extra, 2 different"
    assert web.take() == [("deltarelay: customers: verify difference", text)]
    verify(EQUAL)
    assert [title for title, _ in web.take()] == ["deltarelay: customers: verify difference is over"]


def test_the_status_is_judged_after_each_run_and_by_a_follower(
    configured: Project, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.monitoring.notifier.CHECK_SECONDS", 0.05)
    for _ in range(2):  # the second one is the follower after a restart
        with observe(configured, ["customers"]) as observers:
            observers.begin("customers", lambda: None)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline and not web.received:
                time.sleep(0.01)
    ((title, text),) = web.take()
    assert title == "deltarelay: customers: unreachable"
    assert "127.0.0.1:9" in text  # the control: what is in the message would be found
    assert "Zaphod" not in text
    assert "secret-4711" not in text


def test_checks_do_not_pile_up_and_the_message_about_a_run_goes_first(
    configured: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.monitoring.notifier.CHECK_SECONDS", 0.001)
    done: list[str] = []
    running, release = threading.Event(), threading.Event()

    def check(_: Notifier, pipeline: str) -> None:
        done.append(f"check {pipeline}")
        running.set()
        release.wait(30)

    monkeypatch.setattr(Notifier, "_check", check)
    monkeypatch.setattr(Notifier, "_submit_evidence", lambda *_: None)
    monkeypatch.setattr(Notifier, "_report", lambda _, pipeline, *__, **___: done.append(f"report {pipeline}"))
    assert configured.notify is not None
    notifier = Notifier(configured, configured.notify)
    notifier.begin("customers", lambda: None)
    assert running.wait(10)
    time.sleep(0.2)  # a hundred intervals
    notifier.end("another", SinkUnavailable("no answer"))
    threading.Timer(0.2, release.set).start()
    notifier.close()
    # The check of what is still followed is dropped; the one after the failed run is not
    assert done == ["check customers", "report another", "check another"]


def test_one_thread_checks_however_often_pipelines_begin(configured: Project, healthy: None) -> None:
    assert configured.notify is not None
    notifier = Notifier(configured, configured.notify)
    before = [one for one in threading.enumerate() if one.name == "notify-check"]
    for _ in range(3):
        notifier.begin("customers", lambda: None)
        notifier.end("customers", None)
    begun = [one for one in threading.enumerate() if one.name == "notify-check" and one not in before]
    notifier.close()
    assert len(begun) == 1


def test_a_message_that_no_address_took_is_sent_again(configured: Project, web: WebServer, healthy: None) -> None:
    web.status = 500
    run(configured, SinkUnavailable("no answer"))
    web.status = 200
    run(configured, SinkUnavailable("no answer"))
    run(configured, SinkUnavailable("no answer"))
    assert web.take() == [("deltarelay: customers: unreachable", "no answer")] * 2


def test_a_server_that_never_answers_delays_the_end_by_some_seconds_only(
    configured: Project, web: WebServer, healthy: None
) -> None:
    web.hangs = True
    began = time.monotonic()
    with observe(configured, ["customers"]) as observers:
        for _ in range(100):
            observers.begin("customers")
            observers.end("customers", SinkUnavailable("no answer"))
        replicated = time.monotonic() - began
    assert replicated < 4  # one request that is waited for takes as long
    assert time.monotonic() - began < 60  # each of 100 messages takes 4 s
    assert web.received


def test_a_target_that_accepts_and_never_answers_does_not_keep_the_message_back(
    configured: Project, tmp_path: Path, web: WebServer, healthy: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = tmp_path / "deltarelay.yaml"
        address = f"127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=30"
        config.write_text(config.read_text().replace("127.0.0.1:9/db?connect_timeout=1", address))
        project = load(config, environ={})
        for _ in range(2):
            began = time.monotonic()
            run(project, SinkUnavailable("no answer"))
            assert time.monotonic() - began < 9
    assert web.take() == [("deltarelay: customers: unreachable", "no answer")]


def test_only_the_configured_kinds_are_sent(tmp_path: Path, web: WebServer, healthy: None, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = make_project(tmp_path, f"{{urls: ['json://127.0.0.1:{web.server_port}'], kinds: [failed]}}")
    run(project, SinkUnavailable("no answer"))
    run(project, FeedNotEnabled("column 'a' was dropped"))
    assert [title for title, _ in web.take()] == ["deltarelay: customers: failed"]


def test_while_a_pipeline_cannot_be_read_its_other_incidents_are_not_over() -> None:
    entry = {"at": "2026-01-01T00:00:00+00:00", "text": "3 rows are dead letters", "origin": "status"}
    now, down = dt.datetime(2026, 1, 2, tzinfo=dt.UTC), [Incident("unreachable", "no answer")]

    def titles(unjudged: Sequence[str]) -> Sequence[str]:
        kinds = ("unreachable", "dead_letters")
        found = find_messages("p", {"dead_letters": entry}, down, "status", kinds, now, unjudged=unjudged)
        return [one.title for one in found]

    assert titles(list_unjudged(PipelineStatus("p", "t", "unreachable", code="x"))) == ["deltarelay: p: unreachable"]
    assert titles(()) == ["deltarelay: p: dead letters is over", "deltarelay: p: unreachable"]


def test_a_pause_ends_no_incident_that_it_hides_and_the_next_success_does(
    configured: Project, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = dt.datetime.now(dt.UTC)
    behind = PipelineStatus("customers", "t", "stuck", position=1, latest_version=2, lag_versions=1, dead_letters=3)
    paused = Controls(paused=Pause(now, "maria", "migration"))
    for status in (
        behind,
        replace(behind, state="paused", controls=paused, dead_letters=0),
        behind,  # resumed, and nothing has changed
        replace(behind, state="up_to_date", lag_versions=0),
    ):
        monkeypatch.setattr("infra.monitoring.notifier.read_pipeline_status", lambda *_, one=status, **__: one)
        run(configured, None)
    assert [title for title, _ in web.take()] == [
        "deltarelay: customers: stuck",
        "deltarelay: customers: dead letters",
        "deltarelay: customers: dead letters is over",  # a pause does not hide these
        "deltarelay: customers: dead letters",
        "deltarelay: customers: stuck is over",
    ]


def test_a_run_that_finds_a_pause_still_judges_what_a_pause_does_not_stop(
    configured: Project, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = PipelineStatus("customers", "t", "paused", position=1, latest_version=2, feed_files_days=1.5)
    monkeypatch.setattr("infra.monitoring.notifier.read_pipeline_status", lambda *_, **__: paused)
    run(configured, LeaseHeld("held"))  # another runner judges it
    assert web.take() == []
    for _ in range(2):
        run(configured, Paused("paused"))
    assert [title for title, _ in web.take()] == ["deltarelay: customers: feed expiring"]


@pytest.mark.parametrize(("max_age", "titles"), [("1h", []), ("0.000001s", ["deltarelay: customers: stale"])])
def test_the_first_success_is_missed_only_after_the_maximum_age(
    tmp_path: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch, max_age: str, titles: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    empty = PipelineStatus("customers", "t", "empty", latest_version=2)
    monkeypatch.setattr("infra.monitoring.notifier.read_pipeline_status", lambda *_, **__: empty)
    project = make_project(
        tmp_path, f"{{urls: ['json://127.0.0.1:{web.server_port}'], max_age: {max_age}, kinds: [stale]}}"
    )
    run(project, SinkUnavailable("no answer"))
    assert [title for title, _ in web.take()] == titles


class Keys:
    """In place of the thread: which checks are submitted, each with what it would judge."""

    def __init__(self) -> None:
        self.submitted: dict[str, Any] = {}

    def submit_latest(self, key: str, task: Any) -> None:
        self.submitted[key] = task


def submit_evidence(
    configured: Project, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], submit: Callable[[Notifier], None]
) -> Keys:
    """The trail ``register`` has anchors, and there is a register of erasures."""
    assert configured.notify is not None
    keys = Keys()
    monkeypatch.setattr("infra.monitoring.notifier.has_anchors", lambda *_: True)
    notifier = Notifier(configured, configured.notify.model_copy(update=changes))
    monkeypatch.setattr(notifier, "_project", SimpleNamespace(erasure=True))
    monkeypatch.setattr(notifier, "_evidence", keys)
    submit(notifier)
    return keys


def test_a_pipeline_may_be_named_register(configured: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = submit_evidence(configured, monkeypatch, {}, lambda notifier: notifier._submit_evidence("register"))
    assert list(keys.submitted) == ["trail of register", "register"]


@pytest.mark.parametrize(
    ("changes", "submitted"),
    [({}, ["register"]), ({"kinds": ("failed",)}, []), ({"max_overdue_erasures": None}, [])],
)
def test_an_erasure_run_judges_the_register_if_that_is_configured(
    configured: Project, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], submitted: list[str]
) -> None:
    report: Any = None
    keys = submit_evidence(configured, monkeypatch, changes, lambda notifier: notifier.record_erasure(report))
    assert list(keys.submitted) == submitted


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[Message] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"


def test_the_command_sends_to_each_address_and_names_those_that_failed_without_their_secrets(
    tmp_path: Path, web: WebServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        mail = f"mailto://127.0.0.1:{port}?from=relay@example.com&to=oncall@example.com&mode=insecure"
        urls = (
            f"['json://127.0.0.1:{web.server_port}/hook-4711', '{mail}', 'json://me:secret-4711@127.0.0.1:9/hook-4712']"
        )
        make_project(tmp_path, f"{{urls: {urls}}}")
        with pytest.raises(SystemExit) as left:
            main(["notify", "test", "--config", str(tmp_path / "deltarelay.yaml")])
    finally:
        controller.stop()
    printed = capsys.readouterr()
    assert left.value.code == 1
    lines = printed.out.splitlines()
    assert lines[:2] == ["address 1 (json): sent", "address 2 (mailto): sent"]
    assert lines[2].startswith("address 3 (json): not sent: A Connection error occurred")
    for secret in ("4711", "4712", "me:", "127.0.0.1"):
        assert secret not in printed.out + printed.err
    text = "This is a test. Incidents of pipelines are sent to this address."
    assert web.take() == [("deltarelay: test", text)]
    (mail_sent,) = mailbox.mails
    assert mail_sent["Subject"] == "deltarelay: test"
    assert text in str(mail_sent.get_payload(0) if mail_sent.is_multipart() else mail_sent.get_payload())


@pytest.mark.parametrize(
    ("notify", "message"),
    [
        ("{urls: []}", "notify.urls"),
        ("{urls: ['json://h'], kinds: [broken]}", "notify.kinds"),
        ("{urls: ['json://h'], max_lag: 15}", "notify.max_lag"),
        ("{}", "notify.urls: is missing"),
    ],
)
def test_wrong_settings_are_refused_with_line_and_column(tmp_path: Path, notify: str, message: str) -> None:
    with pytest.raises(CdfError, match=r"deltarelay\.yaml:9:") as refused:
        make_project(tmp_path, notify)
    assert message in str(refused.value)


def test_an_address_that_apprise_does_not_know_is_refused_and_all_are_masked(tmp_path: Path) -> None:
    project = make_project(tmp_path, "{urls: ['json://h/hook-4711', 'nonsense://secret-4711']}")
    with (
        pytest.raises(CdfError, match=r"address 2 \(nonsense\) is not one that Apprise can use") as refused,
        observe(project, ["customers"]),
    ):
        pass
    shown = str(refused.value) + json.dumps(describe(project)) + repr(project)
    assert "4711" not in shown
    assert describe(project)["notify"]["urls"] == ["***", "***"]
