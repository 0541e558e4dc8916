"""How old the oldest unapplied commit is: a real log of delta-rs, and a target that reports what it sees."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from cdf.sink import Activity, Position
from infra.cli.main import main
from infra.config.limits import Limits
from infra.diagnostics.status import PipelineStatus, read_pipeline_status
from infra.monitoring.health import find_incidents
from tests.unit.test_metrics import ROWS, Target, project, target

__all__ = ["target"]

NOW = dt.datetime.now(dt.UTC)
FAR = 20_001


def name(version: int, ending: str = "json") -> Path:
    return Path("people", "_delta_log", f"{version:020}.{ending}")


def write_commit(version: int, **info: Any) -> None:
    name(version).write_text(json.dumps({"commitInfo": {"operation": "WRITE", **info}}) + "\n")


def milliseconds(age: dt.timedelta) -> int:
    return round((NOW - age).timestamp() * 1000)


def read() -> PipelineStatus:
    return read_pipeline_status(project(), "people", now=NOW)


@pytest.fixture
def far(target: Target) -> None:
    """The table is 20,001 commits ahead of the target, and the log still has the first of these and the last."""
    DeltaTable("people").create_checkpoint()
    shutil.copy(name(0, "checkpoint.parquet"), name(FAR, "checkpoint.parquet"))
    last = json.loads(Path("people", "_delta_log", "_last_checkpoint").read_text())
    Path("people", "_delta_log", "_last_checkpoint").write_text(json.dumps({**last, "version": FAR}))
    write_commit(1, timestamp=milliseconds(dt.timedelta(days=6)))
    write_commit(FAR, timestamp=milliseconds(dt.timedelta()))


def call_status(options: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(["status", *options])
    return int(left.value.code or 0), capsys.readouterr().out


@pytest.mark.usefixtures("far")
def test_the_pipeline_that_is_furthest_behind_has_its_incidents() -> None:
    status = read()
    assert (status.state, status.lag_versions, status.feed_files_days) == ("behind", FAR, 1.0)
    assert status.lag_seconds == pytest.approx(6 * 86_400, abs=1)
    limits = Limits(max_lag=dt.timedelta(minutes=15), min_feed_days=2)
    assert [one.kind for one in find_incidents(status, limits, NOW)] == ["feed_expiring", "lagging"]


@pytest.mark.usefixtures("far")
def test_a_commit_that_is_gone_cannot_be_applied() -> None:
    name(1).unlink()
    status = read()
    assert (status.state, status.code) == ("failed", "versions_expired")
    table = Path("people").resolve()
    assert (
        status.error == f"the commit files of version 1 of {table} no longer exist: the changes in them cannot be read"
    )


@pytest.mark.usefixtures("far")
def test_an_unknown_time_meets_no_limit(capsys: pytest.CaptureFixture[str]) -> None:
    write_commit(1)
    assert (read().lag_versions, read().lag_seconds, read().feed_files_days) == (FAR, None, None)
    for option in (["--max-lag", "15m"], ["--min-feed-days", "2"]):
        code, shown = call_status(option, capsys)
        assert code == 1
        assert "people: unknown: the time of the oldest commit that is not applied is unknown" in shown
    code, shown = call_status([], capsys)
    assert code == 0


def test_the_time_in_the_commit_is_that_of_delta(target: Target) -> None:
    write_deltalake("people", ROWS, mode="append")
    table_id = str(DeltaTable("people").metadata().id)
    target.seen = Activity(Position(0, table_id), NOW)
    recorded = DeltaTable("people").history(1)[0]["timestamp"]
    assert read().lag_seconds == pytest.approx(max(0.0, NOW.timestamp() - recorded / 1000), abs=0.01)
    first, *rest = name(1).read_text().splitlines()
    info = {**json.loads(first)["commitInfo"], "inCommitTimestamp": milliseconds(dt.timedelta(hours=1))}
    name(1).write_text("\n".join([*rest, json.dumps({"commitInfo": info})]))
    assert read().lag_seconds == pytest.approx(3600, abs=0.01)
