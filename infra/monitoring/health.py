"""Judges the status of a pipeline: which incidents it has. Pure decisions over what ``infra.diagnostics.status`` read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from cdf.result import Result

if TYPE_CHECKING:
    from audit.checkpoints.coverage import TrailCoverage
    from infra.config.limits import Limits
    from infra.diagnostics.status import PipelineStatus

__all__ = [
    "KINDS",
    "Incident",
    "IncidentKind",
    "describe_unknown",
    "find_incidents",
    "format_span",
    "judge_anchoring",
    "judge_erasures",
    "list_unjudged",
]

Number = TypeVar("Number", int, dt.timedelta)
IncidentKind = Literal[
    "failed",
    "unreachable",
    "stuck",
    "stopped_by_brake",
    "lagging",
    "feed_expiring",
    "stale",
    "dead_letters",
    "person_returned",
    "verify_difference",
    "not_anchored",
    "erasure_overdue",
]
"""The last four are not found in the status of a pipeline, but by a run, by ``verify``, in a trail and its anchors, and in
the register of erasures."""

KINDS: tuple[IncidentKind, ...] = get_args(IncidentKind)


@dataclass(frozen=True, slots=True)
class Incident(Result):
    kind: IncidentKind
    text: str
    """What is wrong, with its figures; without row values."""


def find_incidents(
    status: PipelineStatus, limits: Limits, now: dt.datetime, *, watched_for: dt.timedelta | None = None
) -> tuple[Incident, ...]:
    """The most urgent first. A paused pipeline has none of those that a pause explains.

    ``watched_for``: how long the caller has watched the pipeline; a first success is not missed earlier than ``max_age``
    after it began. None: a first success is missed at once.
    """
    return tuple(_find_incidents(status, limits, now, watched_for))


def _find_incidents(
    status: PipelineStatus, limits: Limits, now: dt.datetime, watched_for: dt.timedelta | None
) -> Iterator[Incident]:
    if status.state in ("failed", "unreachable"):
        yield Incident(status.state, status.error or "")
        return
    if status.state == "stopped_by_brake" and status.controls is not None and status.controls.stopped is not None:
        yield Incident("stopped_by_brake", status.controls.stopped.message)
    if status.state == "stuck":
        yield Incident("stuck", _describe_stuck(status, now))
    if status.feed_files_days is not None and _is_below(status.feed_files_days, limits.min_feed_days):
        yield Incident(
            "feed_expiring",
            f"VACUUM may remove change files that are still needed in {max(0.0, status.feed_files_days):.1f} days",
        )
    if status.dead_letters is not None and _is_above(status.dead_letters, limits.max_dead_letters):
        number = status.dead_letters
        text = "1 row is a dead letter" if number == 1 else f"{number} rows are dead letters"
        yield Incident("dead_letters", text)
    if status.state == "paused":
        return
    lag = None if status.lag_seconds is None else dt.timedelta(seconds=status.lag_seconds)
    if lag is not None and _is_above(lag, limits.max_lag):
        yield Incident("lagging", f"{_count_versions(status)} not applied, the oldest for {format_span(lag)}")
    if status.succeeded_at is not None and _is_above(age := now - status.succeeded_at, limits.max_age):
        yield Incident("stale", f"the last run that succeeded ended {format_span(age)} ago")
    is_missed = watched_for is None or _is_above(watched_for, limits.max_age)
    if status.state == "empty" and not status.has_runner and limits.max_age is not None and is_missed:
        seen = "whether a runner is at work is unknown" if status.has_runner is None else "no runner is at work"
        yield Incident("stale", f"no run has succeeded yet, and {seen}")


def list_unjudged(status: PipelineStatus) -> Collection[IncidentKind]:
    """The kinds about which the status says nothing: none of them is over because ``find_incidents`` does not find it."""
    if status.code is not None:  # source or target cannot be read
        return KINDS
    kinds = set[IncidentKind]()
    if status.state == "paused":
        kinds |= {"stuck", "stopped_by_brake", "lagging", "stale"}
    if status.lag_versions is None:  # no position: nothing is applied yet, or the target was lost
        kinds |= {"stuck", "stopped_by_brake", "lagging", "feed_expiring"}
    if _has_unknown_lag(status):
        kinds |= {"lagging", "feed_expiring"}
    if status.succeeded_at is None:
        kinds.add("stale")
    if status.dead_letters is None:
        kinds.add("dead_letters")
    return kinds


def describe_unknown(status: PipelineStatus, limits: Limits) -> str | None:
    """What a limit needs and the status does not know; None: nothing. An empty pipeline has no lag, and ``max_age``
    applies to it; a sink without dead letters has none."""
    if status.code is not None or status.state == "empty":
        return None
    is_paused = status.state == "paused"
    if limits.min_feed_days is not None or (limits.max_lag is not None and not is_paused):
        if status.state == "unknown":
            return "the lag is unknown"
        if _has_unknown_lag(status):
            return "the time of the oldest commit that is not applied is unknown"
    if limits.max_age is not None and not is_paused and status.succeeded_at is None:
        return "when a run succeeded last is unknown"
    return None


def _has_unknown_lag(status: PipelineStatus) -> bool:
    return bool(status.lag_versions) and status.lag_seconds is None


def judge_anchoring(coverage: TrailCoverage | None, limits: Limits, now: dt.datetime) -> tuple[Incident, ...]:
    """``coverage``: None where there is no trail yet. If it is unknown since when commits wait, they wait for too long."""
    if coverage is None or not coverage.unanchored_commits or limits.max_unanchored is None:
        return ()
    age = None if coverage.unanchored_since is None else now - coverage.unanchored_since
    if age is not None and age <= limits.max_unanchored:
        return ()
    commits = coverage.unanchored_commits
    words = "1 commit is" if commits == 1 else f"{commits} commits are"
    since = "since when is unknown" if age is None else f"the oldest for {format_span(age)}"
    return (Incident("not_anchored", f"{words} covered by no anchor, {since}"),)


def judge_erasures(overdue: int, limits: Limits) -> tuple[Incident, ...]:
    if not _is_above(overdue, limits.max_overdue_erasures):
        return ()
    words = "1 request is past its due date" if overdue == 1 else f"{overdue} requests are past their due date"
    return (Incident("erasure_overdue", f"{words} and not certified"),)


def _describe_stuck(status: PipelineStatus, now: dt.datetime) -> str:
    moved = "" if status.moved_at is None else f"; the position moved {format_span(now - status.moved_at)} ago"
    return f"a runner holds the lease, {_count_versions(status)} not applied, and nothing moves{moved}"


def _count_versions(status: PipelineStatus) -> str:
    return "1 version is" if status.lag_versions == 1 else f"{status.lag_versions} versions are"


def _is_above(value: Number, limit: Number | None) -> bool:
    return limit is not None and value > limit


def _is_below(value: float, limit: float | None) -> bool:
    return limit is not None and value < limit


def format_span(span: dt.timedelta) -> str:
    """``3 d 4 h``, ``2 h 5 min``, ``45 s``: the two largest units."""
    seconds = max(0, round(span.total_seconds()))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"
