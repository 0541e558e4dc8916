"""The canonical form: one text for each value, on both sides of a comparison.

``verify`` does not compare how two systems print a value. Each side renders its rows in this form with its own functions,
so that an error in the replication cannot hide itself:

    ==================  ==============================================================================
    type                text
    ==================  ==============================================================================
    boolean             ``t`` or ``f``
    integers            decimal digits
    decimal(p, s)       plain digits with exactly s decimals
    float, double       the IEEE 754 bits as a signed 64-bit number (float widened to double), or ``NaN``
    string              itself
    binary              lower-case hex
    date                days since 1970-01-01
    timestamp           microseconds since 1970-01-01T00:00:00Z
    timestamp_ntz       ``yyyy-MM-dd HH:mm:ss.ffffff`` without trailing zeros (and without a trailing dot)
    nested, variant     JSON as PostgreSQL prints jsonb: keys by (length, bytes), ``": "`` and ``", "``, plain numbers
    array, by element   ``<characters>:<text>`` of every element, ``~`` for NULL: if the target has arrays, too
    ==================  ==============================================================================

A row's text is ``<characters>:<text>`` of every column in schema order, ``~`` for NULL, without separators: different rows
have different texts. The row digest is the MD5 of that text (it must detect accidents, not attacks), the key digest that of
the key columns only. A key's bucket is the number in the first 8 hex digits of its digest modulo the number of buckets; a
bucket's checksum is the sum of the first 15 hex digits of its row digests.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import quoted
from cdf.session import setting
from cdf.spark_versions import arrow_udf, is_variant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "digests",
    "key_digest",
    "plain_decimals",
    "BUCKET",
    "KEY_DIGEST",
    "ROW_DIGEST",
    "KEY_TEXT",
    "TO_JSON",
    "is_nested",
    "jsonb_text",
]

BUCKET, KEY_DIGEST, ROW_DIGEST, KEY_TEXT = "bucket", "key_digest", "row_digest", "key_text"

TO_JSON = {
    # Spark's defaults drop microseconds and NULL fields, and print instants in the session's zone.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "ignoreNullFields": "false",
}


def is_nested(kind: DataType) -> bool:
    from pyspark.sql import types as T

    return isinstance(kind, (T.ArrayType, T.MapType, T.StructType)) or is_variant(kind)


def digests(
    rows: DataFrame,
    schema: StructType,
    key: Sequence[str],
    buckets: int,
    *,
    show_keys: bool = False,
    by_element: Collection[str] = (),
) -> DataFrame:
    """Bucket, key digest and row digest of each row; with ``show_keys`` also the key in clear (JSON).

    ``by_element`` names the columns that the target also stores as arrays, not as JSON.
    """
    from pyspark.sql import functions as F

    def framed(name: str, kind: DataType) -> Column:
        column = quoted(name)
        return _framed(_elements(column, kind) if name in by_element else _text(column, kind))

    with plain_decimals(rows.sparkSession):
        texts = {field.name: framed(field.name, field.dataType) for field in schema.fields}
        of_key = F.md5(F.concat(*(texts[name] for name in key)).cast("binary"))
        shown = (
            F.to_json(F.struct(*(quoted(name) for name in key)), TO_JSON) if show_keys else F.lit(None).cast("string")
        )
        return rows.select(
            (_number(of_key, 8) % buckets).cast("int").alias(BUCKET),
            of_key.alias(KEY_DIGEST),
            F.md5(F.concat(*texts.values()).cast("binary")).alias(ROW_DIGEST),
            shown.alias(KEY_TEXT),
        )


def key_digest(schema: StructType, key: Sequence[str]) -> Column:
    """The MD5 that identifies a key whose value must not be shown. Select it under ``plain_decimals``."""
    from pyspark.sql import functions as F

    return F.md5(F.concat(*(_framed(_text(quoted(name), schema[name].dataType)) for name in key)).cast("binary"))


def checksum() -> Column:
    """The aggregate over row digests that computes a bucket's checksum."""
    from pyspark.sql import functions as F

    # Two sums of 64-bit numbers: sums of decimals take several times as long
    number, kind = _number(F.col(ROW_DIGEST), 15), "decimal(20,0)"
    high, low = F.sum(F.shiftright(number, 30)), F.sum(number.bitwiseAND(F.lit(2**30 - 1)))
    return high.cast(kind) * F.lit(2**30) + low.cast(kind)


def _number(digest: Column, digits: int) -> Column:
    from pyspark.sql import functions as F

    return F.conv(F.substring(digest, 1, digits), 16, 10).cast("bigint")


def _framed(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.concat(F.char_length(text).cast("string"), F.lit(":"), text), F.lit("~"))


def _text(column: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.BooleanType):
        return F.when(column, "t").when(~column, "f")
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        widened = column.cast("double")
        return F.when(F.isnan(widened), "NaN").when(column.isNotNull(), _bits(widened).cast("string"))
    if isinstance(kind, T.BinaryType):
        return F.lower(F.hex(column))
    if isinstance(kind, T.DateType):
        return F.unix_date(column).cast("string")
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column).cast("string")
    if is_nested(kind):
        return _jsonb(F.to_json(column, TO_JSON))
    return column.cast("string")


def _elements(column: Column, kind: DataType) -> Column:
    """An array's text, element by element; its elements are not nested. Null for a null array."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    assert isinstance(kind, T.ArrayType)
    element = kind.elementType
    if isinstance(element, (T.FloatType, T.DoubleType)):
        # A Python function cannot be called inside of transform. As text, because pandas has no null beside NaN; of the
        # widened value, because a float has a shorter text
        from cdf.changes.canonical_arrow import float_list_texts

        return arrow_udf(float_list_texts, "string")(column.cast("array<double>").cast("array<string>"))
    return F.array_join(F.transform(column, lambda item: _framed(_text(item, element))), "")


@contextmanager
def plain_decimals(spark: SparkSession) -> Iterator[None]:
    """Use ANSI mode in the block: without it, an expression that is analysed there prints small decimals as 1E-38."""
    with setting(spark, "spark.sql.ansi.enabled", "true"):
        yield


def _bits(column: Column) -> Column:
    from cdf.changes.canonical_arrow import double_bits

    return arrow_udf(double_bits, "bigint")(column)


def _jsonb(column: Column) -> Column:
    from cdf.changes.canonical_arrow import jsonb_texts

    return arrow_udf(jsonb_texts, "string")(column)


def jsonb_text(text: str) -> str:
    """JSON text as PostgreSQL prints it after a cast to jsonb."""
    return _dump(json.loads(text, parse_float=Decimal, parse_int=Decimal))


def _dump(value: Any) -> str:
    if isinstance(value, dict):
        # jsonb orders keys by length in bytes, then by bytes
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return "{" + ", ".join(f"{_dump(name)}: {_dump(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    if isinstance(value, Decimal):
        plain = format(value, "f")
        return plain.removeprefix("-") if value == 0 else plain
    return json.dumps(value, ensure_ascii=False)
