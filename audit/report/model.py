"""What a report tells. Times are aware, versions those of the source; of the rows there is nothing but their number."""

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
    """Rows, each of which has two events: the image before and the one after."""
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class Scope(Result):
    first_version: int | None
    last_version: int | None
    first_committed_at: dt.datetime | None
    last_committed_at: dt.datetime | None
    records: int
    baseline_version: int | None
    """The trail begins with the table as it was then."""
    baseline_rows: int
    unreadable: int
    """Records that are none: somebody has altered them."""


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
    """None: Delta did not know who."""
    first_at: dt.datetime | None
    last_at: dt.datetime | None
    changes: Changes


@dataclass(frozen=True, slots=True)
class Commit(Result):
    """``why``: what it can hide; None where that is not what it is listed for."""

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
    """The first of ``total`` commits."""

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
    """Values that were taken out of the trail by a record of it, or sealed."""

    sequence: int
    removed_at: dt.datetime | None
    values: int
    versions: int
    """Of so many commits; 0 where the record tells keys, and not places."""
    told: Mapping[str, str]
    """What the record says of it besides: who, why, by which ticket."""
    kind: str = "removal"
    """``removal``, ``shredding`` (of what keys that are gone have sealed), ``sealing`` (of what was readable until then)."""


@dataclass(frozen=True, slots=True)
class ErasureStep(Result):
    """What the erasure of people in this table had come to."""

    sequence: int
    """Of its record."""
    noted_at: dt.datetime | None
    run: str
    state: str
    requests: int
    """Of so many people."""


@dataclass(frozen=True, slots=True)
class ReadingStep(Result):
    """Sealed values that somebody has read."""

    sequence: int
    """Of its record."""
    read_at: dt.datetime | None
    role: str
    """Of the registry's database."""
    reader: str
    purpose: str
    question: str
    keys: int
    """That were handed out."""


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
    """False: it could not be asked, so nothing is known of what stands there."""
    checkpoints: int
    not_signed: int
    """Of these: by no key that is trusted."""
    records: int | None
    """Covered by the largest that is signed."""
    root: str | None
    """Of that one, base64 as in a checkpoint."""
    version: int | None
    committed_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Report(Result):
    form: int
    """Version of this form: fields are only ever added to it."""
    made_at: dt.datetime
    made_by: str
    pipeline: str
    source: str
    table_id: str | None
    trail: str
    origin: str
    """The trail's name in checkpoints."""
    keys: tuple[str, ...]
    """Verifier keys that were trusted."""
    shows_values: bool
    """Of rows. Never; who made which change, and why, is told as far as the ledger knows it."""
    scope: Scope
    verification: TrailVerification
    changes: Changes
    periods: tuple[Period, ...]
    operations: tuple[Operation, ...]
    actors: tuple[Actor, ...]
    hiding: Listed
    """Operations that can take data out of sight."""
    deletes_without_ticket: Listed
    schema: Mapping[str, str]
    """Columns and types at the end of the trail."""
    schema_changes: tuple[SchemaChange, ...]
    removals: tuple[Removal, ...]
    erasures: tuple[ErasureStep, ...]
    gaps: tuple[Gap, ...]
    anchors: tuple[Anchored, ...]
    note: str | None
    """The largest signed checkpoint, as it is published."""
    readings: tuple[ReadingStep, ...] = ()
