"""Rows that a target keeps although the source has lost them, as a DataFrame with the source's columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import RowRejected
from connectors.postgres.conversions import PLAIN, find_cast
from connectors.postgres.sql_parts import fill_template
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.conversions import ColumnType
    from connectors.postgres.sql_parts import TargetName

__all__ = ["kept_rows"]

Connection = psycopg.Connection[Any]

ROWS = 50_000
"""In the driver's memory at a time."""


def kept_rows(
    connection: Connection,
    target: TargetName,
    columns: Columns,
    found: Mapping[str, ColumnType],
    source: StructType,
    spark: SparkSession,
    *,
    where: sql.Composable,
) -> Iterator[DataFrame]:
    """Part by part, inside a transaction. A column that the target does not have, or that is no plain value, is null.

    The values come as text and are cast by Spark, which has no way of its own into the database. They are in no plan. Raises
    RowRejected for a value that Spark cannot read: as a null it would hide a person's row from an erasure.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    taken = {
        field.name: columns.target_name(field.name)
        for field in source.fields
        if columns.includes(field.name)
        and columns.target_name(field.name) in found
        and isinstance(field.dataType, T.AtomicType)
        and not isinstance(field.dataType, T.BinaryType)
    }
    if not taken:
        return
    numbers = {name: f"c{number}" for number, name in enumerate(taken)}
    texts = T.StructType([T.StructField(number, T.StringType()) for number in numbers.values()])
    values = {name: F.col(number).try_cast(source[name].dataType) for name, number in numbers.items()}
    typed = [values.get(field.name, F.lit(None)).alias(field.name) for field in source.fields]
    query = sql.SQL("select {} from {} t where {}").format(
        sql.SQL(", ").join(_text(source[name].dataType, column, found[column]) for name, column in taken.items()),
        target.identifier,
        where,
    )
    with connection.cursor(name="deltarelay_kept") as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS):
            # Not createDataFrame of the rows themselves, whose plan would show them
            read = spark.createDataFrame(spark.sparkContext.parallelize(rows), texts)
            unread = [F.max(F.col(numbers[name]).isNotNull() & value.isNull()) for name, value in values.items()]
            lost = [name for name, found in zip(values, read.agg(*unread).first() or (), strict=True) if found]
            if lost:
                raise RowRejected(
                    f"{target} has values in {', '.join(map(repr, lost))} that the source's type cannot hold",
                    hint="nothing was erased: correct or remove these values in the target, then erase again",
                )
            yield read.select(*typed)


def _text(kind: DataType, name: str, found: ColumnType) -> sql.Composed:
    """The column in our type (a count may be numeric there, whose text is no integer's), as text."""
    column = sql.Identifier("t", name)
    way = find_cast(target_type(kind) or "", found) or PLAIN
    text = sql.SQL("({})::text").format(fill_template(way.back, column, parameters=False))
    if way.returns is None:
        return text
    image = fill_template(way.returns, column, parameters=False)
    return sql.SQL("case when ({}) is false then {}::text else {} end").format(image, column, text)
