"""Schema drift: what changed between two schemas, and whether a sink can follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cdf.errors import SchemaDrift

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from cdf.sink import Capabilities

__all__ = ["ChangeKind", "SchemaChange", "compare", "check_followed", "same_columns"]

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
    detail: str

    def __str__(self) -> str:
        return self.detail


def _physical(field: StructField) -> str:
    return str((field.metadata or {}).get(_PHYSICAL_NAME, field.name))


def compare(before: StructType, after: StructType) -> list[SchemaChange]:
    """What changed, column by column. Comments, nullability and column order are no change: rows keep their meaning."""
    old = {_physical(field): field for field in before.fields}
    new = {_physical(field): field for field in after.fields}
    # Turning column mapping on gives every column a physical name equal to its old name, so identity survives it.
    changes: list[SchemaChange] = []
    for name, field in old.items():
        if name not in new:
            changes.append(SchemaChange(ChangeKind.DROP_COLUMN, field.name, f"column {field.name!r} was dropped"))
        elif new[name].name != field.name:
            detail = f"column {field.name!r} was renamed to {new[name].name!r}"
            changes.append(SchemaChange(ChangeKind.RENAME_COLUMN, field.name, detail))
        elif _shape(new[name]) != _shape(field):
            detail = (
                f"column {field.name!r} changed its type from {field.dataType.simpleString()} "
                f"to {new[name].dataType.simpleString()}"
            )
            changes.append(SchemaChange(ChangeKind.CHANGE_TYPE, field.name, detail))
    for name, field in new.items():
        if name not in old:
            detail = f"column {field.name!r} ({field.dataType.simpleString()}) was added"
            changes.append(SchemaChange(ChangeKind.ADD_COLUMN, field.name, detail))
    return changes


def _shape(field: StructField) -> str:
    return str(field.dataType.simpleString())


def same_columns(before: StructType, after: StructType) -> bool:
    return not compare(before, after)


def check_followed(
    changes: Sequence[SchemaChange], capabilities: Capabilities, *, table: str, version: int, key: Sequence[str]
) -> None:
    """Refuse, by name and before anything is written, what the sink cannot follow."""
    refused = [change for change in changes if change.kind not in capabilities.schema_changes or (change.column in key)]
    if refused:
        raise SchemaDrift(
            f"version {version} of {table} changes the schema in a way the sink cannot follow: "
            + "; ".join(map(str, refused)),
            hint=f"run with --until {version - 1} to apply everything before it; "
            "after that make the target anew from a snapshot: `deltarelay run --reload`",
            table=table,
            version=version,
            changes=[change.detail for change in refused],
        )
