"""Which differences between two schemas are changes, what they are called, and which of them a sink may refuse."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from cdf.changes.schema_diff import ChangeKind, SchemaChange, compare, same_columns, same_names_in_files
from cdf.errors import SchemaDrift
from cdf.sink import Sink
from cdf.sink.schema_evolution import check_followed
from cdf.testing import MemorySink

BASE = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
FOLLOWS_ADDITIONS = MemorySink(schema_changes={"add_column"})
FOLLOWS_NOTHING = MemorySink(schema_changes=())


def mapped(name: str, physical: str) -> StructField:
    return StructField(name, StringType(), True, {"delta.columnMapping.physicalName": physical})


def test_equal_schemas_have_no_changes() -> None:
    assert compare(BASE, BASE) == []
    assert same_columns(BASE, BASE)


def test_comment_nullability_and_order_are_no_changes() -> None:
    other = StructType(
        [StructField("name", StringType(), False, {"comment": "full name"}), StructField("id", LongType(), True)]
    )
    assert compare(BASE, other) == []


def test_an_added_column() -> None:
    after = StructType([*BASE.fields, StructField("age", IntegerType())])
    assert compare(BASE, after) == [SchemaChange(ChangeKind.ADD_COLUMN, "age", "column 'age' (int) was added")]


def test_a_dropped_column() -> None:
    after = StructType([BASE["id"]])
    assert compare(BASE, after) == [SchemaChange(ChangeKind.DROP_COLUMN, "name", "column 'name' was dropped")]


def test_a_changed_type_names_both_types() -> None:
    after = StructType([BASE["id"], StructField("name", DecimalType(10, 2))])
    assert compare(BASE, after) == [
        SchemaChange(ChangeKind.CHANGE_TYPE, "name", "column 'name' changed its type from string to decimal(10,2)")
    ]


def test_a_change_inside_a_nested_column_is_a_changed_type() -> None:
    def nested(*fields: StructField) -> StructType:
        return StructType([StructField("tags", ArrayType(StructType(list(fields))))])

    before = nested(StructField("a", IntegerType()))
    after = nested(StructField("a", IntegerType()), StructField("b", StringType()))
    assert [(change.kind, change.detail) for change in compare(before, after)] == [
        (
            "change_type",
            "column 'tags' changed its type from array<struct<a:int>> to array<struct<a:int,b:string>>",
        )
    ]


def test_a_rename_is_seen_by_the_physical_name() -> None:
    before = StructType([mapped("name", "col-1")])
    after = StructType([mapped("full_name", "col-1")])
    assert compare(before, after) == [
        SchemaChange(ChangeKind.RENAME_COLUMN, "name", "column 'name' was renamed to 'full_name'")
    ]


def test_without_column_mapping_a_new_name_is_a_drop_and_an_addition() -> None:
    before = StructType([StructField("name", StringType())])
    after = StructType([StructField("full_name", StringType())])
    assert [(change.kind, change.column) for change in compare(before, after)] == [
        ("drop_column", "name"),
        ("add_column", "full_name"),
    ]


def test_a_column_dropped_and_made_again_under_its_name_is_another_column() -> None:
    before = StructType([mapped("name", "col-1")])
    after = StructType([mapped("name", "col-2")])
    assert [change.kind for change in compare(before, after)] == ["drop_column", "add_column"]


def test_turning_column_mapping_on_changes_nothing() -> None:
    before = StructType([StructField("name", StringType())])
    assert compare(before, StructType([mapped("name", "name")])) == []


def test_removing_column_mapping_changes_nothing() -> None:
    before = StructType([mapped("name", "col-1"), mapped("title", "col-2")])
    after = StructType([StructField("name", StringType()), StructField("title", StringType())])
    assert compare(before, after) == []
    assert not same_names_in_files(before, after)  # a range across it cannot be read
    assert same_names_in_files(before, before)


def test_a_nested_field_dropped_and_made_again_is_another_one() -> None:
    def nested(physical: str) -> StructType:
        return StructType([StructField("s", StructType([mapped("a", "col-1"), mapped("b", physical)]))])

    assert [change.kind for change in compare(nested("col-2"), nested("col-3"))] == ["change_type"]
    assert compare(nested("col-2"), nested("col-2")) == []


def test_the_order_of_nested_fields_is_no_change() -> None:
    fields = [StructField("a", IntegerType()), StructField("b", StringType())]
    before = StructType([StructField("s", ArrayType(StructType(fields)))])
    after = StructType([StructField("s", ArrayType(StructType(fields[::-1])))])
    assert compare(before, after) == []


def test_two_columns_that_swap_their_names_are_two_renames() -> None:
    before = StructType([mapped("a", "col-1"), mapped("b", "col-2")])
    after = StructType([mapped("b", "col-1"), mapped("a", "col-2")])
    assert [change.detail for change in compare(before, after)] == [
        "column 'a' was renamed to 'b'",
        "column 'b' was renamed to 'a'",
    ]


def refused(changes: list[SchemaChange], sink: Sink) -> list[str]:
    try:
        check_followed(changes, sink, table="people", version=4, key=("id",))
    except SchemaDrift as error:
        found: list[str] = error.fields["changes"]
        return found
    return []


def test_a_sink_follows_what_it_says_it_follows() -> None:
    after = StructType([*BASE.fields, StructField("age", IntegerType())])
    added = compare(BASE, after)
    assert refused(added, FOLLOWS_ADDITIONS) == []
    assert refused(added, FOLLOWS_NOTHING) == ["column 'age' (int) was added"]
    assert refused(compare(after, BASE), FOLLOWS_ADDITIONS) == ["column 'age' was dropped"]


def test_everything_that_cannot_be_followed_is_refused_at_once_and_by_name() -> None:
    after = StructType([StructField("name", IntegerType()), StructField("age", IntegerType())])
    with pytest.raises(SchemaDrift) as caught:
        check_followed(compare(BASE, after), FOLLOWS_NOTHING, table="people", version=4, key=("id",))
    assert caught.value.message == (
        "version 4 of people changes the schema in a way the sink cannot follow: column 'id' was dropped; "
        "column 'name' changed its type from string to int; column 'age' (int) was added"
    )
    assert caught.value.fields == {
        "table": "people",
        "version": 4,
        "changes": [
            "column 'id' was dropped",
            "column 'name' changed its type from string to int",
            "column 'age' (int) was added",
        ],
    }


def test_the_refusal_says_how_to_apply_everything_before_it() -> None:
    with pytest.raises(SchemaDrift) as caught:
        check_followed(
            compare(BASE, StructType([BASE["id"]])), FOLLOWS_ADDITIONS, table="people", version=4, key=("id",)
        )
    assert caught.value.hint is not None
    assert "--until 3" in caught.value.hint


def test_a_change_of_a_key_column_is_refused_even_by_a_sink_that_follows_its_kind() -> None:
    everything = MemorySink(schema_changes=ChangeKind)
    before = StructType([mapped("id", "col-1"), mapped("name", "col-2")])
    after = StructType([mapped("number", "col-1"), mapped("title", "col-2")])
    with pytest.raises(SchemaDrift) as caught:
        check_followed(compare(before, after), everything, table="people", version=4, key=("id",))
    assert caught.value.fields["changes"] == ["column 'id' was renamed to 'number'"]


def test_no_changes_are_never_refused() -> None:
    assert refused(compare(BASE, BASE), FOLLOWS_NOTHING) == []
