"""Arrays as PostgreSQL's own arrays, for those who choose them over ``jsonb``.

One level only: ``array<int>`` becomes ``integer[]``; arrays of arrays, structs, maps or variants stay jsonb, because the
inner arrays of PostgreSQL's must all have one length. A native array travels as an Arrow list and needs no JSON:

    ================  ==================================================================================
    ``native_type``   the type of the target's column, and of the staging table's: the same
    ``wire_list``     the column in the form in which it is copied, by load and by window
    ``image_text``    the column's text for ``verify``; Spark's side is ``cdf.changes.canonical.digests(by_element=…)``
    ================  ==================================================================================

Both sides of ``verify`` put an array's elements one after the other, each framed as a column is in a row's text
(``cdf.changes.canonical``), so that a null element, an empty text and an empty array differ, and a float is compared by
its bits. In jsonb the sign of -0.0 is lost, and NaN is a text; here they stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from psycopg import sql
from pyspark.sql import types as T

from cdf.changes.canonical import is_nested
from cdf.changes.columns import quoted
from connectors.postgres.types import in_range, refused_unless, target_type

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["native_type", "wire_list", "image_text"]


def native_type(kind: T.DataType) -> str | None:
    """The array type, spelled as ``format_type`` prints it; None where the column stays what ``target_type`` says."""
    if not isinstance(kind, T.ArrayType) or is_nested(kind.elementType):
        return None
    element = target_type(kind.elementType)
    return None if element is None else f"{element}[]"


def wire_list(name: str, kind: T.ArrayType) -> Column:
    """The column as a list that ADBC encodes. A date or time that PostgreSQL does not have is refused, as outside arrays;
    text with a NUL or with bytes that are not UTF-8 by the server."""
    from pyspark.sql import functions as F

    column, element = quoted(name), kind.elementType
    if isinstance(element, T.ByteType):
        return column.cast("array<smallint>")

    def fits(item: Column) -> Column:
        inside = in_range(item, element)
        return F.lit(True) if inside is None else F.coalesce(inside, F.lit(True))

    holds = None if in_range(column, element) is None else F.forall(column, fits)
    return refused_unless(holds, column, kind, "22008")


def image_text(column: sql.Composable, element_text: Callable[[sql.Identifier], sql.Composable]) -> sql.Composed:
    """The array's text as ``cdf.changes.canonical`` has it, null for a null array. ``element_text`` renders an element.

    An array that no Delta table can hold (of two dimensions, or not counted from 1) gets the text of no other.
    """
    return sql.SQL(
        "case when {column} is null then null"
        " when coalesce(array_ndims({column}), 1) <> 1 or coalesce(array_lower({column}, 1), 1) <> 1 then {column}::text"
        " else coalesce((select string_agg(coalesce(char_length(text)::text || ':' || text, '~'), '' order by number)"
        " from (select {text} as text, number from unnest({column}) with ordinality as element(value, number)"
        " offset 0) as texts), '') end"
    ).format(column=column, text=element_text(sql.Identifier("value")))
