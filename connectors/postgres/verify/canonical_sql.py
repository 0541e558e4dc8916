"""The form of ``cdf.changes.canonical``, rendered by PostgreSQL: one text for each value.

The elements of a native array are concatenated, each framed as a column is in a row's text, so that a null element, an
empty text and an empty array differ. Floats are compared by their bits: jsonb would lose the sign of -0.0, and hold NaN as
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from connectors.postgres.types import NativeArray, target_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["array_text", "canonical_text", "frame", "key_digest"]


def key_digest(schema: StructType, key: Sequence[str], columns: Mapping[str, sql.Composable]) -> sql.Composed:
    """The digest of a key. ``columns`` are its expressions, which have our types."""
    return sql.SQL("md5({})").format(frame([canonical_text(columns[name], schema[name].dataType) for name in key]))


def frame(texts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(" || ").join(
        sql.SQL("coalesce(char_length({0})::text || ':' || {0}, '~')").format(text) for text in texts
    )


def canonical_text(column: sql.Composable, kind: DataType) -> sql.Composed:
    if isinstance(kind, NativeArray):
        return array_text(column, lambda element: canonical_text(element, kind.elementType))
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


def array_text(column: sql.Composable, element_text: Callable[[sql.Identifier], sql.Composable]) -> sql.Composed:
    """The array's text in the form of ``cdf.changes.canonical``, null for a null array. ``element_text`` renders an element.

    An array that no Delta table can hold (two dimensions, or a lower bound other than 1) gets a text that equals no other.
    """
    return sql.SQL(
        "case when {column} is null then null"
        " when coalesce(array_ndims({column}), 1) <> 1 or coalesce(array_lower({column}, 1), 1) <> 1 then {column}::text"
        " else coalesce((select string_agg(coalesce(char_length(text)::text || ':' || text, '~'), '' order by number)"
        " from (select {text} as text, number from unnest({column}) with ordinality as element(value, number)"
        " offset 0) as texts), '') end"
    ).format(column=column, text=element_text(sql.Identifier("value")))


_FLOAT = (
    "case when {0} = 'NaN' then 'NaN' else ('x' || encode(float8send({0}::float8), 'hex'))::bit(64)::bigint::text end"
)
