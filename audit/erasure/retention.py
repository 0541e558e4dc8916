"""When erased data can be purged from a table: the retention of its files and of its log."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.lag import parse_interval
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FILE_RETENTION", "LOG_RETENTION", "Schedule", "purge_schedule", "table_purge_schedule"]

FILE_RETENTION, LOG_RETENTION = dt.timedelta(days=7), dt.timedelta(days=30)
"""Delta's defaults where a table's properties set none."""
_MARGIN = dt.timedelta(minutes=1)
"""Delta truncates the time to minutes, and keeps a file that is exactly as old as the limit."""


@dataclass(frozen=True, slots=True)
class Schedule:
    files_on: dt.datetime
    """From this time VACUUM removes the files that held the rows, and the change files with their preimages."""
    log_on: dt.datetime
    """From this time the log up to the erasing commit can be cleaned up."""


def purge_schedule(properties: Mapping[str, str], erased_at: dt.datetime) -> Schedule:
    """``erased_at``: the time of the last commit that removed files of the rows from the table."""

    def retention(name: str, default: dt.timedelta) -> dt.timedelta:
        setting = properties.get(name)
        return default if setting is None else parse_interval(setting)

    return Schedule(
        erased_at + retention("delta.deletedFileRetentionDuration", FILE_RETENTION) + _MARGIN,
        erased_at + retention("delta.logRetentionDuration", LOG_RETENTION) + _MARGIN,
    )


def table_purge_schedule(spark: SparkSession, table: str, *, now: dt.datetime) -> Schedule:
    """Return the schedule of rows that would be erased from the table now."""
    return purge_schedule(ChangeFeed(spark, table).log.metadata().properties, now)
