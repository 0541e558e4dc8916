"""Translates errors of Spark and Delta that occur while the feed is read into errors of ``cdf.errors``."""

from __future__ import annotations

import re

from cdf.errors import (
    CdfError,
    FeatureNotSupported,
    FeedNotEnabled,
    SchemaDrift,
    SourceError,
    SourceUnavailable,
    VersionsExpired,
    condition_of,
)
from cdf.executors import explain_worker_failure
from cdf.session import translate_lost_server

__all__ = ["REPLACED", "translate"]

REPLACED = "DELTARELAY_REPLACEMENT_CHARACTER"
"""The text of the error that a query raises for a value with U+FFFD, read through Delta's relation."""
_UNKNOWN_PARQUET_TYPE = re.compile(
    r"NullPointerException[^\n]*\n\s*at [\w.]*ParquetMetadataConverter\.getLogicalTypeAnnotation"
)
_NEWER_PAIR = "run this pipeline with a newer pair of Spark and Delta (docs/reference/compatibility.md lists them)"


def translate(error: Exception, *, table: str, first: int, last: int) -> CdfError:
    """Translate an error of reading ``first..last``. An unknown error becomes a plain SourceError with its cause."""
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
            hint="`deltarelay feed status` shows since when it is on; start from a later snapshot",
            condition=condition,
        )
    if condition in {
        "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
        "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    }:
        return SchemaDrift(
            f"{versions} cannot be read with the table's present schema",
            hint="a column was renamed, dropped or changed its type in or after the range: read the two parts separately",
            condition=condition,
        )
    if (unsupported := _find_unsupported(condition, text)) is not None:
        return FeatureNotSupported(
            f"{versions} needs {unsupported}", hint=_NEWER_PAIR, condition=condition, table=table
        )
    if (
        condition in {"FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND_DETAILED"}
        or "FileNotFoundException" in text
    ):
        return VersionsExpired(
            f"files that {versions} needs cannot be read: VACUUM may have removed them",
            hint="rebuild the target from a snapshot, `deltarelay run --reload`; "
            "raise delta.deletedFileRetentionDuration above the longest pause of the pipeline",
            condition=condition,
        )
    if (lacking := explain_worker_failure(error)) is not None:
        return lacking
    if REPLACED in text:
        return SourceError(
            f"{versions} has a text with the character U+FFFD, by which Delta replaces bytes that are not UTF-8: over Spark "
            "Connect the true value cannot be read",
            hint="run this pipeline in a classic session (local, spark-submit), which reads such texts exactly",
        )
    if (lost := translate_lost_server(error, f"reading {versions} failed")) is not None:
        return lost
    if "Python worker exited unexpectedly" in text:
        return SourceUnavailable(
            f"reading {versions} failed: Spark lost a Python worker more times than it retries",
            hint="nothing is lost: run again. If it happens again, the machine has too little memory for the workers",
            condition=condition,
        )
    return SourceError(
        f"reading {versions} failed" + (f" ({condition})" if condition else ""),
        hint="Spark's log shows the cause",
        condition=condition,
    )


def _find_unsupported(condition: str | None, text: str) -> str | None:
    """What the table needs and the installed Spark or Delta lacks, although that Delta knows the table's features."""
    if condition in {"DELTA_UNSUPPORTED_TYPE_CHANGE_IN_PREVIEW", "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"}:
        return "the table feature typeWidening, with a change of type that the installed Delta Lake does not support"
    if _UNKNOWN_PARQUET_TYPE.search(text):
        return "a Parquet type that the installed Spark does not know: Spark 4.0 reads no variants of newer releases"
    return None
