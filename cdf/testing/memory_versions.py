"""The parts of a ``MemoryTable``: files, versions, and commit files as Delta writes them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.changes.commits import Metadata
from cdf.testing.changes import Change, Row

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

__all__ = ["PHYSICAL", "File", "FilesGone", "Version", "physical", "shown", "stored", "text_of"]

PHYSICAL = "delta.columnMapping.physicalName"
ROW_BYTES = 100
"""The size of each row in a file."""


class FilesGone(Exception):
    """A file that a reader needs was removed by ``vacuum``. Has the same condition as Spark's error."""

    def getCondition(self) -> str:  # noqa: N802 - the name in Spark's exceptions
        return "FAILED_READ_FILE.FILE_NOT_EXIST"


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """``rows`` have the physical names of their columns."""

    rows: tuple[Row, ...]

    @property
    def bytes(self) -> int:
        return len(self.rows) * ROW_BYTES


@dataclass(frozen=True, slots=True)
class Version:
    """One commit, and the table after it."""

    metadata: Metadata
    files: tuple[File, ...]
    time: dt.datetime
    operation: str
    added: tuple[File, ...] = ()
    removed: tuple[File, ...] = ()
    changes: tuple[Change, ...] | None = None
    """Rows of the change files; None: the feed derives them from the added and removed files."""
    data_change: bool = True
    wrote_metadata: bool = False
    user_metadata: str | None = None


def text_of(version: Version) -> str:
    """The commit file."""
    return "\n".join(map(json.dumps, _actions(version)))


def _actions(version: Version) -> Iterator[dict[str, Any]]:
    info: dict[str, Any] = {"operation": version.operation, "operationParameters": {}}
    if version.user_metadata is not None:
        info["userMetadata"] = version.user_metadata
    yield {"commitInfo": info}
    if version.wrote_metadata:
        metadata = version.metadata
        yield {
            "metaData": {
                "id": metadata.table_id,
                "schemaString": metadata.schema.json(),
                "configuration": dict(metadata.properties),
            }
        }
    for kind, files in (("remove", version.removed), ("add", version.added)):
        for file in files:
            yield {kind: {"size": file.bytes, "dataChange": version.data_change}}
    if version.changes is not None:
        yield {"cdc": {"size": len(version.changes) * ROW_BYTES, "dataChange": False}}


def physical(field: StructField) -> str:
    return str((field.metadata or {}).get(PHYSICAL) or field.name)


def stored(row: Row, schema: StructType) -> Row:
    return {physical(field): row.get(field.name) for field in schema.fields}


def shown(row: Row, schema: StructType) -> Row:
    return {field.name: row.get(physical(field)) for field in schema.fields}
