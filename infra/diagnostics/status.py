"""Where each pipeline stands, without a JVM: the Delta log by delta-rs, the position by the sink itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from cdf.errors import CdfError, FeedNotEnabled, SinkError, TableReplaced, VersionNotFound
from cdf.lag import DEFAULT_RETENTION, RETENTION_PROPERTY, lag, parse_interval
from cdf.result import Result
from cdf.sink import Monitored, Sink, Tracked
from infra.diagnostics.delta_table import open_source, unreadable
from infra.s3.address import is_s3
from infra.s3.model import SingleWriterCommits

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.s3.model import Storage

__all__ = ["PipelineStatus", "at_stake", "pipeline_status"]

State = Literal["up_to_date", "behind", "empty", "unreachable", "failed", "unknown"]
"""``unreachable``: source or target cannot be asked at the moment; ``failed``: what they say needs somebody."""

HISTORY_LIMIT = 20_000
"""Beyond so many unapplied commits their age is left out: reading them would take seconds."""


@dataclass(frozen=True, slots=True)
class PipelineStatus(Result):
    pipeline: str
    source: str
    state: State
    position: int | None = None
    latest_version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    """Age of the oldest commit that is not applied."""
    feed_files_days: float | None = None
    """Days until VACUUM may remove feed files that are still needed; negative: it may have done so already."""
    code: str | None = None
    """The error's code where the state is ``failed`` or ``unreachable``; ``error`` is its message."""
    error: str | None = None
    hint: str | None = None
    transient: bool = False
    """True where asking again later can succeed without anybody changing anything."""
    last: Mapping[str, Any] | None = None
    """The figures of the last step of whoever follows, as they were at its end (``cdf.Followed``)."""
    note: str | None = None
    """What is at stake with this set-up, although nothing is wrong."""


@dataclass(frozen=True, slots=True)
class _Table:
    version: int
    table_id: str
    feed_on: bool
    retention: dt.timedelta
    oldest_unapplied: dt.datetime | None


def pipeline_status(project: Project, name: str, *, now: dt.datetime | None = None) -> PipelineStatus:
    """Never raises for what is wrong with the source or the target: that is what it reports."""
    return replace(_status(project, name, now), note=at_stake(project, name))


def at_stake(project: Project, name: str) -> str | None:
    """What can be lost with this set-up although nothing is wrong; None: nothing."""
    source = project.pipeline(name).source.table
    if is_s3(source) and isinstance(project.storage.commits, SingleWriterCommits):
        return f"single_writer: should a second process write to {source}, commits vanish without an error"
    return None


def _last_step(sink: Sink) -> Mapping[str, Any] | None:
    """Information only: whoever may read positions need not have the right to read it."""
    with suppress(SinkError):
        return sink.reported() if isinstance(sink, Monitored) else None
    return None


def _status(project: Project, name: str, now: dt.datetime | None) -> PipelineStatus:
    source = project.pipeline(name).source.table
    try:
        sink = project.build_sink(name)
        if not isinstance(sink, Tracked):
            return PipelineStatus(name, source, "unknown", error="this sink does not tell its position without a run")
        position = sink.position()
        last = _last_step(sink)
        table = _table(source, project.storage, position.version)
        if not table.feed_on:
            raise FeedNotEnabled(
                f"the change feed of {source} is off: no change of it is recorded",
                hint=f"`deltarelay feed enable {source}` turns it on; earlier changes are not in it",
            )
        if position.table_id is not None and position.table_id != table.table_id:
            raise TableReplaced(
                f"{source} is another table than the one the target was filled from",
                hint=f"name a new target table, or make this one anew: `deltarelay run --reload -p {name}`",
            )
        if position.version is not None and position.version > table.version:
            raise VersionNotFound(
                f"the target stands at version {position.version}, but {source} ends at {table.version}: "
                "the source was restored from an older copy",
                hint="bring the source's newer commits back, or make the target anew: "
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
        return PipelineStatus(name, source, "empty", latest_version=table.version)
    if last is not None and last.get("position") != position.version:
        last = None  # the target was moved otherwise since: the figures tell of another state
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
        state="behind" if behind.versions else "up_to_date",
        position=position.version,
        latest_version=table.version,
        lag_versions=behind.versions,
        lag_seconds=None if behind.versions and table.oldest_unapplied is None else behind.seconds,
        feed_files_days=behind.feed_files_days,
        last=last,
    )


def _table(source: str, storage: Storage, position: int | None) -> _Table:
    from deltalake.exceptions import DeltaError

    table = open_source(source, storage)
    unapplied = 0 if position is None else table.version - position
    try:
        times = table.handle.history(unapplied) if 0 < unapplied <= HISTORY_LIMIT else []
    except (DeltaError, OSError, ValueError) as error:
        raise unreadable(source, error) from error
    oldest = times[-1].get("inCommitTimestamp", times[-1].get("timestamp")) if times else None
    return _Table(
        version=table.version,
        table_id=table.table_id,
        feed_on=table.feed_on,
        retention=parse_interval(table.properties.get(RETENTION_PROPERTY) or DEFAULT_RETENTION),
        oldest_unapplied=None if oldest is None else dt.datetime.fromtimestamp(int(oldest) / 1000, tz=dt.UTC),
    )
