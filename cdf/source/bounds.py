"""Bounds of a range, and the versions that they mean.

Delta resolves timestamps too, but it silently starts at the earliest retained commit if the requested one has expired, and
it reads a time without a zone in the session's zone. So bounds are resolved to versions here, otherwise by Delta's own
rules, and Delta gets versions only.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.errors import ConfigError, VersionNotFound, VersionsExpired

if TYPE_CHECKING:
    from cdf.source.log import TableLog

__all__ = ["Bound", "parse_timestamp", "resolve_start", "resolve_end"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A version or a time, never both."""

    version: int | None = None
    timestamp: dt.datetime | None = None
    latest: bool = False

    @classmethod
    def of(cls, side: str, *, version: int | str | None, timestamp: dt.datetime | str | None) -> Bound | None:
        if version is not None and timestamp is not None:
            raise ConfigError(
                f"both {side}_version and {side}_timestamp are given",
                hint="give one of them",
                condition="DELTA_MULTIPLE_CDC_BOUNDARY",
            )
        if timestamp is not None:
            return cls(timestamp=parse_timestamp(timestamp, name=f"{side}_timestamp"))
        if version is None:
            return None
        if version == "latest" and side == "start":
            return cls(latest=True)
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ConfigError(
                f"{side}_version is not a version: {version!r}",
                hint=f"versions are whole numbers from 0; a time goes into {side}_timestamp",
                condition="DELTA_VERSION_INVALID",
            )
        return cls(version=version)


def parse_timestamp(value: dt.datetime | str, *, name: str) -> dt.datetime:
    """Parse an instant. A time without a zone is refused: it would mean another commit in each session zone."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise ConfigError(
                f"{name} is not a time: {value!r}",
                hint="write it like 2026-01-31T08:00:00+01:00 or 2026-01-31T07:00:00Z",
                condition="DELTA_TIMESTAMP_INVALID",
            ) from error
    if not isinstance(value, dt.datetime):
        raise ConfigError(f"{name} is not a time: {value!r}", hint="give a datetime with a zone, or its ISO-8601 text")
    if value.tzinfo is None:
        raise ConfigError(
            f"{name} has no zone: {value.isoformat(sep=' ')}",
            hint=f"add the zone, for instance {value.isoformat()}Z for UTC",
        )
    return value.astimezone(dt.UTC)


def resolve_start(log: TableLog, start: Bound, *, table: str) -> int:
    latest = log.latest()
    if start.latest:
        return latest
    if start.version is not None:
        if start.version > latest:
            raise VersionNotFound(
                f"{table} has no version {start.version} yet; the latest is {latest}",
                hint=f"start at {latest} or before",
                condition="DELTA_CDC_START_VERSION_AFTER_LATEST",
                latest=latest,
            )
        return start.version
    assert start.timestamp is not None
    times = log.times()
    for version, time in times.items():
        if time < start.timestamp:
            continue
        # The commit before is gone: whether it belongs to the range is unknown.
        if version > 0 and version - 1 not in times and time > start.timestamp:
            raise VersionsExpired(
                f"the commits of {table} before version {version} ({_iso(time)}) no longer exist, so the changes since the "
                "start time are incomplete",
                hint=f"start at version {version} if the older changes are not needed",
                earliest=version,
            )
        return version
    raise VersionNotFound(
        f"the start time is after the last commit of {table} (version {latest}, {_iso(times[latest])})",
        hint="choose an earlier time",
        condition="DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
        latest=latest,
    )


def resolve_end(log: TableLog, end: Bound | None, *, table: str) -> int:
    latest = log.latest()
    if end is None:
        return latest
    if end.version is not None:
        return min(end.version, latest)
    assert end.timestamp is not None
    times = log.times()
    if end.timestamp > times[latest]:
        raise VersionNotFound(
            f"the end time is after the last commit of {table} (version {latest}, {_iso(times[latest])})",
            hint="leave out the end to read up to the latest version",
            condition="DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
            latest=latest,
        )
    before = [version for version, time in times.items() if time <= end.timestamp]
    if not before:
        raise VersionsExpired(
            f"the end time is before the first commit of {table} that still exists",
            hint="choose a later time",
            condition="DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        )
    last = before[-1]
    if last < latest and last + 1 not in times and times[last] < end.timestamp:
        raise VersionsExpired(
            f"the commits of {table} after version {last} ({_iso(times[last])}) no longer exist, so the changes up to the "
            "end time are incomplete",
            hint=f"end at version {last} if the later changes are not needed",
            version=last,
        )
    return last


def _iso(time: dt.datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
