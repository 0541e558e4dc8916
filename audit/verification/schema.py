"""The columns of the trail's tables, held against those that a trail has: no hash covers what else is in them."""

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
"""So many columns of a table are named."""

_Path = tuple[str, ...]


class ExpectedTables(TrailTables):
    """Each table with the columns that a trail has: others are left out, one that is gone or of another type is NULL."""

    def read(self, name: str, *, version: int | None = None) -> DataFrame:
        from pyspark.sql import functions as F

        rows, wanted = super().read(name, version=version), _expected(name, ())
        held = {field.name: plain_type(field.dataType) for field in rows.schema.fields}
        row = held.get("row")
        if name == PAYLOAD and isinstance(row, StructType):
            wanted = payload_schema(row)  # it has the places of every column, also of those that no record tells yet
        fields = {field.name: plain_type(field.dataType) for field in wanted.fields}
        if fields == held:
            return rows
        kept = (
            F.col(one) if held.get(one) == type else F.lit(None).cast(type).alias(one) for one, type in fields.items()
        )
        return rows.select(*kept)

    def held(self, name: str) -> StructType:
        return super().read(name).schema


def verify_schema(tables: ExpectedTables, columns: Iterable[Column], findings: Findings) -> None:
    """``columns``: those that the ledger records; of others, which a window at work may have begun, nothing is said."""
    columns = tuple(columns)
    row = {field.name: field.dataType for field in tables.held(PAYLOAD).fields}.get("row")
    if isinstance(row, StructType) and SEALED in row.names and all(one.name != SEALED for one in columns):
        columns = (*columns, GROUPS_COLUMN)
    for name in TABLES:
        if found := list(find_schema_faults(tables.held(name), _expected(name, columns))):
            more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            words = f"its columns are not those that were written: {', '.join(found[:_NAMED])}{more}"
            findings.add("altered", name, words)


def find_schema_faults(held: StructType, wanted: StructType) -> Iterator[str]:
    """What is different, in words. Of the places in the payload's ``row`` those that both have: a new one is made with its
    first value, and for one that was planted, or is gone, the rows with values in it are told one by one."""
    there, right = dict(_leaves(held, ())), dict(_leaves(wanted, ()))
    places = {path[:2] for path in there} ^ {path[:2] for path in right}
    passed = {place for place in places if len(place) == 2 and place[0] == "row" in wanted.names}
    for path in sorted(there.keys() | right.keys()):
        shown = f"`{'.'.join(path)}`"
        if path[:2] in passed:
            continue
        if path not in there:
            yield f"{shown} is gone"
        elif path not in right:
            yield f"{shown} was added"
        elif there[path] != right[path]:
            yield f"{shown} is {there[path]} and was {right[path]}"


def _leaves(type: DataType, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Path and type of whatever has no parts of its own. Neither order nor nullability are part of it."""
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


def _expected(name: str, columns: Iterable[Column]) -> StructType:
    return {EVENTS: STORED_EVENT, LEDGER: RECORD, PAYLOAD: payload_schema(row_type(columns, stored=True))}[name]
