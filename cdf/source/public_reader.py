"""Reads the feed with Spark's public API only, through Delta's own relation.

That relation converts each row to Java objects. A Java string replaces bytes that are not UTF-8 by U+FFFD, so different
values, and different keys, become equal. A replaced value cannot be detected afterwards: every text with U+FFFD is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.changes.columns import METADATA_COLUMNS, quoted
from cdf.read_errors import REPLACED, translate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader
    from pyspark.sql.types import DataType, StructField

    from cdf.source.table_handle import TableHandle

__all__ = ["SCHEMA_AS_OF", "load_public"]

SCHEMA_AS_OF = "spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema"
_NEW_DATES = "spark.sql.datetime.java8API.enabled"


def load_public(table: TableHandle, reader: DataFrameReader, first: int, last: int, *, as_of_end: bool) -> DataFrame:
    """Load ``first..last``; ``as_of_end``: with the schema of the range's end instead of the present one.

    A server of Spark Connect analyses a query each time that it runs. So these two settings stay in the session: they are
    needed whenever the DataFrame is used.
    """
    try:
        # Delta's relation would move days between the Julian and the Gregorian calendar
        table.spark.conf.set(_NEW_DATES, "true")
        if as_of_end:
            table.spark.conf.set(SCHEMA_AS_OF, "true")
            reader = reader.option("versionAsOf", last)
        rows = reader.load(table.location)
        return rows.select(*map(_refuse_replaced, rows.schema.fields))
    except Exception as error:
        raise translate(error, table=table.table, first=first, last=last) from error


def _refuse_replaced(field: StructField) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    column = quoted(field.name)
    if field.name in METADATA_COLUMNS or not _has_text(field.dataType):
        return column
    text = column if isinstance(field.dataType, StringType) else column.cast("string")
    checked = F.when(text.contains("\ufffd"), F.raise_error(F.lit(REPLACED))).otherwise(column)
    return checked.alias(field.name, metadata=field.metadata)


def _has_text(kind: DataType) -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return any(_has_text(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has_text(kind.elementType)
    if isinstance(kind, T.MapType):
        return _has_text(kind.keyType) or _has_text(kind.valueType)
    return isinstance(kind, (T.StringType, T.CharType, T.VarcharType))
