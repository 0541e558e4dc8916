"""Collects the rows of a small window on the driver, but only if they are few.

The compressed size of a window does not bound its size in memory: a thousand rows with the same long text are a few
kilobytes in a file and gigabytes in memory.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from cdf.changes.columns import quote_name
from cdf.spark_versions import collect_arrow, is_variant

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["DRIVER_BYTES", "DRIVER_ROWS", "collect_few", "few_rows", "limited"]

log = logging.getLogger("deltarelay.driver")

DRIVER_ROWS = 20_000
DRIVER_BYTES = 32 * 2**20
"""Both limit what the driver holds. Rows are few if there are no more than ``DRIVER_ROWS``, and if the n-th takes at most
1/n of ``DRIVER_BYTES``. Rows of one size then take ``DRIVER_BYTES`` at most, and rows of any sizes about ten times as much,
which is the sum of 1/n over all of them."""

_MARK, _FEW = "DELTARELAY_NOT_FEW", "deltarelay_few"


def few_rows(rows: DataFrame) -> pa.Table | None:
    """Return the rows, in their order within each partition; None if they are not few."""
    return collect_few(limited(rows))


def limited(rows: DataFrame) -> DataFrame:
    """Return the rows for ``collect_few``. Their first row above the limit stops the task before it is converted to Arrow.

    The limit looks at one row at a time, so that it costs neither a second job nor a Python worker.
    """
    from pyspark.sql import functions as F

    fields = rows.schema.fields
    # One constant: the optimizer turns a sum of several into a chain as deep as there are terms, like its parser
    width = sum(_width(field.dataType) for field in fields)
    size = _sum([f"{width}L", *(text for field in fields if (text := _text_size(field)))])
    few = f"monotonically_increasing_id() < least({DRIVER_ROWS}, {DRIVER_BYTES} div ({size}))"
    return rows.coalesce(1).select("*", F.expr(f"if({few}, true, raise_error('{_MARK}'))").alias(_FEW))


def collect_few(rows: DataFrame) -> pa.Table | None:
    try:
        return collect_arrow(rows).drop_columns([_FEW])
    except Exception as error:
        if _MARK not in str(error) and "maxResultSize" not in str(error):
            raise
        log.info("the rows are too many for the driver: Spark's tasks work on them")
        return None


def _sum(terms: list[str]) -> str:
    """The sum as a balanced tree: a chain of hundreds of terms overflows the stack of Spark's parser."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return f"({_sum(terms[:middle])} + {_sum(terms[middle:])})"


def _text_size(field: T.StructField) -> str | None:
    """With ``_width`` an upper bound of the bytes that a value takes in Arrow, as an SQL expression; None: 0.

    In the text of an array or a map each element takes two characters or more.
    """
    name, kind = quote_name(field.name), field.dataType
    if isinstance(kind, _TEXTS):
        return f"coalesce(octet_length({name}), 0)"
    if isinstance(kind, (T.ArrayType, T.MapType, T.StructType)) or is_variant(kind):
        factor = 1 + -(-_element_width(kind) // 2)
        return f"{factor}L * coalesce(octet_length(cast({name} as string)), 0)"
    return None


_TEXTS = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)


def _width(kind: T.DataType) -> int:
    """The bytes that a value takes in Arrow in addition to its text and its elements."""
    if isinstance(kind, T.StructType):
        return sum(_width(field.dataType) for field in kind.fields)
    if isinstance(kind, (*_TEXTS, T.ArrayType, T.MapType)):
        return 4
    return 8 if isinstance(kind, (T.IntegralType, T.FractionalType)) and not isinstance(kind, T.DecimalType) else 16


def _element_width(kind: T.DataType) -> int:
    """The bytes that one element of each array and map inside takes in addition to its text."""
    if isinstance(kind, T.StructType):
        return sum(_element_width(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _width(kind.elementType) + _element_width(kind.elementType)
    if isinstance(kind, T.MapType):
        return sum(_width(part) + _element_width(part) for part in (kind.keyType, kind.valueType))
    return 16 if is_variant(kind) else 0
