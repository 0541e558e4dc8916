"""Rows that a target keeps although the source has lost them, as a DataFrame with the source's columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from connectors.postgres.columns import Columns
    from connectors.postgres.schema import TargetName

__all__ = ["kept_rows"]

Connection = psycopg.Connection[Any]

ROWS = 50_000
"""In the driver's memory at a time."""


def kept_rows(
    connection: Connection,
    target: TargetName,
    columns: Columns,
    found: Collection[str],
    source: StructType,
    spark: SparkSession,
    *,
    where: sql.Composable,
) -> Iterator[DataFrame]:
    """Part by part, inside a transaction. A column that the target does not have, or that is no plain value, is null.

    The values come as text and are cast by Spark, which has no way of its own into the database. They are in no plan.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    taken = {
        field.name: columns.name(field.name)
        for field in source.fields
        if columns.takes(field.name)
        and columns.name(field.name) in found
        and isinstance(field.dataType, T.AtomicType)
        and not isinstance(field.dataType, T.BinaryType)
    }
    if not taken:
        return
    numbers = {name: f"c{number}" for number, name in enumerate(taken)}
    texts = T.StructType([T.StructField(number, T.StringType()) for number in numbers.values()])
    typed = [
        (F.col(numbers[field.name]).try_cast(field.dataType) if field.name in numbers else F.lit(None)).alias(
            field.name
        )
        for field in source.fields
    ]
    query = sql.SQL("select {} from {} t where {}").format(
        sql.SQL(", ").join(sql.SQL("t.{}::text").format(sql.Identifier(name)) for name in taken.values()),
        target.identifier,
        where,
    )
    with connection.cursor(name="deltarelay_kept") as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS):
            # Not createDataFrame of the rows themselves, whose plan would show them
            yield spark.createDataFrame(spark.sparkContext.parallelize(rows), texts).select(*typed)
