"""The PostgreSQL type of each Delta type, and the form in which a column is copied.

    ==============================  ====================  =======================================
    Delta                           PostgreSQL            copied as (Arrow)
    ==============================  ====================  =======================================
    boolean                         boolean               bool
    byte, short                     smallint              int16
    int / long                      integer / bigint      int32 / int64
    float / double                  real / double         float32 / float64
    decimal(p, s)                   numeric(p, s)         decimal128
    string, char, varchar           text                  string
    binary                          bytea                 binary
    date                            date                  date32
    timestamp                       timestamptz           timestamp[us, UTC]
    timestamp_ntz                   timestamp             timestamp[us]
    array, map, struct, variant     jsonb                 string (JSON), cast to jsonb in SQL
    ==============================  ====================  =======================================

Every other type is refused by name; `docs/reference/postgres-types.md` is the users' version of this table. COPY BINARY
carries no types: PostgreSQL stores a value of another type with the same width as garbage, without an error. So rows are
copied only into tables whose types come from this module. COPY does not check the range of dates and times in full either:
one outside PostgreSQL's calendar would arrive as ``infinity``, or break the connection, and is refused in Spark
(``in_range``).

Arrays may be native instead of jsonb, if the user chooses so: one level only (``array<int>`` becomes ``integer[]``). Arrays
of arrays, structs, maps or variants stay jsonb, because PostgreSQL's inner arrays must all have the same length. A native
array is copied as an Arrow list.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from cdf.changes.canonical import TO_JSON, is_nested
from cdf.changes.columns import quoted
from cdf.errors import TypeNotSupported
from cdf.spark_versions import has_collation, is_valid_utf8, is_variant
from connectors.postgres.errors import TASK_MARK

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "NativeArray",
    "native_type",
    "target_type",
    "staging_type",
    "wire",
    "unsupported_columns",
    "check_types",
    "has_text",
    "valid_text",
    "in_range",
    "refuse_unless",
    "wire_list",
]

_SIMPLE: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.StringType: "text",
    T.CharType: "text",
    T.VarcharType: "text",
    T.BinaryType: "bytea",
    T.DateType: "date",
    T.TimestampType: "timestamp with time zone",
    T.TimestampNTZType: "timestamp without time zone",
}

# The last microsecond is excluded: PostgreSQL stores it, but rounds its extract(epoch ...), which verify reads.
_CALENDAR: dict[type[T.DataType], tuple[str, str]] = {
    T.DateType: ("-4713-11-24", "+5874897-12-31"),
    T.TimestampType: ("-4713-11-24 00:00:00Z", "+294247-01-10 04:00:54.775806Z"),
    T.TimestampNTZType: ("-4713-11-24 00:00:00", "+294247-01-10 04:00:54.775806"),
}
"""First and last day or time of PostgreSQL's calendar (year 0 is 1 BC), in Spark's notation."""


class NativeArray(T.ArrayType):
    """In a schema: an array that the target stores as an array, not as JSON."""

    @classmethod
    def typeName(cls) -> str:  # noqa: N802 - Spark's name, by which it knows an array
        return "array"


def target_type(kind: T.DataType) -> str | None:
    """The PostgreSQL type, spelled as ``format_type`` prints it; None where there is no faithful image."""
    if isinstance(kind, NativeArray):
        return f"{target_type(kind.elementType)}[]"
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if is_nested(kind):
        return "jsonb" if _json_safe(kind) else None
    return _SIMPLE.get(type(kind))


def native_type(kind: T.DataType) -> str | None:
    """The array type, spelled as ``format_type`` prints it; None for a type that ``target_type`` decides."""
    if not isinstance(kind, T.ArrayType) or is_nested(kind.elementType):
        return None
    element = target_type(kind.elementType)
    return None if element is None else f"{element}[]"


def staging_type(kind: T.DataType) -> str | None:
    """The type in our staging tables: as in the target, but JSON is copied as text."""
    return "text" if is_nested(kind) and not isinstance(kind, NativeArray) else target_type(kind)


def wire(name: str, kind: T.DataType) -> Column:
    """The column in the form in which it is copied."""
    from pyspark.sql import functions as F

    column = quoted(name)
    if isinstance(kind, NativeArray):
        return wire_list(name, kind)
    if is_nested(kind):
        json = F.to_json(column, TO_JSON)
        # Spark would silently put U+FFFD into the JSON for bytes that are not UTF-8
        return refuse_unless(valid_text(column, kind), json, T.StringType(), "22021")
    if isinstance(kind, T.ByteType):
        return column.cast("smallint")
    if isinstance(kind, T.StringType) and has_collation(kind):
        return column.cast("string")  # Arrow has no collations
    return refuse_unless(in_range(column, kind), column, kind, "22008")


def wire_list(name: str, kind: T.ArrayType) -> Column:
    """The column as a list that ADBC encodes. A date or time outside PostgreSQL's calendar is refused, as outside arrays;
    the server refuses text with a NUL or with bytes that are not UTF-8."""
    from pyspark.sql import functions as F

    column, element = quoted(name), kind.elementType
    if isinstance(element, T.ByteType):
        return column.cast("array<smallint>")

    def fits(item: Column) -> Column:
        inside = in_range(item, element)
        return F.lit(True) if inside is None else F.coalesce(inside, F.lit(True))

    holds = None if in_range(column, element) is None else F.forall(column, fits)
    return refuse_unless(holds, column, kind, "22008")


def refuse_unless(holds: Column | None, value: Column, kind: T.DataType, sqlstate: str) -> Column:
    """The value; where the condition is false, a failure with the SQLSTATE that PostgreSQL would report."""
    from pyspark.sql import functions as F

    if holds is None:
        return value
    refusal = F.raise_error(F.lit(f"{TASK_MARK} {sqlstate}")).cast(kind)
    return F.when(F.coalesce(holds, F.lit(True)), value).otherwise(refusal)


def in_range(column: Column, kind: T.DataType) -> Column | None:
    """Whether a date or time is in PostgreSQL's calendar (null for null); None for types that contain no such value."""
    from pyspark.sql import functions as F

    if type(kind) not in _CALENDAR:
        return None
    first, last = _CALENDAR[type(kind)]
    return column.between(F.lit(first).cast(kind), F.lit(last).cast(kind))


