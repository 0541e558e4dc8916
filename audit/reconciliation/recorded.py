"""What the ledger of a trail records, as far as a comparison with the source needs it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audit.trail.column_history import Column
from audit.trail.record_kinds import RemovalRecord, parse_columns, parse_record
from audit.trail.tables import LEDGER
from cdf.spark_versions import iterate_rows

if TYPE_CHECKING:
    from audit.trail.tables import TrailTables

__all__ = ["RecordedCommits", "count_removed_values", "read_recorded_commits"]


@dataclass(slots=True)
class RecordedCommits:
    versions: list[int] = field(default_factory=list)
    """In the order of the records."""
    recorded: set[int] = field(default_factory=set)
    """The same versions, for look-up."""
    pins: dict[int, str] = field(default_factory=dict)
    """SHA-256 of the commit file in the source's log, by version."""
    baseline: int | None = None
    table_id: str | None = None
    columns: list[tuple[int, tuple[Column, ...]]] = field(default_factory=list)
    """The columns, and the version from which on they are valid."""

    def columns_at(self, version: int) -> tuple[Column, ...]:
        at = bisect_right(self.columns, version, key=lambda since: since[0])
        return tuple(column for column in self.columns[at - 1][1] if column.live) if at else ()


def read_recorded_commits(tables: TrailTables) -> RecordedCommits:
    from pyspark.sql import functions as F

    fields = (F.get_json_object("record", f"$.{name}").alias(name) for name in ("log_sha256", "table_id", "columns"))
    records = tables.read_current(LEDGER).where("kind in ('commit', 'baseline') and version is not null")
    found = RecordedCommits()
    for row in iterate_rows(records.orderBy("sequence").select("kind", "version", *fields)):
        version = row["version"]
        found.versions.append(version)
        found.recorded.add(version)
        found.table_id = row["table_id"]
        if row["kind"] == "baseline":
            found.baseline = version
        if row["log_sha256"] is not None:
            found.pins[version] = row["log_sha256"]
        if row["columns"] is not None:
            found.columns.append((version, parse_columns(row["columns"], version=row["version"])))
    return found


def count_removed_values(tables: TrailTables) -> Mapping[int, int]:
    """Count the values of each version that were removed according to the ledger."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in tables.read_current(LEDGER).where("kind = 'removal'").select("record").collect():
        record = parse_record(row["record"])
        if not isinstance(record, RemovalRecord):
            continue  # its values are reported as missing; `audit verify` reports the record
        for version, first, last in record.runs:
            ranges.setdefault(version, []).append((first, last))
    return {version: _count_covered(runs) for version, runs in ranges.items()}


def _count_covered(runs: Iterable[tuple[int, int]]) -> int:
    """Number of indexes in these runs, which may overlap."""
    count, end = 0, -1
    for first, last in sorted(runs):
        count += max(0, last - max(first, end + 1) + 1)
        end = max(end, last)
    return count
