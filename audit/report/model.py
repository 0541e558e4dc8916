"""The contents of a report. Times have a time zone; versions are versions of the source; row values do not occur."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from audit.verification import TrailVerification
from cdf.result import Result

__all__ = [
    "Actor",
    "Anchored",
    "Changes",
    "Commit",
    "Gap",
    "Listed",
    "Operation",
    "Period",
    "ErasureStep",
    "Removal",
    "Report",
    "SchemaChange",
    "Scope",
]


@dataclass(frozen=True, slots=True)
class Changes(Result):
    commits: int = 0
    inserts: int = 0
    updates: int = 0
    """Rows; each has two events: the image before and the image after the update."""
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class Scope(Result):
    first_version: int | None
    last_version: int | None
    first_committed_at: dt.datetime | None
    last_committed_at: dt.datetime | None
    records: int
    baseline_version: int | None
    """The trail begins with a snapshot of the table at this version."""
    baseline_rows: int
    unreadable: int
    """Records that cannot be parsed, because they were altered."""


@dataclass(frozen=True, slots=True)
class Period(Result):
    period: str
    """A day, a month or a year in UTC: ``2026-11-22``, ``2026-11``, ``2026``."""
    changes: Changes


@dataclass(frozen=True, slots=True)
class Operation(Result):
    operation: str | None
    changes: Changes


@dataclass(frozen=True, slots=True)
class Actor(Result):
    actor: str | None
    """None: Delta recorded no user."""
    first_at: dt.datetime | None
    last_at: dt.datetime | None
    changes: Changes


@dataclass(frozen=True, slots=True)
class Commit(Result):
    """``why``: what the commit can hide; None in lists of commits that were chosen for another reason."""

    version: int
    committed_at: dt.datetime | None
    operation: str | None
    actor: str | None
    ticket: str | None
    purpose: str | None
    why: str | None
    changes: Changes


@dataclass(frozen=True, slots=True)
class Listed(Result):
    """``commits``: the first of ``total`` commits."""

    total: int = 0
    commits: tuple[Commit, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaChange(Result):
    version: int
    committed_at: dt.datetime | None
    change: str
    """``added``, ``removed``, or ``type``."""
    column: str
    type_before: str | None
    type_after: str | None


@dataclass(frozen=True, slots=True)
class Removal(Result):
    """A record by which values were removed from the trail, or encrypted."""

    sequence: int
    removed_at: dt.datetime | None
    values: int
    versions: int
    """Number of commits whose values were removed; 0 where the record names keys instead of places."""
    told: Mapping[str, str]
    """Further fields of the record: who removed the values, why, by which ticket."""
    kind: str = "removal"
    """``removal``; ``shredding``: ciphertext of destroyed keys was removed; ``sealing``: readable values were encrypted."""


@dataclass(frozen=True, slots=True)
class ErasureStep(Result):
    """A state that an erasure of people in this table has reached."""

    sequence: int
    """Number of the record in the ledger."""
    noted_at: dt.datetime | None
    run: str
    state: str
    requests: int
    """Number of requests; each is about one person."""


@dataclass(frozen=True, slots=True)
class ReadingStep(Result):
    """An access to encrypted values."""

    sequence: int
    """Number of the record in the ledger."""
    read_at: dt.datetime | None
    role: str
    """Role of the session in the database of the key registry."""
    reader: str
    purpose: str
    question: str
    keys: int
    """Number of keys that the registry returned."""


@dataclass(frozen=True, slots=True)
class Gap(Result):
    fault: str
    """``missing`` or ``doubled``."""
    first_version: int
    last_version: int


@dataclass(frozen=True, slots=True)
class Anchored(Result):
    anchor: str
    reached: bool
    """False: the anchor could not be read, so its checkpoints are unknown."""
    checkpoints: int
    not_signed: int
    """Checkpoints that no trusted key has signed."""
    records: int | None
    """Records that the largest signed checkpoint covers."""
    root: str | None
    """Root of that checkpoint, in base64 as in a checkpoint."""
    version: int | None
    committed_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Report(Result):
    form: int
    """Version of the structure of this report. Later versions only add fields."""
    made_at: dt.datetime
    made_by: str
    pipeline: str
    source: str
    table_id: str | None
    trail: str
    origin: str
    """Name of the trail in checkpoints."""
    keys: tuple[str, ...]
    """Verifier keys that were trusted."""
    shows_values: bool
    """Whether the report contains row values: always False."""
    scope: Scope
    verification: TrailVerification
    changes: Changes
    periods: tuple[Period, ...]
    operations: tuple[Operation, ...]
    actors: tuple[Actor, ...]
    hiding: Listed
    """Operations that can hide data."""
    deletes_without_ticket: Listed
    schema: Mapping[str, str]
    """Columns and types at the end of the trail."""
    schema_changes: tuple[SchemaChange, ...]
    removals: tuple[Removal, ...]
    erasures: tuple[ErasureStep, ...]
    gaps: tuple[Gap, ...]
    anchors: tuple[Anchored, ...]
    note: str | None
    """Text of the largest signed checkpoint, as it is published."""
    readings: tuple[ReadingStep, ...] = ()
