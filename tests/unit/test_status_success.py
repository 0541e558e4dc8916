"""When a run has succeeded where the sink does not record it: a real source, and a target that reports what it sees."""

from __future__ import annotations

import datetime as dt

import pytest
from deltalake import DeltaTable, write_deltalake

from cdf.sink import Activity, Position
from infra.config.limits import Limits
from infra.diagnostics.status import PipelineStatus, read_pipeline_status
from infra.monitoring.health import find_incidents
from tests.unit.test_metrics import ROWS, Target, project, target

__all__ = ["target"]

HOUR = dt.timedelta(hours=1)
LIMITS = Limits(max_age=HOUR)


def see(target: Target, moved: float, seen: float, *, has_runner: bool | None = None) -> PipelineStatus:
    """``moved``, ``seen``: hours before now"""
    now = dt.datetime.now(dt.UTC)
    position = Position(0, str(DeltaTable("people").metadata().id))
    target.seen = Activity(
        position, now - moved * HOUR, has_runner, now - seen * HOUR, runner_seen_at=now - seen * HOUR
    )
    return read_pipeline_status(project(), "people", now=now)


def kinds(status: PipelineStatus, after: dt.timedelta = dt.timedelta()) -> list[str]:
    return [one.kind for one in find_incidents(status, LIMITS, dt.datetime.now(dt.UTC) + after)]


def test_a_run_that_found_nothing_new_is_a_success(target: Target) -> None:
    assert kinds(see(target, moved=72, seen=0.5)) == []
    assert kinds(see(target, moved=72, seen=1.5)) == ["stale"]  # the scheduler is down
    assert kinds(see(target, moved=0.5, seen=0.4)) == []


def test_a_run_that_leaves_a_commit_unapplied_is_none(target: Target) -> None:
    write_deltalake("people", ROWS, mode="append")
    committed_at = dt.datetime.fromtimestamp(DeltaTable("people").history(1)[0]["timestamp"] / 1000, dt.UTC)
    failing = see(target, moved=72, seen=-2)  # seen after the commit
    assert failing.state == "behind"
    assert failing.succeeded_at == committed_at
    assert (kinds(failing), kinds(failing, HOUR)) == ([], ["stale"])
    idle = see(target, moved=72, seen=0.5)  # the last run was before the commit, and found nothing
    assert idle.succeeded_at is not None
    assert idle.succeeded_at < committed_at
    assert kinds(idle) == []


def test_a_pipeline_without_a_first_success_is_stale_unless_a_runner_copies(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for has_runner, found in ((None, ["stale"]), (False, ["stale"]), (True, [])):
        target.seen = Activity(has_runner=has_runner)
        status = read_pipeline_status(project(), "people")
        assert status.state == "empty"
        assert kinds(status) == found
        assert find_incidents(status, Limits(), dt.datetime.now(dt.UTC)) == ()
