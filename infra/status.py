"""Where each pipeline stands, without a JVM: the Delta log by delta-rs, the position by the sink itself."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdf.errors import CdfError, TableNotFound, TableReplaced, VersionNotFound
from cdf.lag import DEFAULT_RETENTION, RETENTION_PROPERTY, lag, parse_interval
from cdf.result import Result
from cdf.sink import Tracked

if TYPE_CHECKING:
    from infra.config.model import Project

__all__ = ["PipelineStatus", "pipeline_status"]

State = Literal["up_to_date", "behind", "empty", "failed", "unknown"]

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
    """The error's code where the state is ``failed``; ``error`` is its message."""
    error: str | None = None
    hint: str | None = None
    transient: bool = False
    """True where asking again later can succeed without anybody changing anything."""


@dataclass(frozen=True, slots=True)
class _Table:
    version: int
    table_id: str
    retention: dt.timedelta
    oldest_unapplied: dt.datetime | None


def pipeline_status(project: Project, name: str, *, now: dt.datetime | None = None) -> PipelineStatus:
    """Never raises for what is wrong with the source or the target: that is what it reports."""
    source = project.pipeline(name).source.table
    try:
        sink = project.build_sink(name)
        if not isinstance(sink, Tracked):
            return PipelineStatus(name, source, "unknown", error="this sink does not tell its position without a run")
        position = sink.position()
        table = _table(source, position.version)
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
            "failed",
            code=error.code,
            error=error.message,
            hint=error.hint,
            transient=error.transient,
        )
    if position.version is None:
        return PipelineStatus(name, source, "empty", latest_version=table.version)
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
    )


def _table(source: str, position: int | None) -> _Table:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if "/" not in source:
        raise TableNotFound(
            f"{source} is a catalog name, which cannot be looked up without Spark",
            hint="`deltarelay plan` starts Spark and tells; or name the table by its path",
        )
    try:
        table = DeltaTable(source)
        metadata = table.metadata()
        latest = table.version()
        unapplied = 0 if position is None else latest - position
        times = table.history(unapplied) if 0 < unapplied <= HISTORY_LIMIT else []
    except (DeltaError, OSError, ValueError) as error:
        raise TableNotFound(
            f"{source} cannot be read as a Delta table ({type(error).__name__})",
            hint="check the path and the rights",
        ) from error
    oldest = times[-1].get("inCommitTimestamp", times[-1].get("timestamp")) if times else None
    return _Table(
        version=latest,
        table_id=str(metadata.id),
        retention=parse_interval(metadata.configuration.get(RETENTION_PROPERTY) or DEFAULT_RETENTION),
        oldest_unapplied=None if oldest is None else dt.datetime.fromtimestamp(int(oldest) / 1000, tz=dt.UTC),
    )
