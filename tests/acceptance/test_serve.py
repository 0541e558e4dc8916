"""``deltarelay serve`` as a process: it serves without a JVM, refuses an open door, ends at a signal; and a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.bare import SPARK, run_without
from tests.fixtures.fix_postgres import Pg
from tests.fixtures.fix_spark import cannot_run
from tests.integration.status_page_case import StatusCase

TOKEN = "a-token-of-24-characters"
_WITHOUT_SPARK = (
    f"import sys; sys.modules.update(dict.fromkeys({SPARK!r}))\nfrom infra.cli.main import main; main(sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    process: subprocess.Popen[str]

    def get(self, path: str = "", **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@contextmanager
def serving(folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A process that cannot import PySpark."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", _WITHOUT_SPARK, "serve", "--port", "0", *options],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, (line, process.stderr and process.stderr.read())
        yield Server(found[0], process)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def case(pg: Pg, tmp_path: Path) -> StatusCase:
    case = StatusCase(tmp_path, pg)
    case.add("orders")
    case.commit("orders", 2)
    case.copy(case.load_project(), "orders", 1)
    return case


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_without_a_jvm_until_a_signal(case: StatusCase, number: signal.Signals) -> None:
    with serving(case.folder) as server:
        assert server.url.startswith("http://127.0.0.1:")
        code, page = server.get()
        assert (code, ">orders</a>" in page) == (200, True)
        assert "1 version" in server.get("pipelines/orders")[1]
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        if children.exists():
            assert children.read_text() == ""
        server.process.send_signal(number)
        assert server.process.wait(timeout=20) == 0


def test_on_another_address_every_page_needs_the_token(case: StatusCase) -> None:
    with serving(case.folder, "--host", "0.0.0.0", environment={"DELTARELAY_SERVE_TOKEN": TOKEN}) as server:
        local = Server(server.url.replace("0.0.0.0", "127.0.0.1"), server.process)
        for path in ("", "pipelines/orders"):
            code, page = local.get(path)
            assert (code, "orders" in page) == (401, False)
            assert local.get(path, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert local.get("healthz") == (200, "ok")
    (case.folder / "token").write_text(TOKEN + "\n")
    with serving(case.folder, "--token-file", "token") as server:
        assert server.get()[0] == 401
        assert server.get(Authorization=f"Bearer {TOKEN}")[0] == 200


def test_what_would_be_open_or_cannot_listen_is_refused(case: StatusCase) -> None:
    with serving(case.folder) as server:
        port = server.url.rstrip("/").rpartition(":")[2]
        commands = [
            ["serve", "--host", "0.0.0.0"],
            ["serve", "--port", port],
            ["serve", "--token-file", "missing"],
            ["serve", "-p", "nothing"],
        ]
        done = run_without(SPARK, commands, cwd=case.folder)
    assert [one.code for one in done] == [2, 2, 2, 2]
    assert "on 0.0.0.0 everyone in the network could read the page" in done[0].err
    assert "set DELTARELAY_SERVE_TOKEN" in done[0].err
    assert f"cannot listen on 127.0.0.1, port {port}: address already in use" in done[1].err
    assert "cannot read the token from missing" in done[2].err
    assert "no pipeline `nothing`" in done[3].err
    missing = run_without(("starlette", "uvicorn"), [["serve"]], cwd=case.folder)[0]
    assert (missing.code, "pip install 'deltarelay[serve]'" in missing.err) == (2, True)


def test_a_browser_shows_the_page_and_refreshes_it(case: StatusCase) -> None:
    with serving(case.folder, "--refresh-seconds", "1") as server:
        deadline = time.monotonic() + 30
        while "behind" not in server.get()[1]:
            assert time.monotonic() < deadline
        page, console = browse(server.url, case.folder / "profile")
    # The script ran: without it the button is hidden. It has replaced the content, and nothing went wrong
    assert re.search(r'<button type="button" id="fresh-toggle">Stop refreshing</button>', page)
    assert re.search(r'<p id="fresh-problem" class="problem" role="alert" hidden="">', page)
    assert re.search(r'<div id="content" tabindex="-1" data-refreshed="\d+">', page)
    assert 'id="row-orders"' in page
    assert "Content Security Policy" not in console
    # The control: the same browser reports what a policy forbids
    forbidden = case.folder / "forbidden.html"
    forbidden.write_text(
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\"><script>document.title = 1</script>"
    )
    assert "Content Security Policy" in browse(forbidden.as_uri(), case.folder / "profile")[1]


def browse(url: str, profile: Path) -> tuple[str, str]:
    """→ the page's elements after five seconds of its time, what the browser's console says"""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        cannot_run("Chromium is missing: the status page was seen by no browser (Debian: apt install chromium)")
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
            "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", url,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr
