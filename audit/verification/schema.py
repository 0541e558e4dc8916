"""Verifies the columns of the trail's tables: no hash covers the content of additional columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from audit.trail.column_history import GROUPS_COLUMN, SEALED, Column, plain_type, row_type
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, RECORD, STORED_EVENT, TABLES, TrailTables, payload_schema
from audit.verification.results import Findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ExpectedTables", "find_schema_faults", "verify_schema"]

_NAMED = 5
"""Maximum number of columns of a table that are named."""

_Path = tuple[str, ...]


class ExpectedTables(TrailTables):
    """Tables read with the columns that a trail must have. Others are left out; a missing column, or one of another type,
    is NULL."""

    def read(self, name: str, *, version: int | None = None) -> DataFrame:
        from pyspark.sql import functions as F

        rows, wanted = super().read(name, version=version), _expected_schema(name, ())
        actual = {field.name: plain_type(field.dataType) for field in rows.schema.fields}
        row = actual.get("row")
        if name == PAYLOAD and isinstance(row, StructType):
            wanted = payload_schema(row)  # it has the places of all columns, also of those that no record has yet
        fields = {field.name: plain_type(field.dataType) for field in wanted.fields}
        if fields == actual:
            return rows
        columns = (
            F.col(name) if actual.get(name) == type else F.lit(None).cast(type).alias(name)
            for name, type in fields.items()
        )
        return rows.select(*columns)

    def stored_schema(self, name: str) -> StructType:
        return super().read(name).schema


def verify_schema(tables: ExpectedTables, columns: Iterable[Column], findings: Findings) -> None:
    """``columns``: those in the ledger. Other columns are not reported: a window that is being written may have added
    them."""
    columns = tuple(columns)
    row = {field.name: field.dataType for field in tables.stored_schema(PAYLOAD).fields}.get("row")
    if isinstance(row, StructType) and SEALED in row.names and all(column.name != SEALED for column in columns):
        columns = (*columns, GROUPS_COLUMN)
    for name in TABLES:
        if found := list(find_schema_faults(tables.stored_schema(name), _expected_schema(name, columns))):
            more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            message = f"its columns differ from those that were written: {', '.join(found[:_NAMED])}{more}"
            findings.add("altered", name, message)


def find_schema_faults(stored: StructType, wanted: StructType) -> Iterator[str]:
    """Describe each difference. Fields of the payload's ``row`` that only one side has are ignored: a field is created with
    its first value, and if one was planted or removed, the rows with values in it are reported one by one."""
    actual, expected = dict(_leaves(stored, ())), dict(_leaves(wanted, ()))
    places = {path[:2] for path in actual} ^ {path[:2] for path in expected}
    ignored = {place for place in places if len(place) == 2 and place[0] == "row" in wanted.names}
    for path in sorted(actual.keys() | expected.keys()):
        shown = f"`{'.'.join(path)}`"
        if path[:2] in ignored:
            continue
        if path not in actual:
            yield f"{shown} is missing"
        elif path not in expected:
            yield f"{shown} was added"
        elif actual[path] != expected[path]:
            yield f"{shown} is {actual[path]} and was {expected[path]}"


def _leaves(type: DataType, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Path and type of each field without nested fields. Order and nullability are not compared."""
    match type:
        case StructType():
            for field in type.fields:
                yield from _leaves(field.dataType, (*path, field.name))
        case ArrayType():
            yield from _leaves(type.elementType, (*path, "element"))
        case MapType():
            yield from _leaves(type.keyType, (*path, "key"))
            yield from _leaves(type.valueType, (*path, "value"))
        case _:
            yield path, type.simpleString()


def _expected_schema(name: str, columns: Iterable[Column]) -> StructType:
    return {EVENTS: STORED_EVENT, LEDGER: RECORD, PAYLOAD: payload_schema(row_type(columns, stored=True))}[name]
