"""Where a trail keeps the values of a column: what was written keeps its place and its type, whatever the source does."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from audit.trail.column_history import (
    Column,
    columns_from_json,
    columns_to_json,
    extend_columns,
    is_readable_as,
    row_type,
)


def schema(**types: object) -> StructType:
    return StructType([StructField(name, type) for name, type in types.items()])  # type: ignore[arg-type]


def places(columns: tuple[Column, ...]) -> dict[str, str]:
    return {column.name: column.stored for column in columns if column.live}


def test_a_new_column_gets_a_place_and_a_dropped_one_keeps_its_own() -> None:
    first = extend_columns((), schema(id=LongType(), name=StringType()))
    second = extend_columns(first, schema(id=LongType(), note=StringType()))
    assert [(column.stored, column.live) for column in second] == [("id", True), ("name", False), ("note", True)]
    assert extend_columns(second, schema(id=LongType(), name=StringType())) == (
        *first,
        Column("note", "note", StringType(), live=False),
    )


def test_another_type_is_another_place_and_the_old_type_the_old_one() -> None:
    first = extend_columns((), schema(amount=IntegerType()))
    wider = extend_columns(first, schema(amount=LongType()))
    text = extend_columns(wider, schema(amount=StringType()))
    assert [places(columns)["amount"] for columns in (first, wider, text)] == ["amount", "amount__2", "amount__3"]
    assert places(extend_columns(text, schema(amount=LongType())))["amount"] == "amount__2"


def test_the_users_own_names_are_never_taken_twice() -> None:
    first = extend_columns((), schema(amount=IntegerType(), amount__2=StringType(), AMOUNT__3=StringType()))
    assert places(extend_columns(first, schema(amount=LongType())))["amount"] == "amount__4"


def test_a_new_field_inside_is_another_type() -> None:
    first = extend_columns((), schema(tags=ArrayType(schema(a=LongType()))))
    second = extend_columns(first, schema(tags=ArrayType(schema(a=LongType(), b=LongType()))))
    assert places(second)["tags"] == "tags__2"


def test_what_is_no_part_of_a_value_makes_no_difference() -> None:
    first = extend_columns((), schema(name=StringType(), tags=ArrayType(LongType(), containsNull=False)))
    fields = [
        StructField("name", StringType("UTF8_LCASE"), nullable=False, metadata={"comment": "a name"}),
        StructField("tags", ArrayType(LongType())),
    ]
    assert extend_columns(first, StructType(fields)) == first


def test_through_json_and_back() -> None:
    columns = extend_columns(
        extend_columns((), schema(id=LongType(), tags=ArrayType(schema(a=LongType())))), schema(id=StringType())
    )
    assert columns_from_json(columns_to_json(columns)) == columns
    assert row_type(columns, stored=True).names == ["id", "tags", "id__2"]


def test_what_the_payload_holds_already_is_taken_into_account() -> None:
    held = StructType([StructField("amount", LongType()), StructField("name", StringType())])
    early = extend_columns((), schema(Name=StringType(), amount=IntegerType()), held)
    assert places(early) == {"Name": "Name__2", "amount": "amount__2"}
    now = StructType([*held.fields, *row_type(early, stored=True).fields])
    assert extend_columns((), schema(Name=StringType(), amount=IntegerType()), now) == early
    assert places(extend_columns(early, schema(name=StringType(), amount=LongType()), now)) == {
        "name": "name",
        "amount": "amount",
    }
    assert places(extend_columns((), schema(amount=StringType()), now)) == {"amount": "amount__3"}


A, AB = schema(a=IntegerType()), schema(a=IntegerType(), b=StringType())


@pytest.mark.parametrize(
    ("stored", "recorded", "readable"),
    [
        (AB, A, True),
        (A, AB, False),
        (schema(a=LongType()), A, False),
        (ArrayType(AB), ArrayType(A), True),
        (ArrayType(A), ArrayType(AB), False),
        (MapType(StringType(), AB), MapType(StringType(), A), True),
        (MapType(IntegerType(), A), MapType(StringType(), A), False),
        (ArrayType(IntegerType()), IntegerType(), False),
        (IntegerType(), IntegerType(), True),
    ],
)
def test_a_stored_type_is_read_as_the_recorded_one(stored: DataType, recorded: DataType, readable: bool) -> None:
    assert is_readable_as(stored, recorded) is readable
