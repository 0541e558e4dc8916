"""Position and lag of each pipeline, without a JVM: the Delta log is read by delta-rs, the position by the sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from cdf.errors import CdfError, FeedNotEnabled, SinkError, TableReplaced, VersionNotFound
from cdf.lag import DEFAULT_RETENTION, RETENTION_PROPERTY, lag, parse_interval
from cdf.result import Result
from cdf.sink import Controllable, Controls, Monitored, Sink, Tracked
from infra.diagnostics.delta_table import open_source, translate_read_error
from infra.s3.address import is_s3
from infra.s3.model import SingleWriterCommits

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.s3.model import Storage

__all__ = ["PipelineStatus", "describe_risk", "read_pipeline_status"]

State = Literal["up_to_date", "behind", "paused", "stopped_by_brake", "empty", "unreachable", "failed", "unknown"]
"""``unreachable``: source or target is temporarily unavailable; ``failed``: an error that needs a user's action."""

HISTORY_LIMIT = 20_000
"""With more unapplied commits than this their age is omitted: reading them would take seconds."""


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
    note: str | None = None
    """A risk of this configuration, although nothing is wrong."""


@dataclass(frozen=True, slots=True)
class _Table:
    version: int
    table_id: str
    feed_on: bool
    retention: dt.timedelta
    oldest_unapplied: dt.datetime | None


def read_pipeline_status(project: Project, name: str, *, now: dt.datetime | None = None) -> PipelineStatus:
    """Read the status of a pipeline. Errors of source and target are reported, not raised."""
    return replace(_read_status(project, name, now), note=describe_risk(project, name))


def describe_risk(project: Project, name: str) -> str | None:
    """A risk of losing data with this configuration; None: there is no such risk."""
    source = project.pipeline(name).source.table
    if is_s3(source) and isinstance(project.storage.commits, SingleWriterCommits):
        return f"single_writer: if a second process writes to {source}, commits are lost without an error"
    return None


def _read_last_step(sink: Sink) -> Mapping[str, Any] | None:
    """For information only: a role may read positions without the permission to read this."""
    with suppress(SinkError):
        return sink.reported() if isinstance(sink, Monitored) else None
    return None


def _read_status(project: Project, name: str, now: dt.datetime | None) -> PipelineStatus:
    source = project.pipeline(name).source.table
    try:
        sink = project.build_sink(name)
        if not isinstance(sink, Tracked):
            return PipelineStatus(name, source, "unknown", error="this sink does not report its position without a run")
        position = sink.position()
        controls = sink.controls() if isinstance(sink, Controllable) else None
        last = _read_last_step(sink)
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
    if position.version is None:
        state: State = "empty" if controls is None or controls.paused is None else "paused"
        return PipelineStatus(name, source, state, latest_version=table.version, controls=controls)
    if last is not None and last.get("position") != position.version:
        last = None  # the position was changed since by other means: the figures belong to another state
    behind = lag(
        position=position.version,
        latest=table.version,
        oldest_unapplied=table.oldest_unapplied,
        retention=table.retention,
        now=now or dt.datetime.now(dt.UTC),
    )
    return PipelineStatus(
        pipeline=name,
        source=source,
        state=_judge_state(controls or Controls(), behind.versions),
        position=position.version,
        latest_version=table.version,
        lag_versions=behind.versions,
        lag_seconds=None if behind.versions and table.oldest_unapplied is None else behind.seconds,
        feed_files_days=behind.feed_files_days,
        last=last,
        controls=controls,
    )


def _judge_state(controls: Controls, lag_versions: int) -> State:
    if controls.paused is not None:
        return "paused"
    if controls.stopped is not None and lag_versions:
        return "stopped_by_brake"
    return "behind" if lag_versions else "up_to_date"


def _read_table(source: str, storage: Storage, position: int | None) -> _Table:
    from deltalake.exceptions import DeltaError

    table = open_source(source, storage)
    unapplied = 0 if position is None else table.version - position
    try:
        times = table.handle.history(unapplied) if 0 < unapplied <= HISTORY_LIMIT else []
    except (DeltaError, OSError, ValueError) as error:
        raise translate_read_error(source, error) from error
    oldest = times[-1].get("inCommitTimestamp", times[-1].get("timestamp")) if times else None
    return _Table(
        version=table.version,
        table_id=table.table_id,
        feed_on=table.feed_on,
        retention=parse_interval(table.properties.get(RETENTION_PROPERTY) or DEFAULT_RETENTION),
        oldest_unapplied=None if oldest is None else dt.datetime.fromtimestamp(int(oldest) / 1000, tz=dt.UTC),
    )
