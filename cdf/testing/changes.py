"""Windows and snapshots from plain Python rows: without a Delta table, with or without a Spark session."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from cdf.changes.commits import Commit, Metadata
from cdf.changes.in_memory import InMemorySnapshot, InMemoryWindow, arrow_table, feed_schema
from cdf.changes.schema_diff import compare
from cdf.changes.window import Snapshot, Window, WindowSource
from cdf.sink import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Row", "Change", "Edit", "insert", "update", "delete", "commit", "SampleTable"]

Row = Mapping[str, Any]

_EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_ROW_BYTES = 100


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the feed, without its version."""

    type: str
    row: Row


Edit = tuple[Change, ...]
"""What one statement does to one row: an update is two changes."""


def insert(row: Row) -> Edit:
    return (Change(INSERT, row),)


def update(before: Row, after: Row) -> Edit:
    return (Change(UPDATE_PREIMAGE, before), Change(UPDATE_POSTIMAGE, after))


def delete(row: Row) -> Edit:
    return (Change(DELETE, row),)


def commit(version: int, edits: Iterable[Edit] = (), *, metadata: Metadata | None = None) -> Commit:
    """A commit as the log would describe it: one minute after the previous one, with 100 bytes for each change."""
    changes = sum(len(edit) for edit in edits)
    return Commit(
        version=version,
        timestamp=_EPOCH + dt.timedelta(minutes=version),
        operation="MERGE" if changes else "OPTIMIZE",
        change_files=1 if changes else 0,
        change_bytes=changes * _ROW_BYTES,
        metadata=metadata,
    )


@dataclass(frozen=True, slots=True)
class _SampleSource(WindowSource):
    table_id: str

    def commit_sha256(self, version: int) -> str:
        return hashlib.sha256(f"{self.table_id}/{version}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class SampleTable:
    """A source table that exists only in the test. A column that is missing in a row is NULL.

    Its windows and snapshots are DataFrames of the session ``spark``; if that is None, they are in memory, see
    ``cdf.changes.in_memory``.
    """

    spark: SparkSession | None
    schema: StructType
    key: tuple[str, ...]
    table: str = "sample"
    table_id: str = "5a3b0c5e-0000-4000-8000-000000000001"
    former: StructType | None = None
    """The previous schema; None: it never changed."""

    def source(self, pipeline: str = "sample") -> Source:
        return Source(self.table, self.table_id, self.schema, self.key, pipeline)

    def with_schema(self, schema: StructType) -> SampleTable:
        """The same table after its schema changed: its windows begin with that change."""
        return dataclasses.replace(self, schema=schema, former=self.schema)

    def snapshot(self, version: int, rows: Sequence[Row]) -> Snapshot:
        values = [self._values(row) for row in rows]
        known = self.table, self.table_id, self.schema, self.key, version
        if (spark := self.spark) is None:
            return InMemorySnapshot(*known, rows=lambda: arrow_table(values, self.schema))
        return Snapshot(*known, read=lambda: spark.createDataFrame(values, self.schema))

    def window(self, first: int, *commits: Sequence[Edit]) -> Window:
        """The versions ``first, first + 1, …``, one for each list of edits. An empty list changes no row."""
        versions = dict(enumerate(commits, start=first))
        values = [
            (*self._values(change.row), change.type, version, _EPOCH + dt.timedelta(minutes=version))
            for version, edits in versions.items()
            for change in chain.from_iterable(edits)
        ]
        known = self.table, self.table_id, self.schema, self.key
        listed = tuple(commit(version, edits) for version, edits in versions.items())
        schema, drift = (
            feed_schema(self.schema),
            () if self.former is None else tuple(compare(self.former, self.schema)),
        )
        if (spark := self.spark) is None:
            rows = lambda: arrow_table(values, schema)  # noqa: E731
            return InMemoryWindow(*known, listed, source=_SampleSource(self.table_id), drift=drift, rows=rows)
        read = lambda: spark.createDataFrame(values, schema)  # noqa: E731
        return Window(*known, listed, read, source=_SampleSource(self.table_id), drift=drift)

    def _values(self, row: Row) -> tuple[Any, ...]:
        if unknown := set(row) - set(self.schema.names):
            raise ValueError(f"{self.table} has no column {', '.join(sorted(unknown))}")
        return tuple(row.get(name) for name in self.schema.names)
