"""Schema drift: the changes between two schemas."""

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
    """The column's name before the change; for an added column its name after the change."""
    detail: str
    before: StructField | None = field(default=None, compare=False, repr=False)
    """None for an added column."""
    after: StructField | None = field(default=None, compare=False, repr=False)
    """None for a dropped column."""

    def __str__(self) -> str:
        return self.detail


def _physical(field: StructField) -> str | None:
    found = (field.metadata or {}).get(_PHYSICAL_NAME)
    return None if found is None else str(found)


def pairs(before: StructType, after: StructType) -> list[tuple[StructField | None, StructField | None]]:
    """Each old field with its new version (None: dropped), then each added field with None as its old version.

    Enabling column mapping gives every field a physical name equal to its name, so fields keep their identity. Removing it
    rewrites the table under the present names: then the names identify the fields.
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
    """The changes, column by column. Comments, nullability and column order do not count: rows keep their meaning."""
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
    """Whether both types have the same form. A nested field that was dropped and added again counts as another field."""
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
    """Whether the common fields have the same names in the table's files.

    They get other names when column mapping is removed, although the columns stay the same. Delta cannot read a range
    across such a commit.
    """
    from pyspark.sql import types as T

    def same_names(old: DataType, new: DataType) -> bool:
        if isinstance(old, T.StructType) and isinstance(new, T.StructType):
            return same_names_in_files(old, new)
        if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
            return same_names(old.elementType, new.elementType)
        if isinstance(old, T.MapType) and isinstance(new, T.MapType):
            return same_names(old.keyType, new.keyType) and same_names(old.valueType, new.valueType)
        return True

    return all(
        (_physical(old) or old.name) == (_physical(new) or new.name) and same_names(old.dataType, new.dataType)
        for old, new in pairs(before, after)
        if old is not None and new is not None
    )


def same_columns(before: StructType, after: StructType) -> bool:
    return not compare(before, after)


def printed_alike(before: DataType, after: DataType) -> bool:
    """Whether every value of the old type has the same text, also in JSON, as the equal value of the new type."""
    from pyspark.sql import types as T

    integers = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    if isinstance(before, integers) and isinstance(after, integers):
        return integers.index(type(before)) < integers.index(type(after))
    if isinstance(before, T.DecimalType) and isinstance(after, T.DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    return False
