"""Rows as JSON text, by Spark's own functions, so that nothing is lost and no setting of the session changes a byte.

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
    array, map, struct      an array, an object, an object; the same rules inside, null fields are there
    variant                 a string that holds its JSON
    ======================  ======================================================================

Everything else is refused by name; `docs/reference/kafka-events.md` tells it to users.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from cdf.changes.columns import quoted
from cdf.errors import RowRejected

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["json_object", "has_form", "parsed", "wire_type", "rejection_of"]

_OPTIONS = {
    # The only times that are left for Spark to print are instants, as the reading of a clock in UTC. It takes neither the
    # session's zone nor its legacy parser for those, as it would for instants.
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "ignoreNullFields": "false",
}
_AS_IT_IS = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.BinaryType,
)
_FLOATS = (T.FloatType, T.DoubleType)
_SIMPLE = (
    *_AS_IT_IS,
    *_FLOATS,
    T.StringType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.VariantType,
)
_NAMES = (T.StringType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)
"""Types of a map's keys that read back from the string that a name in JSON is."""

_MARK = "DELTARELAY_EVENT"
_REJECTION = re.compile(_MARK + r" (\w+) (\S+) (-?\d+)")
_NEW_TOPIC = (
    "and replicate into a new topic, which begins with a copy of the table. A correction is a new version: the window that "
    "is begun keeps the value, and rejects: dead_letter does not take it"
)
_REJECTED = {
    "not_utf8": ("text that is not UTF-8, which JSON cannot hold",
                 f"correct the value at the source or make the column a binary, {_NEW_TOPIC}"),
    "not_finite": ("NaN or an infinity, which Kafka Connect would read as 0",
                   f"correct the value at the source or set schemas: false, which writes it as a string, {_NEW_TOPIC}"),
}  # fmt: skip


def has_form(kind: T.DataType) -> bool:
    """Whether every value of the type has a JSON form without loss."""
    if isinstance(kind, T.ArrayType):
        return has_form(kind.elementType)
    if isinstance(kind, T.StructType):
        return bool(kind.fields) and all(has_form(field.dataType) for field in kind.fields)
    if isinstance(kind, T.MapType):
        return isinstance(kind.keyType, _NAMES) and has_form(kind.valueType)
    return isinstance(kind, _SIMPLE)


def json_object(schema: T.StructType, names: Sequence[str], version: Column, *, connect: bool) -> Column:
    """An object of these columns, in this order. Select it under ``cdf.changes.canonical.plain_decimals``.

    ``version`` is told where a row is refused. ``connect``: in the form that Connect's JSON converter reads by a schema. It
    keeps every digit of a number where the schema says decimal, and would take a string there for base64; but it takes any
    string for 0 where the schema says float or double.
    """
    from pyspark.sql import functions as F

    def member(name: str) -> Column:
        kind = schema[name].dataType
        return _Form(name, version, connect).of(quoted(name), kind).alias(name)

    return F.to_json(F.struct(*map(member, names)), _OPTIONS)


