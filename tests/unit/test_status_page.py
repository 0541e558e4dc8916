"""The status page without servers: order, selection, access, and what its pages may load."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.testclient import TestClient

from cdf.errors import ConfigError, SinkUnavailable
from cdf.sink import BrakeStop, Controls, Pause, RunRecord
from infra.config.limits import Limits
from infra.diagnostics.status import PipelineStatus
from infra.monitoring.page.access import COOKIE, Access, AccessCheck, check_access
from infra.monitoring.page.app import build_app
from infra.monitoring.page.collector import Details, Outage, PipelineReading, SeenPipeline
from infra.monitoring.page.graphics import build_bar, build_sparkline
from infra.monitoring.page.overview import ROWS_PER_PAGE, build_overview, build_row, format_age
from infra.monitoring.page.pipeline import build_pipeline_page

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
TOKEN = "a-token-of-24-characters"
EVIL = "<script>alert(1)</script>\"'&"


def run(seconds: float = 2.0, rows: int | None = 100, **other: Any) -> RunRecord:
    values: dict[str, Any] = {
        "pipeline": "p", "source": "s", "target": "t", "started_at": NOW, "kind": "window", "first": 1, "last": 2,
        "rows_in": rows, "inserts": 60, "updates": 30, "deletes": 10, "conflicts": 0, "change_bytes": 1,
        "seconds": {"stage": 0.5, "apply": 1.5}, "retries": 0, "code": None, "condition": None,
    }  # fmt: skip
    return RunRecord(**{**values, "ended_at": NOW + dt.timedelta(seconds=seconds), **other})


def seen(name: str, state: str = "up_to_date", *, runs: tuple[RunRecord, ...] = (), **status: Any) -> SeenPipeline:
    found = PipelineStatus(name, "lake/t", state, **status)  # type: ignore[arg-type]
    return SeenPipeline(name, "warehouse", PipelineReading(found, runs), None, 3.0, False, None)


class StubCollector:
    interval_seconds = 10.0
    trails = ()
    has_erasure = False

    def __init__(self, *pipelines: SeenPipeline) -> None:
        self.pipelines = {one.name: one for one in pipelines}
        self.names = tuple(self.pipelines)
        self.targets = dict.fromkeys(self.names, "public.t of warehouse (postgres)")

    def read_pipelines(self) -> tuple[SeenPipeline, ...]:
        return tuple(self.pipelines.values())

    def read_pipeline(self, name: str) -> tuple[SeenPipeline, Details | None, None]:
        altering = run(first=7, last=9, schema_changes=(f"column {EVIL!r} was dropped", "another"))
        return self.pipelines[name], Details((run(),), (run(code="sink_unavailable"),), None, {}, (altering,)), None


def client(
    access: Access | None = None,
    *pipelines: SeenPipeline,
    host: str = "http://localhost:9410",
    peer: str = "127.0.0.1",
) -> TestClient:
    collector: Any = StubCollector(*(pipelines or [seen("orders")]))
    app = build_app(collector, access or Access(), Limits(), config=Path("deltarelay.yaml"))
    return TestClient(app, base_url=host, client=(peer, 5000), follow_redirects=False)


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_those_that_need_a_person_come_first() -> None:
    pipelines = [
        seen("fine"),
        seen("a_little_behind", "behind", lag_versions=1, lag_seconds=5.0),
        seen("far_behind", "behind", lag_versions=9, lag_seconds=500.0),
        seen("paused", "paused"),
        seen("broken", "failed", error="no feed"),
        seen("braked", "stopped_by_brake"),
        SeenPipeline("lost", "archive", None, SinkUnavailable("away"), None, False, None),
        SeenPipeline("starting", "warehouse", None, None, None, False, None),
    ]
    found = build_overview(pipelines)
    order = ["lost", "broken", "braked", "far_behind", "a_little_behind", "paused", "starting", "fine"]
    assert [row.name for row in found.rows] == order
    assert [(state, number) for state, _, number in found.counts] == [
        ("unreachable", 1), ("failed", 1), ("stopped_by_brake", 1), ("behind", 2), ("paused", 1), ("unread", 1),
        ("up_to_date", 1),
    ]  # fmt: skip


def test_an_exceeded_limit_makes_a_pipeline_urgent_whatever_its_state() -> None:
    pipelines = [
        seen("far_behind", "behind", lag_versions=9, lag_seconds=500.0),
        seen("rejecting", "up_to_date", dead_letters=3),
        seen("fine", "up_to_date", dead_letters=1),
    ]
    found = build_overview(pipelines, Limits(max_dead_letters=1))
    assert [(row.name, row.tone, [note.text for note in row.notes]) for row in found.rows] == [
        ("rejecting", "bad", ["3 rows are dead letters"]),
        ("far_behind", "open", []),
        ("fine", "good", ["1 dead letter"]),
    ]
    assert found.bad == 1
    limited = build_overview(pipelines, Limits(max_lag=dt.timedelta(seconds=60)))
    assert (limited.rows[0].name, limited.rows[0].tone) == ("far_behind", "bad")


def test_a_lost_server_hides_nothing_that_was_known() -> None:
    known = seen("orders", "behind", lag_versions=4, lag_seconds=60.0, position=3)
    assert known.reading is not None
    outage = Outage("warehouse", "no answer for 2 s", None)
    row = build_row(SeenPipeline("orders", "warehouse", known.reading, None, 30.0, True, outage))
    assert (row.state, row.before, row.lag_versions, row.age_seconds, row.is_old) == (
        "unreachable", "behind", 4, 30.0, True,
    )  # fmt: skip


def test_a_pause_says_by_whom_and_why_and_the_page_prints_the_command() -> None:
    controls = Controls(
        paused=Pause(NOW, "maria", "index rebuild"), stopped=BrakeStop(NOW, 3, 5, "the window 3..5 would delete 80%")
    )
    one = seen("a b", "paused", controls=controls)
    assert [note.text for note in build_row(one).notes] == [
        "paused by maria since 2026-03-01 12:00 UTC: index rebuild",
        "stopped since 2026-03-01 12:00 UTC: the window 3..5 would delete 80%",
    ]
    page = build_pipeline_page(one, None, None, target="t", config=Path("etc/relay.yaml"))
    commands = [command for _, command in page.commands]
    assert "deltarelay resume 'a b' -c etc/relay.yaml" in commands
    assert "deltarelay approve 'a b' --window 3..5 --by YOU -c etc/relay.yaml" in commands
    assert "deltarelay run --reload -p 'a b' -c etc/relay.yaml" in commands


def test_schema_changes_are_shown_although_they_are_older_than_the_steps() -> None:
    many = tuple(f"column 'c{number}' (int) was added" for number in range(23))
    altering = (
        run(first=7, last=9, schema_changes=many),
        run(first=4, last=4, schema_changes=("column 'a' was dropped",)),
    )
    page = build_pipeline_page(seen("p"), Details((run(),), (), None, {}, altering), None, target="t", config=Path("c"))
    assert [(one.at, one.version) for one in page.schema_changes] == [
        (altering[0].ended_at, 7),
        (altering[1].ended_at, 4),
    ]
    assert page.schema_changes[0].text == ", ".join(many[:20]) + " and 3 more"
    assert page.schema_changes[1].text == "column 'a' was dropped"


def test_a_thousand_pipelines_are_pages_that_can_be_searched() -> None:
    pipelines = [seen(f"table_{number:04}", "failed" if number == 777 else "up_to_date") for number in range(1_000)]
    started = time.monotonic()
    page = client(None, *pipelines).get("/")
    assert time.monotonic() - started < 5
    assert len(page.content) < 200_000
    assert page.text.count('scope="row"') == ROWS_PER_PAGE
    assert page.text.index("table_0777") < page.text.index("table_0000")
    assert "page 1 of 10, 1000 pipelines" in page.text
    last = client(None, *pipelines).get("/?page=99")
    assert "table_0999" in last.text
    assert "page 10 of 10" in last.text
    found = client(None, *pipelines).get("/?q=0123&state=up_to_date").text
    assert re.findall(r"pipelines/(\w+)", found) == ["table_0123"]


def test_graphics_have_their_figures_in_words() -> None:
    line = build_sparkline([run(1.0, 50), run(2.0, 400), run(1.0, None), run(1.0, code="failed")])
    assert line is not None
    assert line.label == "rows per second over the last 2 steps: latest 50, highest 200"
    assert line.points == "2.0,2.0 118.0,17.0"
    assert build_sparkline([run(rows=None)]) is None
    bar = build_bar({"inserts": 3, "deletes": 1}, "")
    assert bar is not None
    assert bar.label == "inserts 3, deletes 1"
    assert [(part.left, part.width) for part in bar.parts] == [(0.0, 75.0), (75.0, 25.0)]
    assert build_bar({"inserts": 0}, "") is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0, "0 s"), (59.6, "1 min"), (3_725, "1 h 2 min"), (86_400 * 3, "3 d")]
)
def test_ages_have_two_units(seconds: float | None, text: str) -> None:
    assert format_age(seconds) == text


# ── what the pages may load, and what is escaped ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/", f"/pipelines/{EVIL}", "/missing", "/?q=%3Cscript%3E&state=%22"])
def test_no_page_has_inline_script_or_style_and_every_value_is_escaped(path: str) -> None:
    bad = seen(EVIL, "failed", runs=(run(),), error=EVIL, hint=EVIL, controls=Controls(paused=Pause(NOW, EVIL, EVIL)))
    page = client(None, bad).get(path)
    assert page.status_code == (404 if path == "/missing" else 200)
    assert "<script>" not in page.text
    if EVIL in path:
        assert "<td>7</td><td>column" in page.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text.partition("<td>7</td><td>column")[2][:80]
    assert re.findall(r"<script (?!src=)|\sstyle=|<style|\son\w+=", page.text) == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', page.text) == []
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"


def test_every_file_that_a_page_names_is_served() -> None:
    web = client()
    for path in ("/", "/pipelines/orders"):
        links = re.findall(r'(?:src|href)="([^"]*static/[^"]+)"', web.get(path).text)
        assert len(links) == 4
        for link in links:
            assert web.get(str(web.get(path).url.join(link).path)).status_code == 200
    assert web.get("/static/access.py").status_code == 404
    assert web.get("/static/..%2fapp.py").status_code == 404


# ── access ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_address_than_this_machine_needs_a_token_or_a_proxy() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.2"):
        check_access(host, Access())
    for host in ("0.0.0.0", "::", "10.0.0.7", "relay.example.org", ""):
        with pytest.raises(ConfigError, match="everyone in the network"):
            check_access(host, Access())
        check_access(host, Access(token=TOKEN))
        check_access(host, Access(proxy_header="X-Forwarded-User"))
    with pytest.raises(ConfigError, match="fewer than 16"):
        check_access("127.0.0.1", Access(token="short"))


def test_without_a_token_only_names_of_this_machine_are_answered() -> None:
    assert client(host="http://127.0.0.1:9410").get("/").status_code == 200
    assert client(host="http://[::1]:9410").get("/").status_code == 200
    assert client(host="http://attacker.example:9410").get("/").status_code == 421, "DNS rebinding"
    assert client(host="http://127.0.0.1:9410").get("/", headers={"Host": "[::1"}).status_code == 421


@pytest.mark.parametrize("path", ["/", "/pipelines/orders", "/pipelines/none", "/missing"])
def test_without_the_token_no_page_says_anything(path: str) -> None:
    web = client(Access(token=TOKEN), host="http://relay.example.org")
    refused = web.get(path)
    assert refused.status_code == 401
    assert "orders" not in refused.text
    assert web.get(path, headers={"Authorization": "Bearer wrong-token-of-24-chars"}).status_code == 401
    assert web.get(path, headers={"Cookie": f"{COOKIE}={TOKEN}"}).status_code == 401, "the cookie is not the token"
    assert web.get("/healthz").text == "ok"
    admitted = web.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert admitted.status_code == (404 if "none" in path or "missing" in path else 200)


@pytest.mark.parametrize(
    ("path", "prefix", "host", "answer"),
    [
        ("/", "", "a/static/?", "refused"),
        ("/pipelines/orders", "", "a/healthz#", "refused"),
        ("/static/base.css", "", "relay.example.org", "admitted"),
        ("/relay/static/base.css", "/relay", "relay.example.org", "admitted"),
        ("/relay/", "/relay", "a/static/?", "refused"),
        ("/staticrelay/static/base.css", "/static", "a", "refused"),
    ],
)
def test_the_header_host_opens_no_path(
    monkeypatch: pytest.MonkeyPatch, path: str, prefix: str, host: str, answer: str
) -> None:
    """Some versions of Starlette build ``Request.url`` from any text in that header: it must not be asked at all."""
    # as those versions do
    monkeypatch.setattr(Request, "url", property(lambda one: URL(f"http://{one.headers['host']}{one.scope['path']}")))
    answers: list[str] = []

    def name(text: str) -> Any:
        async def app(*_: Any) -> None:
            answers.append(text)

        return app

    check = AccessCheck(name("admitted"), Access(token=TOKEN), name("refused"))
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "path": path, "root_path": prefix, "query_string": b"",
        "headers": [(b"host", host.encode())],
    }  # fmt: skip
    unused: Any = None
    asyncio.run(check(scope, unused, unused))
    assert answers == [answer]


def test_the_form_sets_a_cookie_that_is_not_the_token() -> None:
    web = client(Access(token=TOKEN), host="http://relay.example.org")
    refused = web.post("/login", content=b"token=wrong")
    assert (refused.status_code, refused.headers["location"]) == (303, "./?refused=1")
    assert "set-cookie" not in refused.headers
    assert "This is not the token" in web.get("/?refused=1").text
    accepted = web.post("/login", content=f"token={TOKEN}".encode())
    cookie = accepted.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert web.get("/").status_code == 200
    assert (
        "Secure"
        in web.post("/login", content=f"token={TOKEN}".encode(), headers={"X-Forwarded-Proto": "https"}).headers[
            "set-cookie"
        ]
    )
    other = client(Access(token="another-token-of-24-chars"), host="http://relay.example.org")
    assert other.get("/", headers={"Cookie": f"{COOKIE}={web.cookies[COOKIE]}"}).status_code == 401, (
        "ends with the token"
    )


def test_the_header_is_believed_from_the_proxy_only() -> None:
    access = Access(proxy_header="X-Forwarded-User", proxy_addresses=("10.0.0.2",))
    user = {"X-Forwarded-User": "maria"}
    admitted = client(access, peer="10.0.0.2").get("/", headers=user)
    assert (admitted.status_code, "maria" in admitted.text) == (200, True)
    assert client(access, peer="10.0.0.2").get("/").status_code == 401
    assert client(access, peer="10.0.0.3").get("/", headers=user).status_code == 401
    spoofed = {**user, "X-Forwarded-For": "10.0.0.2"}
    assert client(access, peer="10.0.0.3").get("/", headers=spoofed).status_code == 401


def test_the_page_changes_nothing() -> None:
    web = client()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert web.request(method, "/").status_code == 405
        assert web.request(method, "/pipelines/orders").status_code == 405
