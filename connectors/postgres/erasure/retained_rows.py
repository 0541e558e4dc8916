"""Rows that a target retains although the source has lost them, as a DataFrame with the source's columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import RowRejected
from cdf.spark_versions import try_cast
from connectors.postgres.conversions import PLAIN, find_cast
from connectors.postgres.sql_parts import fill_template
from connectors.postgres.state import dead_letters
from connectors.postgres.state.migrations import refuse_newer_state
from connectors.postgres.target.reflection import read_column_types
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from cdf.source.table import ChangeFeed
    from connectors.postgres.conversions import ColumnType
    from connectors.postgres.erasure.target import ErasureTarget

__all__ = ["find_retained_condition", "read_retained_rows", "retained_rows"]

Connection = psycopg.Connection[Any]

ROWS = 50_000
"""Rows in the driver's memory at a time."""


def retained_rows(target: ErasureTarget, source: ChangeFeed, columns: Collection[str]) -> Iterator[DataFrame]:
    """Yield the given columns of the rows among which are all rows that the source has lost."""
    from pyspark.sql.types import StructType

    schema = StructType([field for field in source.snapshot().schema if field.name in columns])
    session = target.session
    with session.errors("reading the retained rows"), session.connect() as connection, connection.transaction():
        refuse_newer_state(connection)  # it may record lost rows where this release does not look
        connection.execute("set local row_security = off")
        found = read_column_types(connection, target.name)
        where = find_retained_condition(connection, target, found) if found else None
        if where is not None:
            yield from read_retained_rows(connection, target, found, schema, source.spark, where=where)


def find_retained_condition(
    connection: Connection, target: ErasureTarget, found: Mapping[str, ColumnType]
) -> sql.Composable | None:
    """Return the condition of the rows (``t``) among which are all rows that the source has lost; None where no row meets
    it. A target with dead letters has refused changes, so any of its rows may be one."""
    has_letters = dead_letters.read_key_digests(connection, str(target.name))
    condition = sql.SQL("true") if has_letters else target.retained_condition(found)
    if condition is None:
        return None
    query = sql.SQL("select exists (select from {} t where {})").format(target.name.identifier, condition)
    return condition if connection.execute(query).fetchone() == (True,) else None


def read_retained_rows(
    connection: Connection,
    target: ErasureTarget,
    found: Mapping[str, ColumnType],
    source: StructType,
    spark: SparkSession,
    *,
    where: sql.Composable,
) -> Iterator[DataFrame]:
    """Yield the rows in parts, inside a transaction. A column that the target does not have, or that is not atomic, is null.

    The values are read as text and cast by Spark, which has no connection to the database; no query plan shows them. Raises
    RowRejected for a value that Spark cannot read: as a null it would hide a person's row from an erasure.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    columns = target.columns
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
    values = {name: try_cast(F.col(number), source[name].dataType) for name, number in numbers.items()}
    typed = [values.get(field.name, F.lit(None)).alias(field.name) for field in source.fields]
    query = sql.SQL("select {} from {} t where {}").format(
        sql.SQL(", ").join(_as_text(source[name].dataType, column, found[column]) for name, column in taken.items()),
        target.name.identifier,
        where,
    )
    with connection.cursor(name="deltarelay_kept") as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS):
            # createDataFrame(rows) would show the rows in the plan
            read = spark.createDataFrame(spark.sparkContext.parallelize(rows), texts)
            unread = [F.max(F.col(numbers[name]).isNotNull() & value.isNull()) for name, value in values.items()]
            lost = [name for name, is_lost in zip(values, read.agg(*unread).first() or (), strict=True) if is_lost]
            if lost:
                raise RowRejected(
                    f"{target.name} has values in {', '.join(map(repr, lost))} that the source's type cannot hold",
                    hint="nothing was erased: correct or remove these values in the target, then erase again",
                )
            yield read.select(*typed)


def _as_text(kind: DataType, name: str, found: ColumnType) -> sql.Composed:
    """Return the column in our type, as text. (An integer of the source may be numeric in the target, and its text is then
    not that of an integer.)"""
    column = sql.Identifier("t", name)
    conversion = find_cast(target_type(kind) or "", found) or PLAIN
    text = sql.SQL("({})::text").format(fill_template(conversion.back, column, parameters=False))
    if conversion.returns is None:
        return text
    image = fill_template(conversion.returns, column, parameters=False)
    return sql.SQL("case when ({}) is false then {}::text else {} end").format(image, column, text)
