"""The status page on a real PostgreSQL: every state, a server that is lost or never answers, and no row value anywhere."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.types import DateType, StructField
from starlette.testclient import TestClient

from cdf.changes.schema_diff import ChangeKind, SchemaChange
from infra.cli.main import main
from infra.config.limits import Limits
from infra.monitoring.page.access import Access
from infra.monitoring.page.app import build_app
from infra.monitoring.page.collector import Collector
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.postgres_proxy import PostgresProxy
from tests.integration.status_page_case import CANARY, KEY, StatusCase, make_every_state

EVIL = "<script>alert(1)</script>"
ANSWER_SECONDS = 2.0
"""Within this time a page shows that a server does not answer."""


@contextmanager
def serving(case: StatusCase, *, interval_seconds: float = 600) -> Iterator[TestClient]:
    project = case.load_project()
    collector = Collector(project, list(project.pipelines), interval_seconds=interval_seconds)
    collector.start()
    try:
        yield TestClient(build_app(collector, Access(), Limits(), config=case.config), base_url="http://localhost")
    finally:
        collector.close()


def states(page: str) -> dict[str, str]:
    """pipeline → state, in the page's order."""
    rows = re.findall(r'<tr role="row" class="\w+">.*?</tr>', page, re.DOTALL)
    return {
        re.findall(r'id="row-([^"]+)"', row)[0]: re.findall(r'badge \w+"><span[^>]*>.</span> ([^<]+)<', row)[0]
        for row in rows
    }


def wait_until_read(web: TestClient) -> str:
    deadline = time.monotonic() + 60
    while "not read yet" in states(page := web.get("/").text).values():
        assert time.monotonic() < deadline
    return page


def test_every_state_is_shown_and_no_value_key_or_secret(pg: Pg, tmp_path: Path) -> None:
    case = make_every_state(tmp_path, pg)
    with serving(case) as web:
        overview = wait_until_read(web)
        assert states(overview) == {
            "orders_archive": "unreachable",
            "visits": "failed",
            "payments": "stopped by brake",
            "customers": "behind",
            "invoices": "paused",
            "returns": "empty",
            "orders": "up to date",
            "stock": "up to date",
        }
        assert "paused by maria since" in overview
        assert "index rebuild until noon" in overview
        assert "would delete 80,000 of 100,000 rows (80%)" in overview
        assert "deltarelay feed enable" in overview
        assert "rows per second over the last 7 steps" in overview
        pages = {name: web.get(f"/pipelines/{name}").text for name in states(overview)}
        assert "inserts 55, updates 6, deletes 1" in pages["orders"]
        assert "<td>window</td><td>6</td>" in pages["orders"]
        assert "a check constraint is violated" in pages["stock"]
        assert "sink_unavailable" in pages["stock"]
        assert "deltarelay deadletter list -p stock" in pages["stock"]
        assert "--window 2..3 --by YOU" in pages["payments"]
        assert "deltarelay resume invoices" in pages["invoices"]
        shown = "\n".join([overview, *pages.values()])
    hidden = CANARY, str(KEY), str(KEY + 1)
    assert [one for one in hidden if one in shown] == []
    # The control: all of it is where the page reads, so a page that showed it would be found
    stored = str(pg.query("select d::text from deltarelay.dead_letter d"))
    stored += str(pg.query("select name, id from {schema}.customers")) + case.config.read_text()
    assert [one for one in hidden if one not in stored] == []


