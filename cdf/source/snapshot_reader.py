"""Reads a table at one version, by time travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import VersionNotFound, VersionsExpired, condition_of
from cdf.read_errors import translate
from cdf.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.source.table_handle import TableHandle

__all__ = ["read_snapshot"]

_GONE = {
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_STATE_RECOVER_ERROR",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
}


def read_snapshot(table: TableHandle, version: int) -> DataFrame:
    """The table's rows at ``version``. Raises VersionNotFound beyond the latest, VersionsExpired if its files are gone."""
    check_session(table.spark)
    latest = table.log.latest()
    if version > latest or version < 0:
        raise VersionNotFound(
            f"{table.table} has no version {version}; the latest is {latest}",
            hint=f"choose a version up to {latest}",
            condition="DELTA_VERSION_NOT_FOUND",
            latest=latest,
        )
    try:
        rows = table.spark.read.format("delta").option("versionAsOf", version).load(table.location)
        if table.over_connect:
            _ = rows.schema  # the server reads the table's log only now
        return rows
    except Exception as error:
        condition = condition_of(error)
        if condition in _GONE:
            raise VersionsExpired(
                f"version {version} of {table.table} can no longer be read as a whole",
                hint="choose a later version; delta.deletedFileRetentionDuration and delta.logRetentionDuration determine "
                "how long versions can be read",
                condition=condition,
                version=version,
            ) from error
        raise translate(error, table=table.table, first=version, last=version) from error
