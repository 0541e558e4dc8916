"""Counts and lists of a report, from one pass over the ledger.

A report is also made of a trail that has been altered: any field of a record may be missing or have another type.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from audit.queries.risky_operations import why_hiding
from audit.report.model import (
    Actor,
    Changes,
    Commit,
    ErasureStep,
    Gap,
    Listed,
    Operation,
    Period,
    ReadingStep,
    Removal,
    SchemaChange,
    Scope,
)
from audit.trail.column_history import columns_from_json
from audit.trail.record_kinds import PAYLOAD_CHANGES
from audit.trail.redaction import parse_object
from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE

__all__ = ["LedgerSummary"]

MAX_LISTED = 200
_MAX_DAYS, _MAX_MONTHS = 45, 60


@dataclass(slots=True)
class _Tally:
    commits: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first_at: dt.datetime | None = None
    last_at: dt.datetime | None = None

    def add(self, counts: Mapping[str, int], at: dt.datetime | None, commits: int = 1) -> None:
        self.commits += commits
        for kind, count in counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        if at is not None:
            self.first_at = at if self.first_at is None else min(self.first_at, at)
            self.last_at = at if self.last_at is None else max(self.last_at, at)

    def changes(self) -> Changes:
        inserts, updates, deletes = (self.counts.get(kind, 0) for kind in (INSERT, UPDATE_POSTIMAGE, DELETE))
        return Changes(self.commits, inserts, updates, deletes)


@dataclass(slots=True)
class _Listing:
    total: int = 0
    commits: list[Commit] = field(default_factory=list)

    def add(self, commit: Commit) -> None:
        self.total += 1
        if len(self.commits) < MAX_LISTED:
            self.commits.append(commit)

    def listed(self) -> Listed:
        return Listed(self.total, tuple(self.commits))


@dataclass(slots=True)
class LedgerSummary:
    checkpoint_sizes: set[int]
    """Sizes of the checkpoints whose last commit ``last_commit_at`` records."""
    last_commit_at: dict[int, tuple[int, dt.datetime | None]] = field(default_factory=dict)
    """By checkpoint size: version and time of the last commit that the checkpoint covers."""
    records: int = 0
    unreadable: int = 0
    table_id: str | None = None
    first: tuple[int, dt.datetime | None] | None = None
    last: tuple[int, dt.datetime | None] | None = None
    baseline: tuple[int, int] | None = None
    schema: dict[str, str] = field(default_factory=dict)
    schema_changes: list[SchemaChange] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    erasures: list[ErasureStep] = field(default_factory=list)
    readings: list[ReadingStep] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    _all: _Tally = field(default_factory=_Tally)
    _days: dict[str, _Tally] = field(default_factory=dict)
    _operations: dict[str | None, _Tally] = field(default_factory=dict)
    _actors: dict[str | None, _Tally] = field(default_factory=dict)
    _hiding: _Listing = field(default_factory=_Listing)
    _without_ticket: _Listing = field(default_factory=_Listing)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def scope(self) -> Scope:
        version, rows = self.baseline or (None, 0)
        first, last = self.first or (None, None), self.last or (None, None)
        return Scope(first[0], last[0], first[1], last[1], self.records, version, rows, self.unreadable)

    def changes(self) -> Changes:
        return self._all.changes()

    def periods(self) -> tuple[Period, ...]:
        """By day, month or year: as fine as a reader can survey."""
        months = {day[:7] for day in self._days}
        width = 10 if len(self._days) <= _MAX_DAYS else 7 if len(months) <= _MAX_MONTHS else 4
        periods: dict[str, _Tally] = {}
        for day, tally in sorted(self._days.items()):
            period = day if day == "unknown" else day[:width]
            periods.setdefault(period, _Tally()).add(tally.counts, None, tally.commits)
        return tuple(Period(name, tally.changes()) for name, tally in periods.items())

    def operations(self) -> tuple[Operation, ...]:
        return tuple(Operation(name, tally.changes()) for name, tally in _sort_by_size(self._operations))

    def actors(self) -> tuple[Actor, ...]:
        return tuple(
            Actor(name, tally.first_at, tally.last_at, tally.changes()) for name, tally in _sort_by_size(self._actors)
        )

    def hiding(self) -> Listed:
        return self._hiding.listed()

    def deletes_without_ticket(self) -> Listed:
        return self._without_ticket.listed()

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, text: str | None) -> None:
        """Add the next record of the ledger; ``text`` is its JSON."""
        self.records += 1
        record = parse_object(text)
        if record.get("kind") in PAYLOAD_CHANGES:
            self._add_removal(record)
        elif record.get("kind") == "erasure":
            self._add_erasure(record)
        elif record.get("kind") == "reading":
            self._add_reading(record)
        elif type(record.get("version")) is int:
            self._add_commit(record)
        else:
            self.unreadable += 1
        if self.records in self.checkpoint_sizes and self.last is not None:
            self.last_commit_at[self.records] = self.last

    def _add_commit(self, record: Mapping[str, Any]) -> None:
        version, at, counts = record["version"], _read_time(record.get("committed_at")), _counts(record.get("counts"))
        operation, actor = _read_text(record.get("operation")), _read_text(record.get("user"))
        if self.last is not None and version != self.last[0] + 1:
            before = self.last[0]
            self.gaps.append(
                Gap("missing", before + 1, version - 1) if version > before else Gap("doubled", version, version)
            )
        self.first, self.last = self.first or (version, at), (version, at)
        self.table_id = _read_text(record.get("table_id")) or self.table_id
        is_first_schema = not self.schema
        if "columns" in record:
            self._add_schema(record["columns"], version, at, is_first=is_first_schema)
        if record.get("kind") == "baseline":
            self.baseline = version, sum(counts.values())
            return
        self._all.add(counts, at)
        day = "unknown" if at is None else f"{at:%Y-%m-%d}"
        for tally in (
            self._days.setdefault(day, _Tally()),
            self._operations.setdefault(operation, _Tally()),
            self._actors.setdefault(actor, _Tally()),
        ):
            tally.add(counts, at)
        changes = _Tally(1, dict(counts)).changes()
        ticket = _read_text(record.get("ticket"))
        why = why_hiding(operation, json.dumps(record.get("parameters")))
        commit = Commit(version, at, operation, actor, ticket, _read_text(record.get("purpose")), why, changes)
        if why is not None:
            self._hiding.add(commit)
        if changes.deletes and ticket is None:
            self._without_ticket.add(replace(commit, why=None))

    def _add_schema(self, value: Any, version: int, at: dt.datetime | None, *, is_first: bool) -> None:
        try:
            columns = columns_from_json(value)
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        before = self.schema
        self.schema = {column.name: column.type.simpleString() for column in columns if column.live}
        for name in () if is_first else dict.fromkeys([*before, *self.schema]):
            old, new = before.get(name), self.schema.get(name)
            if old != new:
                change = "added" if old is None else "removed" if new is None else "type"
                self.schema_changes.append(SchemaChange(version, at, change, name, old, new))

    def _add_removal(self, record: Mapping[str, Any]) -> None:
        removed, sequence, values = (record.get(name) for name in ("removed", "sequence", "values"))
        removed = record.get("sealed") if record["kind"] == "sealing" else removed
        fields = {name: text for name, text in record.items() if isinstance(text, str) and name not in _TECHNICAL}
        self.removals.append(
            Removal(
                sequence=sequence if isinstance(sequence, int) else self.records - 1,
                removed_at=_read_time(record.get("removed_at")),
                values=values if isinstance(values, int) else 0,
                versions=len(removed) if isinstance(removed, dict) else 0,
                told=fields,
                kind=record["kind"],
            )
        )

    def _add_erasure(self, record: Mapping[str, Any]) -> None:
        requests = record.get("requests")
        self.erasures.append(
            ErasureStep(
                sequence=self.records - 1,
                noted_at=_read_time(record.get("noted_at")),
                run=_read_text(record.get("run")) or "",
                state=_read_text(record.get("state")) or "",
                requests=len(requests) if isinstance(requests, list) else 0,
            )
        )

    def _add_reading(self, record: Mapping[str, Any]) -> None:
        keys = record.get("keys")
        fields = {name: _read_text(record.get(name)) or "" for name in ("role", "reader", "purpose", "question")}
        self.readings.append(
            ReadingStep(
                sequence=self.records - 1,
                read_at=_read_time(record.get("read_at")),
                keys=keys if isinstance(keys, int) else 0,
                **fields,
            )
        )


_TECHNICAL = {"kind", "previous", "table_id", "removed_at", "removed", "sealed", "hashes_root", "made_in"}
"""Fields of a removal's record that do not explain who removed the values and why."""


def _sort_by_size(tallies: Mapping[str | None, _Tally]) -> Iterable[tuple[str | None, _Tally]]:
    """The largest number of changes first."""
    return sorted(tallies.items(), key=lambda item: (-sum(item[1].counts.values()), -item[1].commits, item[0] or ""))


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _counts(value: object) -> Mapping[str, int]:
    counts = value if isinstance(value, dict) else {}
    return {kind: count for kind, count in counts.items() if type(count) is int}


def _read_time(value: object) -> dt.datetime | None:
    try:
        at = dt.datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if at is None or at.tzinfo is None else at.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None
