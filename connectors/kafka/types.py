"""Delta types as JSON: rows are converted by Spark's own functions, without loss and
independent of all settings of the session.

    ======================  ======================================================================
    Delta                   JSON
    ======================  ======================================================================
    boolean, integers       true or false; a number with every digit
    float, double           a number that reads back to the same value; "NaN", "Infinity", "-Infinity" (with a
                            schema refused: Connect reads them as 0)
    decimal(p, s)           a string with exactly s decimals; with a schema a number
    string, char, varchar   a string
    binary                  a string in base64
    date                    a number: days since 1970-01-01
    timestamp               a string in UTC with six decimals, 2024-03-10T07:00:00.000001Z
    timestamp_ntz           a number: microseconds since 1970-01-01T00:00:00 on the same clock
    array, map, struct      an array, an object, an object; the same rules inside, null fields are included
    variant                 a string that contains its JSON
    ======================  ======================================================================

All other types are refused; `docs/reference/kafka-events.md` documents this for users.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from cdf.changes.columns import quoted
from cdf.errors import RowRejected
from cdf.spark_versions import is_valid_utf8, is_variant, parse_variant, to_clock_time

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["build_wire_type", "find_rejection", "has_json_form", "parse_value", "to_json_object"]

_OPTIONS = {
    # Instants are the only times that Spark prints, converted to timestamp_ntz in UTC. For these, unlike for instants, it
    # uses neither the session's time zone nor its legacy parser.
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "ignoreNullFields": "false",
}
_UNCHANGED = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.BinaryType,
)
_FLOATS = (T.FloatType, T.DoubleType)
_SIMPLE = (
    *_UNCHANGED,
    *_FLOATS,
    T.StringType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
_NAMES = (T.StringType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)
"""Types of a map's keys that can be parsed from a name in JSON, which is a string."""

_MARK = "DELTARELAY_EVENT"
_REJECTION = re.compile(_MARK + r" (\w+) (\S+) (-?\d+)")
_NEW_TOPIC = (
    "and replicate into a new topic, which starts with a copy of the table. The correction is a later version: the window "
    "in progress still contains the value, and rejects: dead_letter does not apply to it"
)
_REJECTED = {
    "not_utf8": ("text that is not UTF-8, which JSON cannot represent",
                 f"correct the value at the source or change the column to binary, {_NEW_TOPIC}"),
    "not_finite": ("NaN or an infinity, which Kafka Connect would read as 0",
                   f"correct the value at the source or set schemas: false, which writes it as a string, {_NEW_TOPIC}"),
}  # fmt: skip


def has_json_form(kind: T.DataType) -> bool:
    """Return whether every value of the type has a JSON form without loss."""
    if isinstance(kind, T.ArrayType):
        return has_json_form(kind.elementType)
    if isinstance(kind, T.StructType):
        return bool(kind.fields) and all(has_json_form(field.dataType) for field in kind.fields)
    if isinstance(kind, T.MapType):
        return isinstance(kind.keyType, _NAMES) and has_json_form(kind.valueType)
    return isinstance(kind, _SIMPLE) or is_variant(kind)


def to_json_object(schema: T.StructType, names: Sequence[str], version: Column, *, connect: bool) -> Column:
    """Return a JSON object of these columns, in this order. Select it under ``cdf.changes.canonical.plain_decimals``.

    ``version``: reported when a row is refused. ``connect``: in the form that Connect's JSON converter reads with a schema.
    That converter keeps every digit of a number if the schema says decimal, and reads a string there as base64; it reads
    every string as 0 if the schema says float or double.
    """
    from pyspark.sql import functions as F

    def member(name: str) -> Column:
        kind = schema[name].dataType
        return _ColumnForm(name, version, connect).convert(quoted(name), kind).alias(name)

    return F.to_json(F.struct(*map(member, names)), _OPTIONS)


