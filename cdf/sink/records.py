"""The values that pass between the pipeline and a sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from cdf.result import Result

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.sink.controls import Controls

__all__ = [
    "Applied",
    "Bounds",
    "BucketDigest",
    "Capabilities",
    "Conflicts",
    "DeadLetter",
    "Inspection",
    "Position",
    "PositionRecord",
    "RowDigest",
    "RunRecord",
    "Source",
    "Standing",
    "at_version",
]


# ── every sink ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What generic code may ask about a sink. It never tests a sink's name."""

    holds: Literal["state", "history"]
    """``state``: the target equals the table at the position. ``history``: the target keeps every change."""
    transactional: bool
    """Rows and position become durable in one step: the whole window or nothing."""
    schema_changes: frozenset[str] = frozenset()
    """The kinds of schema change that ``apply`` follows: values of ``cdf.changes.schema_diff.ChangeKind``."""
    identifier_length: int | None = None
    """Longest column name in bytes; None: the target has no limit."""
    executor_modules: tuple[str, ...] = ()
    """Modules that the sink's tasks import. They are checked on a cluster before a run writes anything; empty: no check."""
    counts_conflicts: bool = True
    """False: the sink writes without reading the target, so ``Applied.conflicts`` says nothing."""
    applies_deletes: bool = True
    """False: rows that the source deletes stay in the target, so no brake on deletes is needed."""
    needs_classic_session: bool = False
    """True: the sink uses Spark's JVM, so a pipeline refuses it over Spark Connect."""
    opens_without_spark: bool = False
    """True: ``inspect``, ``open`` and ``close`` need no Spark session, so a run that has nothing to apply starts none."""


@dataclass(frozen=True, slots=True)
class Source:
    """The table that feeds a sink. ``schema`` holds the table's columns, without those that the change feed adds."""

    table: str
    table_id: str
    schema: StructType
    key: tuple[str, ...]
    pipeline: str
    former: frozenset[str] = frozenset()
    """All columns that the table has or had, as far back as its log goes: a reload may drop them from the target."""
    standing: StructType | None = None
    """The schema that the target should have now: that of its position, or of the version that it will be loaded with.
    None: ``schema`` itself."""
    retries: int = 0
    """How many attempts at the next step failed before this one: for the run history."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed range of versions: ``first..last``."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Position:
    """The last source version whose effect a sink holds. ``version`` is None while the target is empty."""

    version: int | None = None
    table_id: str | None = None
    pending: Bounds | None = None
    """A window that was begun and may be durable in part: the next window must have exactly these bounds."""


def at_version(version: int | None) -> str:
    """Describe a target's position in a message, after the target's name."""
    return "is empty" if version is None else f"is at version {version}"


@dataclass(frozen=True, slots=True)
class Inspection(Result):
    """The result of ``inspect``, which changes nothing."""

    position: Position = field(default_factory=Position)
    problems: tuple[str, ...] = ()
    """Everything that would stop ``open``, ``load`` or ``apply``, all at once. Each problem names its remedy."""
    ddl: tuple[str, ...] = ()
    """The statements that ``open``, ``load`` or the next ``apply`` would run for this schema."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflicts(Result):
    """Net changes that contradict the target's rows. There are none while the sink is the only writer of the target."""

    insert_met_row: int = 0
    update_met_none: int = 0
    delete_met_none: int = 0
    within_window: int = 0
    """Changes of one key that contradict each other inside the window: the source held the key twice."""

    @property
    def total(self) -> int:
        return self.insert_met_row + self.update_met_none + self.delete_met_none + self.within_window

    def __add__(self, other: Conflicts) -> Conflicts:
        return Conflicts(
            self.insert_met_row + other.insert_met_row,
            self.update_met_none + other.update_met_none,
            self.delete_met_none + other.delete_met_none,
            self.within_window + other.within_window,
        )


@dataclass(frozen=True, slots=True)
class Applied(Result):
    """One durable step. A state sink counts net changes, a history sink counts changes."""

    position: int
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    conflicts: Conflicts = field(default_factory=Conflicts)
    rejected: int = 0
    """Rows that could not be stored and became dead letters. They are included in the counts above."""
    copied: int | None = None
    """Rows of the whole table, if the sink applied the window by copying the table. The counts above are the window's."""
    replayed: bool = False
    """The sink held this window already and changed nothing."""
    ddl: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent, by step."""


# ── run history ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RunRecord(Result):
    """One past step that became durable, or one failed attempt. None: unknown, or not reached."""

    pipeline: str
    source: str
    target: str
    started_at: dt.datetime
    ended_at: dt.datetime
    kind: str
    """``load``, ``window`` or ``reload``; ``open`` for an attempt that failed before any of them."""
    first: int | None
    last: int | None
    rows_in: int | None
    """Rows of the change feed, before their net effect; rows of the table for a load."""
    inserts: int | None
    updates: int | None
    deletes: int | None
    conflicts: int | None
    change_bytes: int | None
    seconds: Mapping[str, float]
    retries: int
    """How many attempts failed before this one."""
    code: str | None
    """The error's code, if the attempt failed; ``condition`` is the Delta condition or SQLSTATE behind it."""
    condition: str | None
    schema_changes: tuple[str, ...] = ()
    """The schema changes of the source that the step followed, in words; they are in version ``first``."""


# ── positions that a user can move ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PositionRecord(Result):
    """One change of a position by a user or by a reload."""

    at: dt.datetime
    action: str
    from_version: int | None
    to_version: int
    by: str
    """The operating system user and, if the target has users, the target's user."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Standing(Result):
    """Everything that a sink knows about its position."""

    position: Position = field(default_factory=Position)
    source: str | None = None
    """The table that the sink was last opened for."""
    epoch: int = 0
    lease_holder: str | None = None
    """The id of the runner that holds the lease now; None: the lease is free."""
    lease_until: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    records: tuple[PositionRecord, ...] = ()
    """The latest first."""


@dataclass(frozen=True, slots=True)
class Activity(Result):
    """What can be seen of a pipeline at its target, without a runner of one's own."""

    position: Position = field(default_factory=Position)
    moved_at: dt.datetime | None = None
    """When the position moved last; None: it never did, or it is unknown."""
    has_runner: bool | None = None
    """Whether a runner holds the lease now; None: unknown."""
    runner_since: dt.datetime | None = None
    """When that runner began; None: there is none, or it is unknown."""
    runner_seen_at: dt.datetime | None = None
    """Until when a runner was at the target, alive or ended; None: unknown, or ``succeeded_at`` is recorded."""
    succeeded_at: dt.datetime | None = None
    """When a run succeeded last, also one without new commits; None: not recorded."""
    last: Mapping[str, Any] | None = None
    """The figures of the last step of a pipeline that follows its table."""
    dead_letters: int | None = None
    """None: unknown."""
    controls: Controls | None = None
    """The same as ``Controllable.controls``, where it needs no further request; None: ask for it."""


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class DeadLetter(Result):
    """A row that could not be stored. ``key`` and ``row`` hold values: show them only on request."""

    id: int
    version: int | None
    committed_at: dt.datetime | None
    change: str
    reason: str
    column: str | None
    constraint: str | None
    sqlstate: str | None
    key_digest: str
    key: str
    row: str | None
    rejected_at: dt.datetime


# ── verification ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class BucketDigest:
    """Row count and order-independent checksum of one bucket of keys; see ``cdf.changes.canonical``."""

    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class RowDigest:
    """One row in a comparison: the hashes of its key and of all its columns, and the key in clear only on request."""

    key: str
    row: str
    shown: str | None = None
