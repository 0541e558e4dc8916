"""Durations, the ids of runners, and which incidents a status has."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace
from typing import Any

import pytest

from audit.checkpoints.coverage import TrailCoverage
from cdf.sink import BrakeStop, Controls
from cdf.sink.runner_id import create_runner_id, read_start
from infra.config.limits import Limits
from infra.diagnostics.status import PipelineStatus
from infra.durations import parse_duration
from infra.monitoring.health import describe_unknown, find_incidents, format_span, judge_anchoring, list_unjudged

NOW = dt.datetime(2026, 3, 1, 9, tzinfo=dt.UTC)
HEALTHY = PipelineStatus(
    "p", "lake/t", "behind", position=4, latest_version=6, lag_versions=2, lag_seconds=900.0, feed_files_days=2.0,
    moved_at=NOW - dt.timedelta(minutes=30), succeeded_at=NOW - dt.timedelta(hours=1), has_runner=True, dead_letters=3,
)  # fmt: skip
LIMITS = Limits(max_lag=dt.timedelta(minutes=15), min_feed_days=2, max_age=dt.timedelta(hours=1), max_dead_letters=3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("1h", 3600), ("2d", 172_800), ("1.5h", 5400), (" 45 S ", 45), ("36500d", 3.1536e9)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "15", "m", "-1m", "0s", "0.0h", "15 minutes", "1h30m", "1e3s", "9" * 400 + "d", "36501d"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (possible )?duration: "):
        parse_duration(text)


def test_the_id_of_a_runner_says_when_it_began_and_nothing_about_the_machine() -> None:
    before = dt.datetime.now(dt.UTC)
    first, second = create_runner_id(), create_runner_id()
    assert first != second
    began = read_start(first)
    assert began is not None
    assert abs(began - before) < dt.timedelta(seconds=5)
    assert uuid.UUID(first).node != uuid.UUID(second).node
    assert read_start(uuid.uuid4().hex) is None
    assert read_start("another release's") is None


def test_a_pipeline_at_its_limits_has_no_incident() -> None:
    assert find_incidents(HEALTHY, LIMITS, NOW) == ()
    assert find_incidents(replace(HEALTHY, lag_seconds=1e9, dead_letters=10**9), Limits(), NOW) == ()


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"lag_seconds": 901.0}, "lagging", "2 versions are not applied, the oldest for 15 min 1 s"),
        ({"lag_seconds": 901.0, "lag_versions": 1}, "lagging", "1 version is not applied, the oldest for 15 min 1 s"),
        (
            {"feed_files_days": 1.99},
            "feed_expiring",
            "VACUUM may remove change files that are still needed in 2.0 days",
        ),
        (
            {"succeeded_at": NOW - dt.timedelta(hours=1, seconds=1)},
            "stale",
            "the last run that succeeded ended 1 h 1 s ago",
        ),
        ({"dead_letters": 4}, "dead_letters", "4 rows are dead letters"),
        (
            {"state": "stuck"},
            "stuck",
            "a runner holds the lease, 2 versions are not applied, and nothing moves; the position moved 30 min ago",
        ),
        ({"state": "failed", "error": "no table", "lag_seconds": None}, "failed", "no table"),
        ({"state": "unreachable", "error": "no server"}, "unreachable", "no server"),
        (
            {"state": "stopped_by_brake", "controls": Controls(stopped=BrakeStop(NOW, 5, 6, "too many"))},
            "stopped_by_brake",
            "too many",
        ),
    ],
)
def test_each_incident(changes: dict[str, Any], kind: str, text: str) -> None:
    assert [(one.kind, one.text) for one in find_incidents(replace(HEALTHY, **changes), LIMITS, NOW)] == [(kind, text)]


def test_one_dead_letter() -> None:
    (found,) = find_incidents(replace(HEALTHY, dead_letters=1), Limits(max_dead_letters=0), NOW)
    assert found.text == "1 row is a dead letter"


def test_a_paused_pipeline_has_only_incidents_that_a_pause_does_not_explain() -> None:
    paused = replace(
        HEALTHY, state="paused", lag_seconds=1e6, succeeded_at=NOW - dt.timedelta(days=9), feed_files_days=0.5
    )
    assert [one.kind for one in find_incidents(paused, LIMITS, NOW)] == ["feed_expiring"]


def test_what_a_status_does_not_know_is_not_over() -> None:
    assert set(list_unjudged(HEALTHY)) == set()
    assert set(list_unjudged(replace(HEALTHY, lag_seconds=None, feed_files_days=None))) == {"lagging", "feed_expiring"}
    assert set(list_unjudged(replace(HEALTHY, lag_versions=0, feed_files_days=None))) == set()
    assert set(list_unjudged(replace(HEALTHY, dead_letters=None, succeeded_at=None))) == {"dead_letters", "stale"}
    assert set(list_unjudged(PipelineStatus("p", "t", "empty", dead_letters=0))) == {
        "stuck", "stopped_by_brake", "lagging", "feed_expiring", "stale",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "limits", "unknown"),
    [
        (HEALTHY, LIMITS, None),
        (replace(HEALTHY, lag_seconds=None), Limits(max_lag=NOW - NOW), "the time of the oldest commit"),
        (replace(HEALTHY, lag_seconds=None), Limits(min_feed_days=1), "the time of the oldest commit"),
        (replace(HEALTHY, lag_seconds=None), Limits(max_age=NOW - NOW), None),
        (replace(HEALTHY, lag_seconds=None, state="paused"), Limits(max_lag=NOW - NOW), None),
        (replace(HEALTHY, succeeded_at=None), LIMITS, "when a run succeeded last is unknown"),
        (PipelineStatus("p", "t", "unknown"), Limits(max_lag=NOW - NOW), "the lag is unknown"),
        (PipelineStatus("p", "t", "unknown"), Limits(), None),
        (PipelineStatus("p", "t", "empty"), LIMITS, None),
        (PipelineStatus("p", "t", "failed", code="x"), LIMITS, None),
    ],
)
def test_a_limit_on_what_is_unknown_is_not_met(status: PipelineStatus, limits: Limits, unknown: str | None) -> None:
    found = describe_unknown(status, limits)
    assert found is None if unknown is None else (found or "").startswith(unknown)


def test_a_first_success_is_missed_at_once_or_after_the_maximum_age() -> None:
    empty, hour = PipelineStatus("p", "t", "empty"), dt.timedelta(hours=1)

    def texts(status: PipelineStatus, watched_for: dt.timedelta | None) -> list[str]:
        return [one.text for one in find_incidents(status, LIMITS, NOW, watched_for=watched_for)]

    unknown = ["no run has succeeded yet, and whether a runner is at work is unknown"]
    assert texts(empty, None) == unknown
    assert texts(empty, hour) == []
    assert texts(empty, hour * 1.01) == unknown
    assert texts(replace(empty, has_runner=False), None) == ["no run has succeeded yet, and no runner is at work"]
    assert texts(replace(empty, has_runner=True), None) == []


def test_commits_that_wait_for_an_anchor_since_an_unknown_time_wait_for_too_long() -> None:
    coverage = TrailCoverage(2, 1, NOW, False, (), (), unanchored_commits=2)
    limits = Limits(max_unanchored=dt.timedelta(hours=1))
    (found,) = judge_anchoring(coverage, limits, NOW)
    assert found.text == "2 commits are covered by no anchor, since when is unknown"
    assert judge_anchoring(coverage, Limits(), NOW) == ()
    assert judge_anchoring(replace(coverage, unanchored_commits=0), limits, NOW) == ()


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.6, "1 min"), (90, "1 min 30 s"), (90_061, "1 d 1 h")])
def test_spans(seconds: float, text: str) -> None:
    assert format_span(dt.timedelta(seconds=seconds)) == text