class _Form:
    """The value of one column as ``to_json`` is to print it."""

    def __init__(self, name: str, version: Column, connect: bool) -> None:
        self._name = name
        self._version = version
        self._connect = connect

    def of(self, value: Column, kind: T.DataType) -> Column:
        from pyspark.sql import functions as F

        if self._as_it_is(kind):
            return value
        if isinstance(kind, T.StringType):
            # to_json would put U+FFFD for what is not UTF-8, without a word
            return self._refused_where("not_utf8", ~F.is_valid_utf8(value), value, kind)
        if isinstance(kind, _FLOATS):
            finite = F.abs(value) < float("inf")  # NaN is greater than any number
            return self._refused_where("not_finite", ~finite, value, kind)
        if isinstance(kind, T.DecimalType):
            return value.cast("string")
        if isinstance(kind, T.DateType):
            return F.unix_date(value)
        if isinstance(kind, T.TimestampType):
            epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            return F.timestamp_add("MICROSECOND", F.unix_micros(value), epoch)
        if isinstance(kind, T.TimestampNTZType):
            return _clock_micros(value)
        if isinstance(kind, T.VariantType):
            return F.to_json(value, {"timeZone": "UTC"})
        return self._of_nested(value, kind)

    def _of_nested(self, value: Column, kind: T.DataType) -> Column:
        from pyspark.sql import functions as F

        if isinstance(kind, T.ArrayType):
            return F.transform(value, lambda item: self.of(item, kind.elementType))
        if isinstance(kind, T.StructType):
            fields = [self.of(value.getField(field.name), field.dataType).alias(field.name) for field in kind.fields]
            # Without the condition a null would become an object of nulls
            return F.when(value.isNotNull(), F.struct(*fields))
        assert isinstance(kind, T.MapType), kind
        if isinstance(kind.keyType, T.StringType):
            invalid = F.exists(F.map_keys(value), lambda name: ~F.is_valid_utf8(name))
            value = self._refused_where("not_utf8", invalid, value, kind)
        if self._as_it_is(kind.valueType):
            return value
        return F.transform_values(value, lambda _, item: self.of(item, kind.valueType))

    def _as_it_is(self, kind: T.DataType) -> bool:
        if isinstance(kind, T.ArrayType):
            return self._as_it_is(kind.elementType)
        if isinstance(kind, T.DecimalType):
            return self._connect
        if isinstance(kind, _FLOATS):
            return not self._connect
        return isinstance(kind, _AS_IT_IS)

    def _refused_where(self, reason: str, invalid: Column, value: Column, kind: T.DataType) -> Column:
        from pyspark.sql import functions as F

        # A name may hold anything, a blank or a line's end too
        mark = F.lit(f"{_MARK} {reason} {self._name.encode().hex()} ")
        refusal = F.raise_error(F.concat(mark, self._version.cast("string")))
        return F.when(invalid, refusal.cast(kind)).otherwise(value)


def _clock_micros(value: Column) -> Column:
    """Microseconds from 1970-01-01T00:00:00 to a ``timestamp_ntz``. By its parts: whatever Spark has to count them at once
    takes both for times in the session's zone."""
    from pyspark.sql import functions as F

    day, minute = 86_400_000_000, 60_000_000
    days = F.unix_date(value.cast("date")).cast("long")
    seconds = F.extract(F.lit("SECOND"), value)
    minutes = (F.hour(value) * 60 + F.minute(value)).cast("long")
    time = minutes * minute + (seconds * 1_000_000).cast("long")
    # From the next midnight backwards: the midnight before the first time of all is no longer a number
    return F.when(days < 0, (days + 1) * day + (time - day)).otherwise(days * day + time)


# ── and back ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def wire_type(kind: T.DataType, *, connect: bool) -> T.DataType:
    """The type as which ``from_json`` reads what ``json_object`` wrote; ``parsed`` makes the value of it."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(one.name, wire_type(one.dataType, connect=connect)) for one in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(wire_type(kind.elementType, connect=connect))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), wire_type(kind.valueType, connect=connect))
    if isinstance(kind, T.DecimalType):
        return kind if connect else T.StringType()
    if isinstance(kind, T.DateType):
        return T.IntegerType()
    if isinstance(kind, T.TimestampNTZType):
        return T.LongType()
    return kind if isinstance(kind, (*_AS_IT_IS, *_FLOATS)) else T.StringType()


def parsed(value: Column, kind: T.DataType) -> Column:
    """The value of a column, from what was read as its ``wire_type``."""
    from pyspark.sql import functions as F

    if isinstance(kind, T.StructType):
        fields = [parsed(value.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda item: parsed(item, kind.elementType))
    if isinstance(kind, T.MapType):
        named = F.transform_values(value, lambda _, item: parsed(item, kind.valueType))
        return F.transform_keys(named, lambda name, _: name.cast(kind.keyType))
    if isinstance(kind, T.DateType):
        return F.date_from_unix_date(value)
    if isinstance(kind, T.TimestampNTZType):
        return F.timestamp_add("MICROSECOND", value, F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"))
    if isinstance(kind, T.VariantType):
        return F.parse_json(value)
    return value.cast(kind) if isinstance(kind, (T.DecimalType, T.TimestampType)) else value


def rejection_of(error: BaseException, *, table: str) -> RowRejected | None:
    """The value without a JSON form behind a failed Spark job, by column and version, or None."""
    found = _REJECTION.search(str(error))
    if found is None:
        return None
    reason, column, version = found.group(1), bytes.fromhex(found.group(2)).decode(), int(found.group(3))
    what, hint = _REJECTED[reason]
    return RowRejected(
        f"version {version} of {table} has {what}, in column {column!r}",
        hint=hint,
        table=table,
        version=version,
        column=column,
        reason=reason,
    )
