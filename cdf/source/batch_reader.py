"""Reads the feed of a closed range of versions as a batch DataFrame. Delta's silent failures are errors here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdf.changes.columns import quoted
from cdf.changes.schema_diff import ChangeKind, compare
from cdf.errors import FeedNotEnabled
from cdf.read_errors import translate
from cdf.session import check_session, setting
from cdf.source.commit import missing_commits
from cdf.source.public_reader import SCHEMA_AS_OF, load_public
from cdf.spark_versions import takes_catalog_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.source.table_handle import TableHandle

__all__ = ["read_range", "load_range"]

_MAPPING = "delta.columnMapping.mode"


def read_range(table: TableHandle, first: int, last: int) -> DataFrame:
    """Read ``first..last`` after all checks. The files are read later, with the DataFrame; see ``translate``."""
    check_session(table.spark)
    check_commits(table, first, last)
    check_feed_on(table, first, last)
    return load_range(table, first, last)


def load_range(table: TableHandle, first: int, last: int) -> DataFrame:
    """Read ``first..last`` for a caller that has already checked the commits and that the feed was on."""
    reader = (
        table.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", first)
        .option("endingVersion", last)
    )
    if not table.reaches_delta:
        return load_public(table, reader, first, last, as_of_end=_is_outdated(table, first, last))
    try:
        if _is_outdated(table, first, last):
            # Lets ``versionAsOf`` choose the schema of a feed; needed only while the DataFrame is created
            with setting(table.spark, SCHEMA_AS_OF, "true"):
                return _without_objects(reader.option("versionAsOf", last).load(table.location), first, last)
        return _without_objects(reader.load(table.location), first, last)
    except Exception as error:
        raise translate(error, table=table.table, first=first, last=last) from error


def _without_objects(rows: DataFrame, first: int, last: int) -> DataFrame:
    """The same rows, read without Delta's relation for the change feed.

    That relation converts each row to Java objects. A Java string replaces bytes that are not UTF-8 by U+FFFD, so different
    values, and different keys, become equal before a sink can check them. The relation reads its rows from a DataFrame;
    here that DataFrame is used directly, with the relation's schema.
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
        *([none] if takes_catalog_table(spark) else []),
        some(relation.snapshotForBatchSchema()),
        False,
        none,
    )
    frame = DataFrame(changes, spark)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    columns = []
    for field in rows.schema.fields:
        column = quoted(field.name)
        if kinds[field.name] != field.dataType:  # fields of structs have metadata of column mapping
            column = column.cast(field.dataType)
        columns.append(column.alias(field.name, metadata=field.metadata))
    return frame.select(*columns)


def _is_outdated(table: TableHandle, first: int, last: int) -> bool:
    """True if the table's present schema cannot read the range: a column was dropped or changed its type since.

    Delta would still use the present schema, and fail; only with column mapping it uses the schema at the range's end.
    """
    with table.log.cache_reads():
        now, then = table.log.metadata(), table.log.metadata(last)
        if all(change.kind is ChangeKind.ADD_COLUMN for change in compare(then.schema, now.schema)):
            return False
        modes = [found.properties.get(_MAPPING, "none") for found in (now, then, table.log.metadata(first))]
        return all(mode == "none" for mode in modes)


def check_commits(table: TableHandle, first: int, last: int) -> None:
    """Delta reads across missing commit files in batch without an error (``failOnDataLoss`` is fixed to false there)."""
    if missing := table.log.missing(first, last):
        raise missing_commits(table.table, missing)


def check_feed_on(table: TableHandle, first: int, last: int) -> None:
    """Raise FeedNotEnabled with the versions of the range at which the feed was off, also before it was enabled."""
    inside = [(first, table.log.metadata(first).feed_enabled)]
    inside += [(version, found.feed_enabled) for version, found in table.log.metadata_commits(first + 1, last)]
    off: list[str] = []
    for (version, enabled), (following, _) in zip(inside, [*inside[1:], (last + 1, True)], strict=True):
        if not enabled and version < following:
            off.append(str(version) if following == version + 1 else f"{version} to {following - 1}")
    if off:
        raise FeedNotEnabled(
            f"the change feed of {table.table} was off at version {', '.join(off)}: those changes were never recorded",
            hint="read a range in which it was on (`deltarelay feed status` shows it), or start from a snapshot",
            condition="DELTA_MISSING_CHANGE_DATA",
            table=table.table,
        )
