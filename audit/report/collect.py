"""Gathers a report: the ledger is read once, record by record; then the trail is verified.

A report is also made of a trail that somebody has altered: nothing of what a record says is believed to have a form.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from audit.proof import ProofError, base64_text, read_checkpoint, read_note
from audit.queries.risky_operations import why_hiding
from audit.report.model import (
    Actor,
    Anchored,
    Changes,
    Commit,
    ErasureStep,
    Gap,
    Listed,
    Operation,
    Period,
    ReadingStep,
    Removal,
    Report,
    SchemaChange,
    Scope,
)
from audit.trail.column_history import columns_from_json
from audit.trail.record_kinds import PAYLOAD_CHANGES
from audit.trail.redaction import parse_object
from audit.trail.tables import LEDGER
from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.proof import Checkpoint
    from audit.trail.tables import TrailTables
    from audit.verification import FoundCheckpoint, VerifiedState

__all__ = ["make_report"]

FORM = 1
MOST_LISTED = 200
_MOST_DAYS, _MOST_MONTHS = 45, 60


def make_report(
    trail: Trail,
    *,
    pipeline: str,
    source: str,
    keys: Sequence[str],
    before: VerifiedState | None = None,
    extra: Sequence[tuple[str, str]] = (),
    origin: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Everything that is told comes from before the verification, so that it covers all of it.

    ``keys``: the verifier keys that the trail trusts. ``before``, ``extra`` and ``origin``: what it has to be the
    continuation of, as ``Trail.verify`` takes them. ``progress`` is told each step before it begins. Raises
    VerificationError where a table cannot be read.
    """
    tables, tell = trail.require_tables(), progress or (lambda _step: None)
    tell("records")
    seen, missed = trail.read_checkpoints()
    walk = _walked(tables, {one.checkpoint.size for one in seen if one.checkpoint is not None})
    verification, _ = trail.verify(before=before, extra=extra, origin=origin, progress=tell)
    return Report(
        form=FORM,
        made_at=dt.datetime.now(dt.UTC),
        made_by=f"deltarelay {metadata.version('deltarelay')}",
        pipeline=pipeline,
        source=source,
        table_id=walk.table_id,
        trail=trail.path,
        origin=tables.origin(),
        keys=tuple(keys),
        shows_values=False,
        scope=walk.scope(),
        verification=verification,
        changes=walk.all.changes(),
        periods=tuple(Period(name, one.changes()) for name, one in _by_period(walk.days).items()),
        operations=tuple(Operation(name, one.changes()) for name, one in _most_first(walk.operations)),
        actors=tuple(Actor(name, one.first_at, one.last_at, one.changes()) for name, one in _most_first(walk.actors)),
        hiding=Listed(walk.hiding.total, tuple(walk.hiding.commits)),
        deletes_without_ticket=Listed(walk.without_ticket.total, tuple(walk.without_ticket.commits)),
        schema=walk.schema,
        schema_changes=tuple(walk.schema_changes),
        removals=tuple(walk.removals),
        erasures=tuple(walk.erasures),
        readings=tuple(walk.readings),
        gaps=tuple(walk.gaps),
        anchors=tuple(
            _anchored(named.name, seen, walk, reached=named.name not in {one.anchor for one in missed})
            for named in trail.anchors
        ),
        note=_newest_note(trail, seen),
    )


# ── the ledger ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
        if len(self.commits) < MOST_LISTED:
            self.commits.append(commit)


