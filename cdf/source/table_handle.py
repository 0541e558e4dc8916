"""One Delta table as the readers see it: session, name, folder and log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdf.changes.columns import quote_name
from cdf.errors import CdfError, ConfigError, FeedNotEnabled, SourceError, TableNotFound, condition_of
from cdf.executors import check_executors
from cdf.session import check_session, has_delta_classes, is_connect, lacks_delta, translate_lost_server
from cdf.source.log import TableLog
from cdf.source.table_features import translate_refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FEED_PROPERTY", "TableHandle", "is_path", "translate_table_error"]

FEED_PROPERTY = "delta.enableChangeDataFeed"
_NOT_FOUND = {
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_NOT_A_DELTA_TABLE",
    "DELTA_TABLE_ONLY_OPERATION",
}


class TableHandle:
    """A Delta table that exists. ``table`` is the name that the caller gave, ``location`` the table's folder.

    ``reaches_delta``: the session reaches Delta's own classes, which are faster than its public API.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        self.spark = spark
        self.table = table
        self.reaches_delta = has_delta_classes(spark)
        self.location = _locate(spark, table, self.reaches_delta)
        self.log = TableLog(spark, self.location)
        self.log.latest()

    @property
    def over_connect(self) -> bool:
        """Whether the session is a client of Spark Connect."""
        return is_connect(self.spark)

    def check_session(self, executor_modules: Sequence[str] = ()) -> None:
        """Refuse a session that would leave out or change rows silently, and executors without what tasks import."""
        check_session(self.spark)
        check_executors(self.spark, executor_modules)

    def require_enabled(self) -> None:
        """Raise FeedNotEnabled if the change feed is off now."""
        if not self.log.metadata().feed_enabled:
            raise FeedNotEnabled(
                f"the change feed of {self.table} is off",
                hint=f"run `deltarelay feed enable {self.table}` (or set {FEED_PROPERTY} = true)",
                table=self.table,
            )


def is_path(table: str) -> bool:
    """Whether a table's name is a path or a URL, not a catalog name."""
    return "/" in table or "\\" in table


def _locate(spark: SparkSession, table: str, reaches_delta: bool) -> str:
    """The table's folder. Raises TableNotFound if there is no Delta table, before anything else reads it."""
    if not table.strip():
        raise ConfigError("the table has no name", hint="give a path, a URL or a catalog name")
    try:
        return _locate_with_delta(spark, table) if reaches_delta else _locate_with_sql(spark, table)
    except CdfError:
        raise
    except Exception as error:
        raise translate_table_error(error, table, "cannot be found") from error


def _locate_with_delta(spark: SparkSession, table: str) -> str:
    from delta.tables import DeltaTable

    if is_path(table):
        if not DeltaTable.isDeltaTable(spark, table):
            raise _not_found(table)
        return table.rstrip("/") or table
    detail = DeltaTable.forName(spark, table).detail().select("location").first()
    assert detail is not None
    return str(detail["location"])


def _locate_with_sql(spark: SparkSession, table: str) -> str:
    """Over Spark Connect ``DeltaTable`` needs a plugin in the server; this needs Delta's SQL extension only."""
    try:
        detail = spark.sql(f"describe detail {f'delta.{quote_name(table)}' if is_path(table) else table}").first()
    except Exception as error:
        if ("`detail`" in str(error) or "catalog plugin class" in str(error)) and lacks_delta(spark):
            raise ConfigError(
                f"{'the Spark Connect server' if is_connect(spark) else 'the Spark session'} has no Delta Lake",
                hint="start it with Delta's jars (--packages io.delta:delta-spark_…), "
                "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
                "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
            ) from error
        raise
    if detail is None or detail["format"] != "delta":
        raise _not_found(table)
    return table.rstrip("/") or table if is_path(table) else str(detail["location"])


def _not_found(table: str) -> TableNotFound:
    return TableNotFound(
        f"there is no Delta table at {table}",
        hint="check the path; a catalog name has no slash, a local path starts with one",
        condition="DELTA_TABLE_NOT_FOUND",
        table=table,
    )


def translate_table_error(error: Exception, table: str, failure: str) -> SourceError:
    """Our error for Delta's error about a whole table. ``failure`` continues the table's name in the message."""
    if (lost := translate_lost_server(error, f"{table} {failure}")) is not None:
        return lost
    if (unknown := translate_refusal(error, table)) is not None:
        return unknown
    condition = condition_of(error)
    kind = TableNotFound if condition in _NOT_FOUND else SourceError
    exists = "to turn the feed of an existing table on, use enable(); otherwise choose another name or path"
    reserved = "rename the table's own _change_type, _commit_version or _commit_timestamp column"
    hint = {
        "TABLE_OR_VIEW_ALREADY_EXISTS": exists,
        "DELTA_TABLE_ALREADY_EXISTS": exists,
        "RESERVED_CDC_COLUMNS_ON_WRITE": reserved,
        "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS": reserved,
    }.get(condition or "", "check the name or path, the rights, and that the session has Delta's extension and catalog")
    return kind(f"{table} {failure}", hint=hint, condition=condition, table=table)