def unsupported_columns(schema: T.StructType) -> list[str]:
    return [
        f"column {field.name!r} has type {field.dataType.simpleString()}, which has no faithful image in PostgreSQL"
        for field in schema.fields
        if target_type(field.dataType) is None
    ]


def check_types(schema: T.StructType) -> None:
    """Raises TypeNotSupported. ``open`` has checked the latest schema; the schema of a version may differ."""
    if problems := unsupported_columns(schema):
        raise TypeNotSupported("; ".join(problems), hint="leave the columns out, or cast them at the source")


def valid_text(column: Column, kind: T.DataType) -> Column | None:
    """Whether all text in a value is valid UTF-8 (null for null); None for types that contain no text."""
    from pyspark.sql import functions as F

    def valid(item: Column, item_kind: T.DataType) -> Column:
        found = valid_text(item, item_kind)
        return F.lit(True) if found is None else F.coalesce(found, F.lit(True))

    if not _holds_text(kind):
        return None
    if isinstance(kind, T.ArrayType):
        return F.forall(column, lambda item: valid(item, kind.elementType))
    if isinstance(kind, T.MapType):
        keys = F.forall(F.map_keys(column), lambda item: valid(item, kind.keyType))
        return keys & F.forall(F.map_values(column), lambda item: valid(item, kind.valueType))
    if isinstance(kind, T.StructType):
        return reduce(and_, (valid(column.getField(field.name), field.dataType) for field in kind.fields))
    return is_valid_utf8(column)


def _holds_text(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _holds_text(kind.elementType)
    if isinstance(kind, T.MapType):
        return _holds_text(kind.keyType) or _holds_text(kind.valueType)
    if isinstance(kind, T.StructType):
        return any(_holds_text(field.dataType) for field in kind.fields)
    return isinstance(kind, T.StringType)


def has_text(kind: T.DataType) -> bool:
    """Whether a value can contain text that PostgreSQL cannot store: a NUL, or bytes that are not UTF-8."""
    return isinstance(kind, T.StringType) or is_nested(kind)


def _json_safe(kind: T.DataType) -> bool:
    """JSON object keys are strings: Spark prints other map keys in forms that do not read back."""
    if isinstance(kind, T.ArrayType):
        return _json_safe(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(_json_safe(field.dataType) for field in kind.fields)
    if isinstance(kind, T.MapType):
        plain_keys = (T.StringType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)
        return isinstance(kind.keyType, plain_keys) and _json_safe(kind.valueType)
    return isinstance(kind, T.DecimalType) or is_variant(kind) or type(kind) in _SIMPLE
