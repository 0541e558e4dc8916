"""Schema drift: what changed between two schemas, and whether a sink can follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


__all__ = [
    "ChangeKind",
    "SchemaChange",
    "compare",
    "same_columns",
    "pairs",
    "printed_alike",
    "same_shape",
    "same_names_in_files",
]

_PHYSICAL_NAME = "delta.columnMapping.physicalName"


class ChangeKind(StrEnum):
    ADD_COLUMN = "add_column"
    DROP_COLUMN = "drop_column"
    RENAME_COLUMN = "rename_column"
    CHANGE_TYPE = "change_type"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    kind: ChangeKind
    column: str
    """Its name before the change; of an added one its name after it."""
    detail: str
    before: StructField | None = field(default=None, compare=False, repr=False)
    """None for an added column."""
    after: StructField | None = field(default=None, compare=False, repr=False)
    """None for a dropped one."""

    def __str__(self) -> str:
        return self.detail


def _physical(field: StructField) -> str | None:
    found = (field.metadata or {}).get(_PHYSICAL_NAME)
    return None if found is None else str(found)


def pairs(before: StructType, after: StructType) -> list[tuple[StructField | None, StructField | None]]:
    """Each field with what it was before: the old ones in their order, then those that are new.

    Turning column mapping on gives every field a physical name equal to its old name, so identity survives it. Removing it
    rewrites the table under the names of that moment: then these are what identifies a field.
    """
    by_name = all(_physical(found) is None for found in after.fields)

    def identity(found: StructField) -> str:
        return found.name if by_name else _physical(found) or found.name

    old = {identity(found): found for found in before.fields}
    new = {identity(found): found for found in after.fields}
    return [(found, new.get(name)) for name, found in old.items()] + [
        (None, found) for name, found in new.items() if name not in old
    ]


def compare(before: StructType, after: StructType) -> list[SchemaChange]:
    """What changed, column by column. Comments, nullability and column order are no change: rows keep their meaning."""
    changes: list[SchemaChange] = []
    for found, now in pairs(before, after):
        if found is None:
            assert now is not None
            detail = f"column {now.name!r} ({now.dataType.simpleString()}) was added"
            changes.append(SchemaChange(ChangeKind.ADD_COLUMN, now.name, detail, after=now))
            continue
        if now is None:
            detail = f"column {found.name!r} was dropped"
            changes.append(SchemaChange(ChangeKind.DROP_COLUMN, found.name, detail, found))
            continue
        if now.name != found.name:
            detail = f"column {found.name!r} was renamed to {now.name!r}"
            changes.append(SchemaChange(ChangeKind.RENAME_COLUMN, found.name, detail, found, now))
        if not same_shape(found.dataType, now.dataType):
            detail = (
                f"column {now.name!r} changed its type from {found.dataType.simpleString()} "
                f"to {now.dataType.simpleString()}"
            )
            changes.append(SchemaChange(ChangeKind.CHANGE_TYPE, now.name, detail, found, now))
    return changes


def same_shape(before: DataType, after: DataType) -> bool:
    """Whether values of both types are written alike. A nested field that was dropped and made again is another one."""
    from pyspark.sql import types as T

    if isinstance(before, T.StructType) and isinstance(after, T.StructType):
        return all(
            old is not None and new is not None and old.name == new.name and same_shape(old.dataType, new.dataType)
            for old, new in pairs(before, after)
        )
    if isinstance(before, T.ArrayType) and isinstance(after, T.ArrayType):
        return same_shape(before.elementType, after.elementType)
    if isinstance(before, T.MapType) and isinstance(after, T.MapType):
        return same_shape(before.keyType, after.keyType) and same_shape(before.valueType, after.valueType)
    return before.simpleString() == after.simpleString()


def same_names_in_files(before: StructType, after: StructType) -> bool:
    """Whether the fields that both have are called alike in the table's files. Delta reads no range across a commit that
    removed column mapping, where they get other names while the columns stay what they are."""
    from pyspark.sql import types as T

    def alike(old: DataType, new: DataType) -> bool:
        if isinstance(old, T.StructType) and isinstance(new, T.StructType):
            return same_names_in_files(old, new)
        if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
            return alike(old.elementType, new.elementType)
        if isinstance(old, T.MapType) and isinstance(new, T.MapType):
            return alike(old.keyType, new.keyType) and alike(old.valueType, new.valueType)
        return True

    return all(
        (_physical(old) or old.name) == (_physical(new) or new.name) and alike(old.dataType, new.dataType)
        for old, new in pairs(before, after)
        if old is not None and new is not None
    )


def same_columns(before: StructType, after: StructType) -> bool:
    return not compare(before, after)


def printed_alike(before: DataType, after: DataType) -> bool:
    """Whether the text of every value of the old type, in JSON too, is that of the same value of the new one."""
    from pyspark.sql import types as T

    whole = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    if isinstance(before, whole) and isinstance(after, whole):
        return whole.index(type(before)) < whole.index(type(after))
    if isinstance(before, T.DecimalType) and isinstance(after, T.DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    return False
