"""Errors of Spark and Delta while the feed is read, as errors of ``cdf.errors``."""

from __future__ import annotations

from cdf.errors import (
    CdfError,
    FeedNotEnabled,
    SchemaDrift,
    SourceError,
    SourceUnavailable,
    VersionsExpired,
    condition_of,
)

__all__ = ["translate"]


def translate(error: Exception, *, table: str, first: int, last: int) -> CdfError:
    """A failure of reading ``first..last`` in our words. Whatever is unknown stays a plain SourceError with its cause."""
    if isinstance(error, CdfError):
        return error
    condition = condition_of(error)
    versions = f"version {first} to {last} of {table}"
    text = str(error)
    if condition == "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION":
        return VersionsExpired(
            f"{versions} starts before the table's retention of deleted files, and Delta refuses to read it",
            hint="raise the table property delta.deletedFileRetentionDuration (VACUUM must not have removed the files), "
            "or start later",
            condition=condition,
        )
    if condition in {"DELTA_MISSING_CHANGE_DATA"}:
        return FeedNotEnabled(
            f"the change feed was not on for all of {versions}",
            hint="`deltarelay feed status` tells since when it is on; start from a snapshot after that",
            condition=condition,
        )
    if condition in {
        "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
        "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    }:
        return SchemaDrift(
            f"{versions} cannot be read with the table's present schema",
            hint="a column was renamed, dropped or changed its type inside or after the range: read each side by itself",
            condition=condition,
        )
    if (
        condition in {"FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND_DETAILED"}
        or "FileNotFoundException" in text
    ):
        return VersionsExpired(
            f"files that {versions} needs cannot be read: VACUUM may have removed them",
            hint="make the target anew from a snapshot, `deltarelay run --reload`; "
            "raise delta.deletedFileRetentionDuration above the longest pause of the pipeline",
            condition=condition,
        )
    if "Python worker exited unexpectedly" in text:
        return SourceUnavailable(
            f"reading {versions} broke off: Spark lost a Python worker, more often than it tries again",
            hint="nothing is lost: run again. Where it comes back, the machine is short of memory for the workers",
            condition=condition,
        )
    return SourceError(
        f"reading {versions} failed" + (f" ({condition})" if condition else ""),
        hint="the cause stands in Spark's log",
        condition=condition,
    )