@dataclass(slots=True)
class _Walk:
    sizes: set[int]
    """Of the checkpoints whose last commit is wanted."""
    sealed: dict[int, tuple[int, dt.datetime | None]] = field(default_factory=dict)
    records: int = 0
    unreadable: int = 0
    table_id: str | None = None
    first: tuple[int, dt.datetime | None] | None = None
    last: tuple[int, dt.datetime | None] | None = None
    baseline: tuple[int, int] | None = None
    all: _Tally = field(default_factory=_Tally)
    days: dict[str, _Tally] = field(default_factory=dict)
    operations: dict[str | None, _Tally] = field(default_factory=dict)
    actors: dict[str | None, _Tally] = field(default_factory=dict)
    hiding: _Listing = field(default_factory=_Listing)
    without_ticket: _Listing = field(default_factory=_Listing)
    schema: dict[str, str] = field(default_factory=dict)
    schema_changes: list[SchemaChange] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    erasures: list[ErasureStep] = field(default_factory=list)
    readings: list[ReadingStep] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def scope(self) -> Scope:
        version, rows = self.baseline or (None, 0)
        first, last = self.first or (None, None), self.last or (None, None)
        return Scope(first[0], last[0], first[1], last[1], self.records, version, rows, self.unreadable)

    def take(self, text: str | None) -> None:
        self.records += 1
        record = parse_object(text)
        if record.get("kind") in PAYLOAD_CHANGES:
            self._removal(record)
        elif record.get("kind") == "erasure":
            self._erasure(record)
        elif record.get("kind") == "reading":
            self._reading(record)
        elif type(record.get("version")) is int:
            self._commit(record)
        else:
            self.unreadable += 1
        if self.records in self.sizes and self.last is not None:
            self.sealed[self.records] = self.last

    def _commit(self, record: Mapping[str, Any]) -> None:
        version, at, counts = record["version"], _time(record.get("committed_at")), _counts(record.get("counts"))
        operation, actor = _text(record.get("operation")), _text(record.get("user"))
        if self.last is not None and version != self.last[0] + 1:
            before = self.last[0]
            self.gaps.append(
                Gap("missing", before + 1, version - 1) if version > before else Gap("doubled", version, version)
            )
        self.first, self.last = self.first or (version, at), (version, at)
        self.table_id = _text(record.get("table_id")) or self.table_id
        begins = not self.schema
        if "columns" in record:
            self._schema(record["columns"], version, at, begins=begins)
        if record.get("kind") == "baseline":
            self.baseline = version, sum(counts.values())
            return
        self.all.add(counts, at)
        day = "unknown" if at is None else f"{at:%Y-%m-%d}"
        for tally in (
            self.days.setdefault(day, _Tally()),
            self.operations.setdefault(operation, _Tally()),
            self.actors.setdefault(actor, _Tally()),
        ):
            tally.add(counts, at)
        one = _Tally(1, dict(counts)).changes()
        ticket = _text(record.get("ticket"))
        why = why_hiding(operation, json.dumps(record.get("parameters")))
        commit = Commit(version, at, operation, actor, ticket, _text(record.get("purpose")), why, one)
        if why is not None:
            self.hiding.add(commit)
        if one.deletes and ticket is None:
            self.without_ticket.add(replace(commit, why=None))

    def _schema(self, said: Any, version: int, at: dt.datetime | None, *, begins: bool) -> None:
        try:
            columns = columns_from_json(said)
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        before, self.schema = self.schema, {one.name: one.type.simpleString() for one in columns if one.live}
        for name in () if begins else dict.fromkeys([*before, *self.schema]):
            was, now = before.get(name), self.schema.get(name)
            if was != now:
                change = "added" if was is None else "removed" if now is None else "type"
                self.schema_changes.append(SchemaChange(version, at, change, name, was, now))

    def _removal(self, record: Mapping[str, Any]) -> None:
        removed, sequence, values = (record.get(name) for name in ("removed", "sequence", "values"))
        removed = record.get("sealed") if record["kind"] == "sealing" else removed
        told = {name: said for name, said in record.items() if isinstance(said, str) and name not in _FORMAL}
        self.removals.append(
            Removal(
                sequence=sequence if isinstance(sequence, int) else self.records - 1,
                removed_at=_time(record.get("removed_at")),
                values=values if isinstance(values, int) else 0,
                versions=len(removed) if isinstance(removed, dict) else 0,
                told=told,
                kind=record["kind"],
            )
        )

    def _erasure(self, record: Mapping[str, Any]) -> None:
        requests = record.get("requests")
        self.erasures.append(
            ErasureStep(
                sequence=self.records - 1,
                noted_at=_time(record.get("noted_at")),
                run=_text(record.get("run")) or "",
                state=_text(record.get("state")) or "",
                requests=len(requests) if isinstance(requests, list) else 0,
            )
        )

    def _reading(self, record: Mapping[str, Any]) -> None:
        keys = record.get("keys")
        said = {name: _text(record.get(name)) or "" for name in ("role", "reader", "purpose", "question")}
        self.readings.append(
            ReadingStep(
                sequence=self.records - 1,
                read_at=_time(record.get("read_at")),
                keys=keys if isinstance(keys, int) else 0,
                **said,
            )
        )


