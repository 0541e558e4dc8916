"""The lease file of a trail, read while another runner writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from audit.trail.lease import Lease


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "_lease"


@pytest.fixture
def stale(spark: SparkSession, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    """Of a runner that does not know yet that its lease has ended."""
    monkeypatch.setattr("audit.trail.lease.RENEW_SECONDS", 3600)
    lease = Lease(spark, str(file.parent), target="the trail")
    yield lease
    lease.close()


def test_closing_while_a_successor_writes_its_own_leaves_that(
    stale: Lease, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    successors = json.dumps({"holder": "successor", "renewals": 1, "seconds": 15.0})
    file.write_text("")  # as a file is between being emptied and being filled
    passing = SimpleNamespace(sleep=lambda _: file.write_text(successors))
    monkeypatch.setattr("audit.trail.lease.time", passing)
    stale.close()
    assert file.read_text() == successors


def test_what_broke_off_while_it_was_written_is_left_to_end(stale: Lease, file: Path) -> None:
    file.write_text("")
    stale.close()
    assert file.read_text() == ""


def test_closing_gives_back_what_is_its_own(stale: Lease, file: Path) -> None:
    stale.close()
    assert json.loads(file.read_text())["seconds"] == 0
