"""Position and lag of each pipeline, without a JVM: the Delta log is read by delta-rs, the position by the sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from cdf.errors import CdfError, FeedNotEnabled, TableReplaced, VersionNotFound
from cdf.lag import DEFAULT_RETENTION, RETENTION_PROPERTY, lag, parse_interval
from cdf.result import Result
from cdf.sink import Activity, Controllable, Controls, Observable, Tracked
from infra.config.limits import STUCK_AFTER
from infra.diagnostics.delta_table import open_source, read_commit_time
from infra.s3.address import is_s3
from infra.s3.model import SingleWriterCommits

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.s3.model import Storage

__all__ = ["PipelineStatus", "describe_risk", "read_activity", "read_pipeline_status"]

State = Literal[
    "up_to_date", "behind", "stuck", "paused", "stopped_by_brake", "empty", "unreachable", "failed", "unknown"
]
"""``unreachable``: source or target is temporarily unavailable; ``failed``: an error that needs a user's action; ``stuck``:
a runner holds the lease, and for longer than a limit versions are unapplied and the position does not move."""


@dataclass(frozen=True, slots=True)
class PipelineStatus(Result):
    pipeline: str
    source: str
    state: State
    position: int | None = None
    latest_version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    """Age of the oldest unapplied commit."""
    feed_files_days: float | None = None
    """Days until VACUUM may remove feed files that are still needed; negative: it may have removed them already."""
    code: str | None = None
    """The error's code where the state is ``failed`` or ``unreachable``; ``error`` is its message."""
    error: str | None = None
    hint: str | None = None
    transient: bool = False
    """True where a later attempt can succeed without a change."""
    last: Mapping[str, Any] | None = None
    """The figures of the last step of a run with ``--follow``, at the end of that step (``cdf.Followed``)."""
    controls: Controls | None = None
    """What users decided about the pipeline; None: the sink stores no decisions, or could not be read."""
    succeeded_at: dt.datetime | None = None
    """When a run succeeded last, also one without new commits. Where that is not recorded: until when a runner was at the
    target while no commit was unapplied. While a runner holds the lease and every version is applied: now."""
    moved_at: dt.datetime | None = None
    """When the position moved last; None: it never did, or it is unknown."""
    has_runner: bool | None = None
    """Whether a runner holds the lease now; None: unknown."""
    dead_letters: int | None = None
    """Rows that the target refused; None: unknown, or the sink stores none."""
    note: str | None = None
    """A risk of this configuration, although nothing is wrong."""


@dataclass(frozen=True, slots=True)
class _Table:
    version: int
    table_id: str
    feed_on: bool
    retention: dt.timedelta
    oldest_unapplied: dt.datetime | None


def read_pipeline_status(
    project: Project, name: str, *, now: dt.datetime | None = None, stuck_after: dt.timedelta = STUCK_AFTER
) -> PipelineStatus:
    """Read the status of a pipeline. Errors of source and target are reported, not raised."""
    status = _read_status(project, name, now or dt.datetime.now(dt.UTC), stuck_after)
    return replace(status, note=describe_risk(project, name))


def describe_risk(project: Project, name: str) -> str | None:
    """A risk of losing data with this configuration; None: there is no such risk."""
    source = project.pipeline(name).source.table
    if is_s3(source) and isinstance(project.storage.commits, SingleWriterCommits):
        return f"single_writer: if a second process writes to {source}, commits are lost without an error"
    return None


def read_activity(sink: Tracked) -> Activity:
    """What is seen of a pipeline at its target, without a JVM. ``controls`` is None where the sink stores none."""
    activity = sink.activity() if isinstance(sink, Observable) else Activity(sink.position())
    if activity.controls is None and isinstance(sink, Controllable):
        activity = replace(activity, controls=sink.controls())
    return activity


