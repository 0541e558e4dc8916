"""The tables of docs/reference/postgres-types.md say what the code does, and name every type that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import types as T

from connectors.postgres.types import native_type, target_type

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "postgres-types.md"
PLAIN: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "string collate UTF8_LCASE": T.StringType("UTF8_LCASE"),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "variant": T.VariantType(),
    "void": T.NullType(),
    "interval day to second": T.DayTimeIntervalType(),
    "interval year to month": T.YearMonthIntervalType(),
}
NOT_IN_DELTA = {"CalendarIntervalType", "TimeType", "GeographyType", "GeometryType", "UserDefinedType"}
"""Spark's other types: Delta refuses them, and so do we (tests/integration/test_postgres_types.py)."""
FAMILIES = {"DataType", "AtomicType", "NumericType", "IntegralType", "FractionalType", "DatetimeType", "AnsiIntervalType",
            "AnyTimeType", "SpatialType", "Type"}  # fmt: skip


def kind_of(spelled: str) -> T.DataType:
    """The type that a line names. No JVM: Spark's own parser needs one."""
    if spelled in PLAIN:
        return PLAIN[spelled]
    name, _, inner = spelled.partition("<")
    if name in ("array", "map", "struct"):
        inner = inner.removesuffix(">")
        if name == "array":
            return T.ArrayType(kind_of(inner))
        if name == "map":
            key, value = inner.rsplit(",", 1)
            return T.MapType(kind_of(key), kind_of(value))
        field, kind = inner.split(":", 1)
        return T.StructType().add(field, kind_of(kind))
    found = re.fullmatch(r"(\w+)\((\d+)(?:,(\d+))?\)", spelled)
    assert found, spelled
    if found[1] == "decimal":
        return T.DecimalType(int(found[2]), int(found[3]))
    return {"char": T.CharType, "varchar": T.VarcharType}[found[1]](int(found[2]))


def lines(heading: str) -> list[tuple[str, str]]:
    """(first cell, second cell) of the table with this heading, without backticks."""
    text = PAGE.read_text()
    assert heading in text
    table = text.split(heading, 1)[1].split("\n\n", 1)[0]
    cells = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [(first.strip().strip("`"), second.strip().strip("`")) for first, second, *_ in cells]


TYPES = lines("| Delta | PostgreSQL | exact | refused |")
ARRAYS = lines("| Delta | native array |")


@pytest.mark.parametrize(("delta", "postgres"), TYPES)
def test_a_line_says_what_the_code_does(delta: str, postgres: str) -> None:
    assert (target_type(kind_of(delta)) or "refused") == postgres


@pytest.mark.parametrize(("delta", "postgres"), ARRAYS)
def test_a_line_on_arrays_says_what_the_code_does(delta: str, postgres: str) -> None:
    kind = kind_of(delta)
    assert (native_type(kind) or f"stays `{target_type(kind)}") == postgres


def test_every_type_of_spark_has_a_line_or_is_none_of_deltas() -> None:
    named = {type(kind_of(delta)).__name__ for delta, _ in TYPES}
    known = {name for name in vars(T) if name.endswith("Type") and isinstance(getattr(T, name), type)}
    assert known - FAMILIES - {"StringType"} == (named | NOT_IN_DELTA) - {"StringType"}
    for name in NOT_IN_DELTA - {"UserDefinedType", "GeographyType", "GeometryType"}:
        assert target_type(getattr(T, name)()) is None
    assert target_type(T.GeometryType(4326)) is target_type(T.GeographyType(4326)) is None


def test_every_plain_type_has_its_array() -> None:
    elements = {delta.removeprefix("array<").removesuffix(">").split("(")[0] for delta, _ in ARRAYS}
    stored = {delta.split("(")[0] for delta, postgres in TYPES if postgres not in ("jsonb", "refused")}
    assert stored - {"char", "varchar", "string collate UTF8_LCASE"} <= elements
