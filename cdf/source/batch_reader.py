"""The feed of a closed range of versions as a batch DataFrame, with Delta's silent traps made loud."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cdf.changes.net_spark import quoted
from cdf.changes.schema_diff import ChangeKind, compare
from cdf.errors import (
    CdfError,
    ConfigError,
    FeedNotEnabled,
    SchemaDrift,
    SourceError,
    SourceUnavailable,
    VersionsExpired,
    condition_of,
)
from cdf.source.log import missing_commits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdf.source.table import ChangeFeed

__all__ = ["read_range", "load_range", "check_session", "setting", "translate"]

_MAPPING = "delta.columnMapping.mode"
_SCHEMA_AS_OF = "spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema"
_SETTING = threading.RLock()
_IGNORE = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
)


def read_range(feed: ChangeFeed, first: int, last: int) -> DataFrame:
    """``first..last`` after every check. The rows' files are read when the DataFrame is; see ``translate``."""
    check_session(feed.spark)
    check_commits(feed, first, last)
    check_feed_on(feed, first, last)
    return load_range(feed, first, last)


def load_range(feed: ChangeFeed, first: int, last: int) -> DataFrame:
    """``first..last`` for a caller that has already read these commits and knows that the feed was on."""
    reader = (
        feed.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", first)
        .option("endingVersion", last)
    )
    try:
        if _outlived(feed, first, last):
            # Lets ``versionAsOf`` choose the schema of a feed; counts only while the DataFrame is made
            with setting(feed.spark, _SCHEMA_AS_OF, "true"):
                return _without_objects(reader.option("versionAsOf", last).load(feed.location), first, last)
        return _without_objects(reader.load(feed.location), first, last)
    except Exception as error:
        raise translate(error, table=feed.table, first=first, last=last) from error


def _without_objects(rows: DataFrame, first: int, last: int) -> DataFrame:
    """The same rows, read without Delta's relation for the change feed.

    That relation passes each row on as Java objects. A Java string cannot hold bytes that are not UTF-8: it has U+FFFD in
    their place, so that different values, and different keys, become equal before any sink can check them. The relation
    makes its rows of a DataFrame; here that DataFrame is taken itself, with the relation's schema.
    """
    from pyspark.sql import DataFrame

    spark: Any = rows.sparkSession
    relation = rows._jdf.queryExecution().analyzed().collectLeaves().head().relation()
    some, none = spark._jvm.scala.Some, spark._jvm.scala.Option.empty()
    changes = spark._jvm.org.apache.spark.sql.delta.commands.cdc.CDCReader.changesToBatchDF(
        relation.deltaLog(),
        first,
        last,
        spark._jsparkSession,
        none,
        some(relation.snapshotForBatchSchema()),
        False,
        none,
    )
    made = DataFrame(changes, spark)
    kinds = {field.name: field.dataType for field in made.schema.fields}
    columns = []
    for field in rows.schema.fields:
        column = quoted(field.name)
        if kinds[field.name] != field.dataType:  # fields of structs carry what column mapping notes of them
            column = column.cast(field.dataType)
        columns.append(column.alias(field.name, metadata=field.metadata))
    return made.select(*columns)


def _outlived(feed: ChangeFeed, first: int, last: int) -> bool:
    """True where the table's present schema cannot read the range: a column was dropped or changed its type since.

    Delta would use the present schema nevertheless, and fail; only with column mapping does it take that of the range's end.
    """
    with feed.log.glance():
        now, then = feed.log.metadata(), feed.log.metadata(last)
        if all(change.kind is ChangeKind.ADD_COLUMN for change in compare(then.schema, now.schema)):
            return False
        modes = [found.properties.get(_MAPPING, "none") for found in (now, then, feed.log.metadata(first))]
        return all(mode == "none" for mode in modes)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of the session while something is made with it, put back afterwards. One at a time: pipelines that follow
    share the session."""
    with _SETTING:
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before)


def check_session(spark: SparkSession) -> None:
    """These settings make Spark answer with fewer rows where a file is gone: a lost delete, without a word."""
    on = [name for name in _IGNORE if (spark.conf.get(name, "false") or "").lower() == "true"]
    if on:
        raise ConfigError(
            f"the session has {' and '.join(on)} = true: files or columns that are gone would be left out silently",
            hint="set it to false for the session that reads the change feed",
        )


def check_commits(feed: ChangeFeed, first: int, last: int) -> None:
    """Delta reads across missing commit files in batch without an error (``failOnDataLoss`` is fixed to false there)."""
    if missing := feed.log.missing(first, last):
        raise missing_commits(feed.table, missing)


def check_feed_on(feed: ChangeFeed, first: int, last: int) -> None:
    """Name the versions of the range during which the feed was off. Enabling it inside the range counts as off before."""
    inside = [(first, feed.log.metadata(first).feed_enabled)]
    inside += [(version, found.feed_enabled) for version, found in feed.log.metadata_commits(first + 1, last)]
    off: list[str] = []
    for (version, enabled), (following, _) in zip(inside, [*inside[1:], (last + 1, True)], strict=True):
        if not enabled and version < following:
            off.append(str(version) if following == version + 1 else f"{version} to {following - 1}")
    if off:
        raise FeedNotEnabled(
            f"the change feed of {feed.table} was off at version {', '.join(off)}: those changes were never recorded",
            hint="read a range in which it was on (`deltarelay feed status` names it), or start from a snapshot",
            condition="DELTA_MISSING_CHANGE_DATA",
            table=feed.table,
        )


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
