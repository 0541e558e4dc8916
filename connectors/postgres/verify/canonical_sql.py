"""The form of ``cdf.changes.canonical``, rendered by PostgreSQL: one text for one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from connectors.postgres.arrays import image_text
from connectors.postgres.types import NativeArray, target_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["canonical_text", "framed", "key_digest"]


def key_digest(schema: StructType, key: Sequence[str], columns: Mapping[str, sql.Composable]) -> sql.Composed:
    """The digest of a key that is held by these columns, which have our types."""
    return sql.SQL("md5({})").format(framed([canonical_text(columns[name], schema[name].dataType) for name in key]))


def framed(texts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(" || ").join(
        sql.SQL("coalesce(char_length({0})::text || ':' || {0}, '~')").format(text) for text in texts
    )


def canonical_text(column: sql.Composable, kind: DataType) -> sql.Composed:
    if isinstance(kind, NativeArray):
        return image_text(column, lambda element: canonical_text(element, kind.elementType))
    name = target_type(kind) or ""
    template = {
        "boolean": "case when {0} then 't' when not {0} then 'f' end",
        "real": _FLOAT,
        "double precision": _FLOAT,
        "text": "{0}",
        "bytea": "encode({0}, 'hex')",
        "date": "({0} - date '1970-01-01')::text",
        "timestamp with time zone": "(extract(epoch from {0}) * 1000000)::bigint::text",
        "timestamp without time zone": "rtrim(rtrim(to_char({0}, 'YYYY-MM-DD HH24:MI:SS.US'), '0'), '.')",
    }.get(name, "{0}::text")
    return sql.SQL(template).format(column)


_FLOAT = (
    "case when {0} = 'NaN' then 'NaN' else ('x' || encode(float8send({0}::float8), 'hex'))::bit(64)::bigint::text end"
)
