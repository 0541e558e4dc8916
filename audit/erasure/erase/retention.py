"""When what was erased can go for good: pure decisions over times and retentions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from cdf.lag import parse_interval

__all__ = ["FILE_RETENTION", "LOG_RETENTION", "Schedule", "schedule"]

FILE_RETENTION, LOG_RETENTION = dt.timedelta(days=7), dt.timedelta(days=30)
"""What Delta keeps where a table's properties say nothing."""
_MARGIN = dt.timedelta(minutes=1)
"""Delta cuts the time at minutes, and a file that is as old as the limit stays."""


@dataclass(frozen=True, slots=True)
class Schedule:
    files_on: dt.datetime
    """From then on VACUUM removes the files that held the rows, and the change files with their images."""
    log_on: dt.datetime
    """From then on the log up to the erasing commit can be cleaned."""


def schedule(properties: Mapping[str, str], erased_at: dt.datetime) -> Schedule:
    """``erased_at``: of the last commit that took files of the rows out of the table."""

    def retention(name: str, default: dt.timedelta) -> dt.timedelta:
        told = properties.get(name)
        return default if told is None else parse_interval(told)

    return Schedule(
        erased_at + retention("delta.deletedFileRetentionDuration", FILE_RETENTION) + _MARGIN,
        erased_at + retention("delta.logRetentionDuration", LOG_RETENTION) + _MARGIN,
    )
