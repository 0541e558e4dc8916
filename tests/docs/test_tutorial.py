"""The tutorial runs as it is printed, and its commands say what it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from infra.embedded.kafka import EmbeddedKafka
from infra.embedded.postgres import EmbeddedPostgres
from tests.acceptance.commands import REPOSITORY
from tests.acceptance.test_demo_kafka import services
from tests.docs.test_how_to import run
from tests.fixtures.resident import Resident

__all__ = ["services"]  # a fixture

_SHOWN = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIFFERS = re.compile(
    r"…"
    r"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d[.\d]*)?)?"  # a day, a time
    r"|\d+\.\d+ s\b"
    r"|\b[0-9a-f-]{32,}"
    r"|\b[0-9a-f]{8}\+[A-Za-z0-9+/=]{40,}|\b[A-Za-z0-9+/]{43}="  # a key, a hash
    r"|(?<=event )\d|(?<=Z )\d(?= [iud])"  # events of a commit stand in the order of random numbers
)


@pytest.mark.timeout(600)
def test_audit_trail(tmp_path: Path, jars: str, resident: Resident) -> None:
    page = "tutorial/audit-trail"
    said = run(page, tmp_path, resident, DELTARELAY_JARS=jars, XDG_STATE_HOME=str(tmp_path / "state"))
    _as_shown(page, said)
    report = (tmp_path / "report.html").read_text()
    assert "Intact and signed through version 5" in report
    assert "Vida" not in report


@pytest.mark.timeout(1200)
def test_erase_a_person(tmp_path: Path, jars: str, services: None, resident: Resident) -> None:
    page = "tutorial/erase-a-person"
    try:
        said = run(page, tmp_path, resident, seconds=1100, DELTARELAY_JARS=jars, XDG_STATE_HOME=str(tmp_path / "state"))
    finally:
        for server in (EmbeddedPostgres, EmbeddedKafka):
            server(tmp_path / "deltarelay-demo" / server.__name__.removeprefix("Embedded").lower()).stop()
    _as_shown(page, said)
    certificate = json.loads((tmp_path / "DSR-2.json").read_text())
    assert (certificate["outcome"], certificate["scan"]["finds"]) == ("erased", 0)
    for file in ("DSR-2.json", "DSR-2.html", "erasure-plan.json", "again.json"):
        assert "customer77" not in (tmp_path / file).read_text().lower()
    for file in (tmp_path / "deltarelay-demo" / "customers").rglob("*"):
        assert not file.is_file() or b"customer77@" not in file.read_bytes(), file


@pytest.mark.timeout(1200)
def test_forget_in_every_copy(tmp_path: Path, jars: str, resident: Resident) -> None:
    page = "tutorial/forget-in-every-copy"
    try:
        said = run(page, tmp_path, resident, seconds=1100, DELTARELAY_JARS=jars, XDG_STATE_HOME=str(tmp_path / "state"))
    finally:
        EmbeddedPostgres(tmp_path / "deltarelay-demo" / "postgres").stop()
    _as_shown(page, said)
    report = (tmp_path / "DSR-1.html").read_text()
    assert "customer77@example.com" in report
    assert "customer78@" not in report


def _as_shown(page: str, said: str) -> None:
    shown = "".join(_SHOWN.findall((REPOSITORY / "docs" / f"{page}.md").read_text()))
    printed = iter(_lines(said))
    for line in _lines(shown):
        pattern = ".*".join(re.escape(part) for part in _DIFFERS.split(line))
        assert any(re.fullmatch(pattern, other) for other in printed), f"not printed in its place: {line}\n\n{said}"


def _lines(text: str) -> list[str]:
    """Columns are as wide as what stands in them."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip() not in ("", "…")]