class _ColumnForm:
    """Converts the value of one column to the type that ``to_json`` prints in our form."""

    def __init__(self, name: str, version: Column, connect: bool) -> None:
        self._name = name
        self._version = version
        self._connect = connect

    def convert(self, value: Column, kind: T.DataType) -> Column:
        from pyspark.sql import functions as F

        if self._is_unchanged(kind):
            return value
        if isinstance(kind, T.StringType):
            # to_json would silently replace bytes that are not UTF-8 by U+FFFD
            return self._refuse_where("not_utf8", ~is_valid_utf8(value), value, kind)
        if isinstance(kind, _FLOATS):
            finite = F.abs(value) < float("inf")  # NaN is greater than any number
            return self._refuse_where("not_finite", ~finite, value, kind)
        if isinstance(kind, T.DecimalType):
            return value.cast("string")
        if isinstance(kind, T.DateType):
            return F.unix_date(value)
        if isinstance(kind, T.TimestampType):
            return to_clock_time(F.unix_micros(value))
        if isinstance(kind, T.TimestampNTZType):
            return _to_clock_micros(value)
        if is_variant(kind):
            return F.to_json(value, {"timeZone": "UTC"})
        return self._convert_nested(value, kind)

    def _convert_nested(self, value: Column, kind: T.DataType) -> Column:
        from pyspark.sql import functions as F

        if isinstance(kind, T.ArrayType):
            return F.transform(value, lambda item: self.convert(item, kind.elementType))
        if isinstance(kind, T.StructType):
            fields = [
                self.convert(value.getField(field.name), field.dataType).alias(field.name) for field in kind.fields
            ]
            # Without the condition, null would become an object of nulls
            return F.when(value.isNotNull(), F.struct(*fields))
        assert isinstance(kind, T.MapType), kind
        if isinstance(kind.keyType, T.StringType):
            invalid = F.exists(F.map_keys(value), lambda name: ~is_valid_utf8(name))
            value = self._refuse_where("not_utf8", invalid, value, kind)
        if self._is_unchanged(kind.valueType):
            return value
        return F.transform_values(value, lambda _, item: self.convert(item, kind.valueType))

    def _is_unchanged(self, kind: T.DataType) -> bool:
        if isinstance(kind, T.ArrayType):
            return self._is_unchanged(kind.elementType)
        if isinstance(kind, T.DecimalType):
            return self._connect
        if isinstance(kind, _FLOATS):
            return not self._connect
        return isinstance(kind, _UNCHANGED)

    def _refuse_where(self, reason: str, invalid: Column, value: Column, kind: T.DataType) -> Column:
        from pyspark.sql import functions as F

        # In hexadecimal, because a name may contain blanks and line ends
        mark = F.lit(f"{_MARK} {reason} {self._name.encode().hex()} ")
        refusal = F.raise_error(F.concat(mark, self._version.cast("string")))
        return F.when(invalid, refusal.cast(kind)).otherwise(value)


def _to_clock_micros(value: Column) -> Column:
    """Return the microseconds from 1970-01-01T00:00:00 to a ``timestamp_ntz``, computed from its parts: Spark's functions
    that count them directly interpret both as times in the session's time zone."""
    from pyspark.sql import functions as F

    day, minute = 86_400_000_000, 60_000_000
    days = F.unix_date(value.cast("date")).cast("long")
    seconds = F.extract(F.lit("SECOND"), value)
    minutes = (F.hour(value) * 60 + F.minute(value)).cast("long")
    time = minutes * minute + (seconds * 1_000_000).cast("long")
    # Counted backwards from the next midnight: the midnight before the earliest time does not fit into a long
    return F.when(days < 0, (days + 1) * day + (time - day)).otherwise(days * day + time)


# ── parsing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def build_wire_type(kind: T.DataType, *, connect: bool) -> T.DataType:
    """Return the type with which ``from_json`` reads what ``to_json_object`` wrote; ``parse_value`` converts the result."""
    if isinstance(kind, T.StructType):
        return T.StructType(
            [T.StructField(inner.name, build_wire_type(inner.dataType, connect=connect)) for inner in kind.fields]
        )
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(build_wire_type(kind.elementType, connect=connect))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), build_wire_type(kind.valueType, connect=connect))
    if isinstance(kind, T.DecimalType):
        return kind if connect else T.StringType()
    if isinstance(kind, T.DateType):
        return T.IntegerType()
    if isinstance(kind, T.TimestampNTZType):
        return T.LongType()
    return kind if isinstance(kind, (*_UNCHANGED, *_FLOATS)) else T.StringType()


def parse_value(value: Column, kind: T.DataType) -> Column:
    """Convert a value that was read with ``build_wire_type`` to the column's type."""
    from pyspark.sql import functions as F

    if isinstance(kind, T.StructType):
        fields = [parse_value(value.getField(inner.name), inner.dataType).alias(inner.name) for inner in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda item: parse_value(item, kind.elementType))
    if isinstance(kind, T.MapType):
        named = F.transform_values(value, lambda _, item: parse_value(item, kind.valueType))
        return F.transform_keys(named, lambda name, _: name.cast(kind.keyType))
    if isinstance(kind, T.DateType):
        return F.date_from_unix_date(value)
    if isinstance(kind, T.TimestampNTZType):
        return to_clock_time(value)
    if is_variant(kind):
        return parse_variant(value)
    return value.cast(kind) if isinstance(kind, (T.DecimalType, T.TimestampType)) else value


def find_rejection(error: BaseException, *, table: str) -> RowRejected | None:
    """Return the error for a value without a JSON form that made a Spark job fail; None for another cause."""
    found = _REJECTION.search(str(error))
    if found is None:
        return None
    reason, column, version = found.group(1), bytes.fromhex(found.group(2)).decode(), int(found.group(3))
    description, hint = _REJECTED[reason]
    return RowRejected(
        f"version {version} of {table} has {description}, in column {column!r}",
        hint=hint,
        table=table,
        version=version,
        column=column,
        reason=reason,
    )
