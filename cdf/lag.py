"""How far a target is behind, and how long the files that it still needs will exist. Pure arithmetic, no Spark."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from cdf.errors import SourceError
from cdf.result import Result

__all__ = ["Lag", "lag", "parse_interval", "RETENTION_PROPERTY", "DEFAULT_RETENTION"]

RETENTION_PROPERTY = "delta.deletedFileRetentionDuration"
DEFAULT_RETENTION = "interval 1 week"
"""Delta's own default of ``delta.deletedFileRetentionDuration``."""


@dataclass(frozen=True, slots=True)
class Lag(Result):
    versions: int
    seconds: float
    """Age of the oldest commit that is not applied yet; 0 if all are applied."""
    feed_files_days: float | None
    """Days until VACUUM may remove feed files that are still needed; negative: it may have. None: none needed."""


def lag(
    *,
    position: int,
    latest: int,
    oldest_unapplied: dt.datetime | None,
    retention: dt.timedelta,
    now: dt.datetime,
) -> Lag:
    """``oldest_unapplied``: the time of commit ``position + 1``; None: it does not exist or its time is unknown."""
    behind = max(0, latest - position)
    if behind == 0 or oldest_unapplied is None:
        return Lag(behind, 0.0, None)
    age = now - oldest_unapplied
    # Change files count as removed from the commit that wrote them
    left = retention - age
    return Lag(behind, round(max(0.0, age.total_seconds()), 3), round(left.total_seconds() / 86400, 2))


_UNIT_SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}


def parse_interval(text: str) -> dt.timedelta:
    """Delta's retention intervals: ``interval 1 week``, ``interval 30 days 12 hours``."""
    words = text.lower().removeprefix("interval").split()
    try:
        seconds = sum(
            float(number) * _UNIT_SECONDS[unit.rstrip("s")]
            for number, unit in zip(words[::2], words[1::2], strict=True)
        )
    except (KeyError, ValueError) as error:
        raise SourceError(
            f"the retention {text!r} is not an interval", hint="write it as in: interval 7 days"
        ) from error
    return dt.timedelta(seconds=seconds)