def _read_status(project: Project, name: str, now: dt.datetime, stuck_after: dt.timedelta) -> PipelineStatus:
    source = project.pipeline(name).source.table
    try:
        sink = project.build_sink(name)
        if not isinstance(sink, Tracked):
            return PipelineStatus(name, source, "unknown", error="this sink does not report its position without a run")
        activity = read_activity(sink)
        position, controls = activity.position, activity.controls
        table = _read_table(source, project.storage, position.version)
        if not table.feed_on:
            raise FeedNotEnabled(
                f"the change feed of {source} is off: its changes are not recorded",
                hint=f"enable it with `deltarelay feed enable {source}`; earlier changes are not recorded",
            )
        if position.table_id is not None and position.table_id != table.table_id:
            raise TableReplaced(
                f"{source} is not the table that the target was loaded from",
                hint=f"name a new target table, or reload this one: `deltarelay run --reload -p {name}`",
            )
        if position.version is not None and position.version > table.version:
            raise VersionNotFound(
                f"the target is at version {position.version}, but {source} ends at {table.version}: "
                "the source was restored from an older copy",
                hint="restore the newer commits of the source, or reload the target: "
                f"`deltarelay run --reload -p {name}`",
            )
    except CdfError as error:
        return PipelineStatus(
            name,
            source,
            "unreachable" if error.transient else "failed",
            code=error.code,
            error=error.message,
            hint=error.hint,
            transient=error.transient,
        )
    seen = PipelineStatus(
        pipeline=name,
        source=source,
        state=_judge_empty(controls or Controls()),
        latest_version=table.version,
        controls=controls,
        has_runner=activity.has_runner,
        dead_letters=activity.dead_letters,
    )
    if position.version is None:
        return seen
    behind = lag(
        position=position.version,
        latest=table.version,
        oldest_unapplied=table.oldest_unapplied,
        retention=table.retention,
        now=now,
    )
    last = activity.last
    return replace(
        seen,
        state=_judge_state(controls or Controls(), activity, table, behind.versions, now - stuck_after),
        position=position.version,
        lag_versions=behind.versions,
        lag_seconds=None if behind.versions and table.oldest_unapplied is None else behind.seconds,
        feed_files_days=behind.feed_files_days,
        # If the position was changed since by other means, the figures belong to another state
        last=last if last is not None and last.get("position") == position.version else None,
        succeeded_at=now
        if activity.has_runner and not behind.versions
        else _find_success(activity, table, behind.versions),
        moved_at=activity.moved_at,
    )


def _find_success(activity: Activity, table: _Table, lag_versions: int) -> dt.datetime | None:
    seen_at, oldest = activity.runner_seen_at, table.oldest_unapplied
    if seen_at is not None and lag_versions:  # since the oldest of these commits no run has succeeded
        seen_at = None if oldest is None else min(seen_at, oldest)
    return max(filter(None, (activity.succeeded_at, activity.moved_at, seen_at)), default=None)


def _judge_empty(controls: Controls) -> State:
    """The state of a target without a position."""
    if controls.paused is not None:
        return "paused"
    return "empty" if controls.stopped is None else "stopped_by_brake"


def _judge_state(
    controls: Controls, activity: Activity, table: _Table, lag_versions: int, stuck_since: dt.datetime
) -> State:
    """``stuck_since``: what is older than this makes a pipeline stuck."""
    if controls.paused is not None:
        return "paused"
    if not lag_versions:
        return "up_to_date"
    position = activity.position.version
    # A stop that a user has skipped by moving the position is over
    if controls.stopped is not None and (position is None or controls.stopped.first > position):
        return "stopped_by_brake"
    quiet_since = max(filter(None, (activity.moved_at, activity.runner_since)), default=None)
    is_old = table.oldest_unapplied is None or table.oldest_unapplied < stuck_since
    is_stuck = activity.has_runner and is_old and quiet_since is not None and quiet_since < stuck_since
    return "stuck" if is_stuck else "behind"


def _read_table(source: str, storage: Storage, position: int | None) -> _Table:
    table = open_source(source, storage)
    oldest = None if position is None or position >= table.version else read_commit_time(table, position + 1)
    return _Table(
        version=table.version,
        table_id=table.table_id,
        feed_on=table.feed_on,
        retention=parse_interval(table.properties.get(RETENTION_PROPERTY) or DEFAULT_RETENTION),
        oldest_unapplied=oldest,
    )
