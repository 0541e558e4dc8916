"""One Delta table as the readers see it: session, name, folder and log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdf.errors import ConfigError, FeedNotEnabled, SourceError, TableNotFound, condition_of
from cdf.executors import check_executors
from cdf.session import check_session
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
}


class TableHandle:
    """A Delta table that exists. ``table`` is the name that the caller gave, ``location`` the table's folder."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self.spark = spark
        self.table = table
        self.location = _locate(spark, table)
        self.log = TableLog(spark, self.location)
        self.log.latest()

    def check_session(self, executor_modules: Sequence[str] = ()) -> None:
        """Refuse a session that would silently leave out rows, and executors without what a sink's tasks import."""
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


def _locate(spark: SparkSession, table: str) -> str:
    """The table's folder. Raises TableNotFound if there is no Delta table, before anything else reads it."""
    from delta.tables import DeltaTable

    if not table.strip():
        raise ConfigError("the table has no name", hint="give a path, a URL or a catalog name")
    try:
        if is_path(table):
            if not DeltaTable.isDeltaTable(spark, table):
                raise TableNotFound(
                    f"there is no Delta table at {table}",
                    hint="check the path; a catalog name has no slash, a local path starts with one",
                    condition="DELTA_TABLE_NOT_FOUND",
                    table=table,
                )
            return table.rstrip("/") or table
        detail = DeltaTable.forName(spark, table).detail().select("location").first()
    except SourceError:
        raise
    except Exception as error:
        raise translate_table_error(error, table, "cannot be found") from error
    assert detail is not None
    return str(detail["location"])


def translate_table_error(error: Exception, table: str, failure: str) -> SourceError:
    """Our error for Delta's error about a whole table. ``failure`` continues the table's name in the message."""
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