_FORMAL = {"kind", "previous", "table_id", "removed_at", "removed", "sealed", "hashes_root", "made_in"}
"""Of a removal's record: what says nothing of who and why."""


def _walked(tables: TrailTables, sizes: set[int]) -> _Walk:
    walk = _Walk(sizes)
    for row in tables.read_current(LEDGER).select("record", "sequence").orderBy("sequence").toLocalIterator():
        walk.take(row["record"])
    return walk


def _text(said: object) -> str | None:
    return said if isinstance(said, str) else None


def _counts(said: object) -> Mapping[str, int]:
    counts = said if isinstance(said, dict) else {}
    return {kind: count for kind, count in counts.items() if type(count) is int}


def _time(said: object) -> dt.datetime | None:
    try:
        at = dt.datetime.fromisoformat(said) if isinstance(said, str) else None
        return None if at is None or at.tzinfo is None else at.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None


def _by_period(days: Mapping[str, _Tally]) -> Mapping[str, _Tally]:
    """By day, by month or by year: as fine as is still read."""
    months = {day[:7] for day in days}
    width = 10 if len(days) <= _MOST_DAYS else 7 if len(months) <= _MOST_MONTHS else 4
    periods: dict[str, _Tally] = {}
    for day, one in sorted(days.items()):
        periods.setdefault(day if day == "unknown" else day[:width], _Tally()).add(one.counts, None, one.commits)
    return periods


def _most_first(tallies: Mapping[str | None, _Tally]) -> Iterable[tuple[str | None, _Tally]]:
    return sorted(tallies.items(), key=lambda one: (-sum(one[1].counts.values()), -one[1].commits, one[0] or ""))


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _anchored(name: str, seen: Sequence[FoundCheckpoint], walk: _Walk, *, reached: bool) -> Anchored:
    here = [one for one in seen if one.where == name]
    newest = _newest(here)
    if newest is None:
        return Anchored(name, reached, len(here), len(here), None, None, None, None)
    version, at = walk.sealed.get(newest.size, (None, None))
    not_signed = sum(not one.signed for one in here)
    return Anchored(name, reached, len(here), not_signed, newest.size, base64_text(newest.root), version, at)


def _newest(seen: Sequence[FoundCheckpoint]) -> Checkpoint | None:
    """The largest that is signed by a key that is trusted."""
    signed = [one.checkpoint for one in seen if one.signed and one.checkpoint is not None]
    return max(signed, key=lambda one: one.size) if signed else None


def _newest_note(trail: Trail, seen: Sequence[FoundCheckpoint]) -> str | None:
    """Its text, from whichever anchor has it as its latest."""
    newest = _newest(seen)
    anchors = {named.name: named.anchor for named in trail.anchors}
    for where in dict.fromkeys(one.where for one in seen if newest is not None and one.checkpoint == newest):
        note = anchors[where].latest(trail.tables.origin())
        try:
            if note is not None and read_checkpoint(read_note(note)[0]) == newest:
                return note
        except ProofError:
            continue
    return None
