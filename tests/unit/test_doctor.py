"""``doctor`` as a command: its lines, its exit codes, and that no check ever raises. The broken set-ups themselves are in
tests/integration/test_doctor.py."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import infra.diagnostics.doctor.downloads
from infra.cli.main import app
from infra.diagnostics.doctor.downloads import check_jars
from infra.diagnostics.doctor.finding import run_check
from infra.diagnostics.doctor.machine import LOW_BYTES, TOO_LOW_BYTES, Machine, check_disk
from tests.fixtures.setups import Setup

UNREACHABLE = "postgresql://user:canary-hunter2@127.0.0.1:1/x"


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    made = Setup(tmp_path / "setup", UNREACHABLE)
    monkeypatch.chdir(made.folder)
    monkeypatch.delenv("DELTARELAY_CONFIG", raising=False)
    monkeypatch.delenv("DELTARELAY_JARS", raising=False)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return made


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["doctor", *words])


def test_without_a_file_the_machine_is_looked_at(setup: Setup) -> None:
    done = run()
    assert done.exit_code == 0
    assert "skipped config" in done.output
    assert "fix: create one with `deltarelay init TABLE`" in done.output
    assert "ok      java" in done.output


def test_a_file_that_is_named_must_be_there(setup: Setup) -> None:
    done = run("--config", "other.yaml")
    assert done.exit_code == 2
    assert "FAILED  config" in done.output
    assert "ok      java" in done.output


def test_every_failure_has_its_fix_below_it(setup: Setup) -> None:
    setup.write()
    done = run()
    assert done.exit_code == 1
    lines = done.output.splitlines()
    (at,) = [index for index, line in enumerate(lines) if line.startswith("FAILED  target")]
    assert lines[at + 1].strip().startswith("fix: check that it is running")
    assert "canary" not in done.output
    assert lines[-1] == "12 checks: 1 failed, 0 warnings"


def test_as_json(setup: Setup) -> None:
    setup.write()
    document = json.loads(run("--json").output)
    assert (document["ok"], document["exit_code"], document["result"]["failed"]) == (False, 1, 1)
    (target,) = [one for one in document["result"]["findings"] if one["check"] == "target"]
    assert set(target) == {"check", "state", "found", "fix", "pipeline"}
    assert (target["state"], target["pipeline"]) == ("failed", "customers")


def test_a_wrong_file_is_a_finding_and_exit_code_2(setup: Setup) -> None:
    setup.extra = "piplines: {}"
    setup.write()
    document = json.loads(run("--json").output)
    assert (document["exit_code"], document["result"]["failed"]) == (2, 1)


def test_one_pipeline(setup: Setup) -> None:
    setup.write()
    assert "customers: " in run("--pipeline", "customers").output
    assert "no pipeline `nobody`" in str(run("--pipeline", "nobody").exception)


def test_a_check_that_falls_ill_is_a_finding() -> None:
    def ill() -> Any:
        raise ZeroDivisionError("with a secret in it")

    found = run_check("java", ill)
    assert (found.state, found.found) == ("failed", "the check failed unexpectedly (ZeroDivisionError)")


@pytest.mark.parametrize(
    ("free", "state"), [(LOW_BYTES, "ok"), (LOW_BYTES - 1, "warning"), (TOO_LOW_BYTES - 1, "failed")]
)
def test_free_disk(tmp_path: Path, free: int, state: str) -> None:
    """Spark's own folder counts as well as the temporary one."""
    environment = {"TMPDIR": str(tmp_path)}
    roomy = LOW_BYTES * 10
    local = tmp_path / "local"
    local.mkdir()
    machine = Machine(environment=environment, free_bytes=lambda folder: free if folder == local else roomy)
    assert check_disk(machine, {"spark.local.dir": str(local)}).state == state
    assert check_disk(machine, {}).state == "ok"


# ── the registry ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _Registry(http.server.BaseHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def do_HEAD(self) -> None:
        self.asked.append(self.path)
        self.send_response(200 if self.path.endswith(".pom") and "delta-spark" in self.path else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def empty(tmp_path: Path) -> Machine:
    return Machine(environment={"JAVA_TOOL_OPTIONS": f"-Duser.home={tmp_path}"})


def test_jars_that_can_be_fetched(tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra.diagnostics.doctor.downloads, "CENTRAL", registry)
    found = check_jars(empty(tmp_path), (), {})
    assert (found.state, found.fix) == ("ok", None)
    assert _Registry.asked[-1] == "/io/delta/delta-spark_4.2_2.13/4.4.0/delta-spark_4.2_2.13-4.4.0.pom"


@pytest.mark.parametrize("broken", ["refused", "missing"])
def test_jars_that_cannot_be_fetched(
    tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    address = "http://127.0.0.1:1" if broken == "refused" else f"{registry}/404/delta"
    monkeypatch.setattr(infra.diagnostics.doctor.downloads, "CENTRAL", address)
    monkeypatch.setattr(_Registry, "do_HEAD", lambda self: self.send_error(404), raising=True)
    found = check_jars(empty(tmp_path), (), {})
    assert found.state == "failed"
    assert "cannot be reached" in found.found
    assert "deltarelay jars fetch" in str(found.fix)


def test_another_registry_is_not_guessed_at(tmp_path: Path) -> None:
    found = check_jars(empty(tmp_path), (), {"spark.jars.repositories": "https://registry.example"})
    assert (found.state, "--spark" in str(found.fix)) == ("warning", True)


# ── validate --connect ───────────────────────────────────────────────────────────────────────────────────────────────


def test_validate_connect_says_that_a_target_is_away_for_now(setup: Setup) -> None:
    setup.write()
    done = CliRunner().invoke(app, ["validate", "--connect", "--json"])
    (one,) = json.loads(done.output)["result"]["connected"]
    assert (done.exit_code, one["ok"], one["transient"]) == (75, False, True)


def test_validate_connect_lists_what_is_wrong_at_both_ends(setup: Setup) -> None:
    setup.key = "customer"
    setup.write()
    done = CliRunner().invoke(app, ["validate", "--connect"])
    assert done.exit_code == 1
    assert "customers: NOT READY" in done.output
    assert "does not have: customer: correct source.key" in done.output