def test_schema_changes_are_shown_by_the_page_and_by_the_command(
    pg: Pg, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = StatusCase(tmp_path, pg)
    case.add("orders")
    case.commit("orders", 2)
    added = SchemaChange(
        ChangeKind.ADD_COLUMN, EVIL, f"column {EVIL!r} (date) was added", None, StructField(EVIL, DateType())
    )
    case.copy(case.load_project(), "orders", 2, drift=(added,))
    with serving(case) as web:
        page = web.get("/pipelines/orders").text
    assert page.partition('id="schema"')[2].partition("</section>")[0].count("<tr>") == 2, "a header, and one step"
    assert "<td>1</td><td>column &#39;&lt;script&gt;alert(1)&lt;/script&gt;&#39; (date) was added</td>" in page
    assert EVIL not in page

    def show_runs(*options: str) -> str:
        with pytest.raises(SystemExit):
            main(["runs", "-c", str(case.config), *options])
        return capsys.readouterr().out

    header, *rows = show_runs().splitlines()
    assert header.rstrip().endswith("schema changes")
    assert [str(added) in row for row in rows] == [False, True, False]
    assert "schema changes" not in show_runs("--limit", "1")
    (shown,) = json.loads(show_runs("--json"))["result"]["pipelines"]
    assert [run["schema_changes"] for run in shown["runs"]] == [[], [str(added)], []]


def test_a_lost_server_is_shown_at_once_with_what_was_known(pg: Pg, tmp_path: Path, proxy: PostgresProxy) -> None:
    case = StatusCase(tmp_path, pg)
    case.connect("archive", proxy.dsn)
    case.add("orders")
    case.add("copy", connection="archive")
    project = case.load_project()
    for name in ("orders", "copy"):
        case.commit(name, 2)
        case.copy(project, name, 1)
    with serving(case) as web:
        assert states(wait_until_read(web)) == {"copy": "behind", "orders": "behind"}
        assert ">1 version<" in web.get("/pipelines/copy").text.replace(", the oldest", "<")
        proxy.refusing = True
        time.sleep(2.1)  # an answer of the server is good for two seconds
        started = time.monotonic()
        page = web.get("/").text
        assert time.monotonic() - started < ANSWER_SECONDS
        assert states(page) == {"copy": "unreachable", "orders": "behind"}
        assert "before: behind" in page
        assert re.search(r"<b>archive</b>, the target of 1 pipeline: cannot connect to PostgreSQL", page)
        detail = web.get("/pipelines/copy").text
        assert "Last known: behind." in detail
        assert "<td>window</td><td>1</td>" in detail, "the history that was read before"
        proxy.refusing = False
        deadline = time.monotonic() + 60
        while states(web.get("/").text)["copy"] != "behind":
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_server_that_never_answers_is_shown_within_two_seconds(pg: Pg, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and never answers
        case = StatusCase(tmp_path, pg)
        case.connect("archive", f"postgresql://relay@127.0.0.1:{silent.getsockname()[1]}/archive")
        case.add("orders")
        case.copy(case.load_project(), "orders")
        for number in range(20):
            case.add(f"silent_{number}", connection="archive", table="orders")
        with serving(case) as web:
            for path in ("/", "/pipelines/silent_7", "/"):
                started = time.monotonic()
                page = web.get(path).text
                assert time.monotonic() - started < ANSWER_SECONDS
            found = states(page)
            assert found.pop("orders") == "up to date"
            assert set(found.values()) == {"unreachable"}
            assert len(found) == 20
            assert re.search(r"<b>archive</b>, the target of 20 pipelines: no answer for \d s", page)
            started = time.monotonic()
            assert "up to date" in web.get("/pipelines/orders").text
            assert time.monotonic() - started < ANSWER_SECONDS


@pytest.mark.parametrize("interval_seconds", [1.0])
def test_statuses_are_read_again_without_visitors(pg: Pg, tmp_path: Path, interval_seconds: float) -> None:
    case = StatusCase(tmp_path, pg)
    case.add("orders")
    case.copy(case.load_project(), "orders")
    with serving(case, interval_seconds=interval_seconds) as web:
        assert states(wait_until_read(web)) == {"orders": "up to date"}
        case.commit("orders")
        deadline = time.monotonic() + 30
        while states(web.get("/").text) != {"orders": "behind"}:
            assert time.monotonic() < deadline
            time.sleep(0.1)
