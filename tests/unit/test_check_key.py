"""Which columns can identify a row."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from cdf.changes.keys import check_key
from cdf.errors import TypeNotSupported


def schema(kind: DataType) -> StructType:
    return StructType([StructField("k", kind), StructField("a.b`c", LongType()), StructField("v", StringType())])


@pytest.mark.parametrize(
    "kind",
    [
        BooleanType(),
        IntegerType(),
        LongType(),
        DecimalType(38, 10),
        StringType(),
        BinaryType(),
        DateType(),
        TimestampType(),
        TimestampNTZType(),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_a_type_with_one_equality_everywhere_can_be_a_key(kind: DataType) -> None:
    check_key(schema(kind), ("k",), "t")
    check_key(schema(kind), ("a.b`c", "k"), "t")


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (FloatType(), "key column 'k' is a float: NaN and -0.0 have no single identity"),
        (DoubleType(), "key column 'k' is a double: NaN and -0.0 have no single identity"),
        (StringType("UNICODE_CI"), "key column 'k' has a collation: keys equal to Spark would differ in the target"),
        (ArrayType(LongType()), "key column 'k' is nested (array)"),
        (MapType(StringType(), LongType()), "key column 'k' is nested (map)"),
        (StructType([StructField("x", LongType())]), "key column 'k' is nested (struct)"),
        (VariantType(), "key column 'k' is nested (variant)"),
    ],
    ids=lambda value: value.simpleString() if isinstance(value, DataType) else "",
)
def test_a_type_without_it_cannot(kind: DataType, problem: str) -> None:
    with pytest.raises(TypeNotSupported) as caught:
        check_key(schema(kind), ("k",), "t")
    assert caught.value.message == f"the key (k) of t cannot be used: {problem}"
    assert caught.value.hint is not None
    assert "integers, decimals, strings" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ((), "no key columns are given"),
        (("k", "k"), "a key column is named twice"),
        (("nope",), "the table has no column 'nope'"),
        (("K",), "the table has no column 'K'"),
    ],
)
def test_names_that_are_no_key(key: tuple[str, ...], problem: str) -> None:
    with pytest.raises(TypeNotSupported) as caught:
        check_key(schema(LongType()), key, "t")
    assert caught.value.message.endswith(f" of t cannot be used: {problem}")


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(TypeNotSupported) as caught:
        check_key(schema(DoubleType()), ("k", "nope", "k"), "t")
    for problem in ("named twice", "is a double", "no column 'nope'"):
        assert problem in caught.value.message
