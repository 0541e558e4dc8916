"""The contract between the pipeline and every sink.

A sink is where changes become durable. It keeps its own **position**: the last source version whose effect it holds.
Data and position become durable in one step, so the position can be believed after any crash, and it alone decides where
a run goes on. The pipeline calls a sink from one thread, in this order::

    inspect*  →  open  →  load (only while the position is empty)  →  apply, apply, …  →  close

A sink that was closed may be opened again; ``load`` and ``apply`` on one that is not open raise a ``PositionError``. What
speaks against a window is looked at in this order: the fence, the table id, whether it is a replay, whether it follows.
Spark's own failures may quote row values: they may be kept as an error's ``__cause__``, never in its text or fields.

``cdf.testing.SinkConformance`` checks every promise made here; a sink that passes it may be used like a built-in one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from cdf.result import Result

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window
    from cdf.errors import CdfError

__all__ = [
    "Sink",
    "Capabilities",
    "Source",
    "Bounds",
    "Position",
    "at_version",
    "Inspection",
    "Conflicts",
    "Applied",
    "Choosing",
    "Evolving",
    "Tracked",
    "Reporting",
    "Recorded",
    "RunRecord",
    "Clocked",
    "Cancellable",
    "DeadLetter",
    "SetsAside",
    "Comparable",
    "Image",
    "PartialImage",
    "BucketDigest",
    "RowDigest",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What generic code may ask about a sink; it never tests a sink's name."""

    holds: Literal["state", "history"]
    """``state``: the target equals the table at the position. ``history``: it keeps every change."""
    transactional: bool
    """Rows and position become durable in one step, all of a window or nothing."""
    schema_changes: frozenset[str] = frozenset()
    """The kinds of schema change that ``apply`` follows: of ``cdf.changes.schema_diff.ChangeKind``'s values."""
    identifier_length: int | None = None
    """Longest column name in bytes, where the target has a limit."""
    counts_conflicts: bool = True
    """False: it writes without looking at what the target holds, so ``Applied.conflicts`` says nothing."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a sink is told of the table that feeds it. ``schema`` holds the columns alone, without the feed's own."""

    table: str
    table_id: str
    schema: StructType
    key: tuple[str, ...]
    pipeline: str
    former: frozenset[str] = frozenset()
    """Columns that the table has had, as far as its log tells: what of the target's columns may go with a reload."""
    standing: StructType | None = None
    """The schema that the target is to hold by now: of its position, or of the version that it is going to be loaded with.
    None: ``schema`` itself."""
    retries: int = 0
    """How often what comes first now was tried before, in vain: for the history."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed range of versions: ``first..last``."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a sink stands. ``version`` is None while it holds nothing."""

    version: int | None = None
    table_id: str | None = None
    pending: Bounds | None = None
    """A window that was begun and may be durable in part: the next window must have exactly these bounds."""


def at_version(version: int | None) -> str:
    """A position in a message: what the target is."""
    return "is empty" if version is None else f"is at version {version}"


@dataclass(frozen=True, slots=True)
class Inspection(Result):
    """What ``inspect`` found, without having changed anything."""

    position: Position = field(default_factory=Position)
    problems: tuple[str, ...] = ()
    """Everything that would stop ``open``, ``load`` or ``apply``, all at once; each names what helps."""
    ddl: tuple[str, ...] = ()
    """The statements that ``open``, ``load`` or the next ``apply`` would run, for this schema."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflicts(Result):
    """Net changes that contradict what they met. None is expected while the sink is the target's only writer."""

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
    """One durable step. The counts are net changes for a state sink, changes for a history sink."""

    position: int
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    conflicts: Conflicts = field(default_factory=Conflicts)
    rejected: int = 0
    """Rows that could not be stored, and were set aside: dead letters. They are among the counts above."""
    copied: int | None = None
    """Rows of the whole table, where the sink applied a window by copying that. The counts above are the window's."""
    replayed: bool = False
    """The sink held this window already and changed nothing."""
    ddl: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Where the time went, by step."""


@runtime_checkable
class Sink(Protocol):
    """A target of changes. Everything a sink raises is a ``cdf.errors.CdfError``; none carries row or key values."""

    @property
    def capabilities(self) -> Capabilities: ...

    def inspect(self, source: Source) -> Inspection:
        """Look at the target: position, every problem at once, the DDL that would run.

        Reads only, takes no lease, may be called at any time, also while another runner is at work and after ``close``.
        ``source.schema`` is the schema that the target is going to hold, ``source.standing`` the one it holds by now. Raises
        ``SinkUnavailable`` where the target cannot be reached.
        """
        ...

    def open(self, source: Source) -> Position:
        """Take the lease, create what may be created, and say where the target stands.

        Raises ``LeaseHeld`` while another runner is alive (after waiting at most one lease, which is how long a killed
        runner's lease lasts), ``TargetNotReady`` with all problems where ``inspect`` would list any. Opening takes over:
        whoever held the lease before can neither ``load`` nor ``apply`` any more (``Fenced``).
        """
        ...

    def load(self, snapshot: Snapshot) -> Applied:
        """Take in a whole table; allowed only while the position is empty (else ``WindowOutOfOrder``).

        State sinks: afterwards the target equals the snapshot and the position is its version, in one step that readers
        see whole or not at all; an interrupted load leaves nothing and is simply called again. Null or duplicate keys
        are refused (``KeyViolation`` with the fields ``null_rows`` and ``duplicate_keys``). History sinks: the rows are
        appended once, as a baseline, whatever their keys. ``Applied.inserts`` is the number of rows. Returning means
        durable.
        """
        ...

    def apply(self, window: Window) -> Applied:
        """Take in one window; afterwards its effect is there exactly once and the position is ``window.last``.

        Called again with a window that ends at or before the position it changes nothing (``replayed``). A window that
        does not start at position + 1 is refused (``WindowOutOfOrder``; an empty state sink refuses every window, it has to
        be loaded first; the first window of an empty history sink may start anywhere); so is one whose table id is not the
        position's (``TableReplaced``). State sinks apply ``window.net()``, whose rows come in no order that matters.
        A window without any row moves the position. Returning means durable; raising means nothing happened, or that
        ``Position.pending`` tells what is unfinished. Never called concurrently. A Spark job over the window's rows can
        fail because of the rows: ``window.failure(error)`` puts that into words. Once the rows are read, and before they
        are made durable, ``window.confirm()`` is called.
        """
        ...

    def close(self) -> None:
        """Give back the lease and everything else. Safe to call twice, and after a failure; never raises."""
        ...


# ── optional powers, checked with isinstance ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class BucketDigest:
    """Rows and order-free checksum of one bucket of keys; see ``cdf.changes.canonical``."""

    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class RowDigest:
    """One row in a comparison: hashes of its key and of all its columns, and the key in clear only if asked for."""

    key: str
    row: str
    shown: str | None = None


class Image(Protocol):
    """The target's contents, frozen at one moment together with its position."""

    @property
    def position(self) -> Position: ...

    def row_count(self) -> int: ...

    def digest(self, buckets: int) -> Mapping[int, BucketDigest]:
        """The digest of each bucket that has rows, by bucket number in ``range(buckets)``."""
        ...

    def rows(self, buckets: int, chosen: Collection[int], *, show_keys: bool) -> Iterator[RowDigest]:
        """Every row of the chosen buckets."""
        ...


@runtime_checkable
class Evolving(Protocol):
    """A sink that decides about each schema change by itself; ``Capabilities.schema_changes`` is not looked at then."""

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        """Why not, in a few words (empty: the change says it all); None: it can. Reads nothing."""
        ...


@runtime_checkable
class PartialImage(Image, Protocol):
    """Of a target that is not to hold all that the source holds, or more."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that the target holds, in the order in which the row digests have them."""
        ...

    @property
    def by_element(self) -> tuple[str, ...]:
        """Those of ``columns`` that are arrays there too, not JSON."""
        ...

    @property
    def keeps_deleted(self) -> bool:
        """Rows that the source no longer has are no difference. Then ``rows`` gives the buckets in the order of their
        numbers: there may be as many rows as in the whole table."""
        ...

    @property
    def set_aside(self) -> Collection[str]:
        """Digests of the keys that are not compared: dead letters. Neither ``digest`` nor ``rows`` has them."""
        ...


@runtime_checkable
class Choosing(Protocol):
    """A sink that takes a window in by the way that is cheapest."""

    def way(self, window: Window) -> str:
        """``changes``, or what it calls another way; what ``plan`` shows. Reads only, needs no ``open``."""
        ...


@runtime_checkable
class Tracked(Protocol):
    """A sink whose position can be asked for at any time: what ``status`` shows."""

    def position(self) -> Position:
        """Reads only, needs neither ``open`` nor a Spark session, answers in milliseconds."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """A sink that keeps the figures of the last step of whoever follows, so that ``status`` can tell them from anywhere."""

    def report(self, figures: Mapping[str, Any]) -> None:
        """After a durable step, on the open sink. It is information: what cannot be kept is left out without an error."""
        ...

    def reported(self) -> Mapping[str, Any] | None:
        """The last figures, None where there are none. Reads only, needs no ``open``, answers in milliseconds."""
        ...


@dataclass(frozen=True, slots=True)
class RunRecord(Result):
    """One durable step of the past, or one try that failed. None: not known, or not reached."""

    pipeline: str
    source: str
    target: str
    started_at: dt.datetime
    ended_at: dt.datetime
    kind: str
    """``load``, ``window``, ``reload``; of a try that failed before any of them ``open``."""
    first: int | None
    last: int | None
    rows_in: int | None
    """Rows of the feed, before their net effect; of the table for a load."""
    inserts: int | None
    updates: int | None
    deletes: int | None
    conflicts: int | None
    change_bytes: int | None
    seconds: Mapping[str, float]
    retries: int
    """How often it had been tried in vain before."""
    code: str | None
    """Of the error, where the try failed; ``condition`` is Delta's condition or the SQLSTATE behind it."""
    condition: str | None


@runtime_checkable
class Recorded(Protocol):
    """A sink that keeps a history of its durable steps, and of tries that failed.

    The record of a step becomes durable together with the step, so that the history says what happened and nothing else.
    """

    def runs(self, limit: int, *, failed: bool = False) -> Sequence[RunRecord]:
        """The latest first; with ``failed`` only tries that failed. Reads only, needs no ``open``."""
        ...

    def record_failure(self, error: CdfError, *, pipeline: str, source: str, retries: int) -> None:
        """After a try has failed, also before ``open``, and ``close``. It is information: what cannot be kept is left out,
        soon and without an error."""
        ...


@runtime_checkable
class Clocked(Protocol):
    """A sink whose target has a clock of its own: what ``doctor`` holds ours against."""

    def now(self) -> dt.datetime:
        """The target's time, with its zone. Reads only, needs no ``open``, answers in milliseconds."""
        ...


@runtime_checkable
class Reloadable(Sink, Protocol):
    """A sink of state whose target can be made anew, whatever it holds and wherever it stands::

    open_to_reload  →  reload  →  close
    """

    def open_to_reload(self, source: Source) -> Position:
        """As ``open``, in order to ``reload``: only what would stop that counts as a problem (``TargetNotReady``).

        Other columns, other types, a position of another table or a target that is gone are none. Rows without a
        position are one: nobody has said that they may go (``position adopt`` does). So are a target's further columns
        with values in them that are not among ``source.former``: they are somebody's own.
        """
        ...

    def reload(self, snapshot: Snapshot) -> Applied:
        """Make the target anew: afterwards it equals the snapshot and the position is its version and its table id.

        Both in one step that readers see whole or not at all: at no moment do they meet an empty target. Works from any
        position, also a later one or one of another table. Raising means that target and position are as they were. Keys
        are checked as by ``load``, and so is the fence. ``Applied.inserts`` is the number of the snapshot's rows;
        ``seconds`` and ``ddl`` show how it was done. Needs ``open_to_reload``; after it only ``close``.
        """
        ...


@dataclass(frozen=True, slots=True)
class PositionRecord(Result):
    """One change of a position that was made by hand, or by a reload."""

    at: dt.datetime
    action: str
    from_version: int | None
    to_version: int
    by: str
    """Who: the user of the machine, and of the target where it knows users of its own."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Standing(Result):
    """All that a sink knows about its position."""

    position: Position = field(default_factory=Position)
    source: str | None = None
    """The table that it was last opened for."""
    epoch: int = 0
    lease_holder: str | None = None
    """An id of the runner that holds the lease at this moment; None: nobody does."""
    lease_until: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    records: tuple[PositionRecord, ...] = ()
    """The latest first."""


@dataclass(frozen=True, slots=True)
class DeadLetter(Result):
    """A row that could not be stored, and was set aside. ``key`` and ``row`` hold values: shown where they are asked for."""

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


@runtime_checkable
class SetsAside(Protocol):
    """A sink that can set rows aside which cannot be stored; what ``deadletter list|show|replay|drop`` work with."""

    def dead_letters(self, *, most: int = 100, ids: Collection[int] | None = None) -> Sequence[DeadLetter]:
        """The oldest first. Reads only, needs neither ``open`` nor a Spark session."""
        ...

    def drop_dead_letters(self, ids: Collection[int] | None = None) -> int:
        """Forget them, all or those; the target's rows are not touched. → how many"""
        ...

    def replay(self, snapshot: Snapshot) -> Applied:
        """Try all of them again, with the rows that the source has under their keys at the sink's position, of which
        ``snapshot`` is: stored, or deleted where there is none any more. Those that still do not fit stay. On the open sink.
        """
        ...


@runtime_checkable
class Movable(Protocol):
    """A sink whose position a person may move; what ``position show|set|adopt|rewind`` work with."""

    def standing(self, *, most_records: int = 10) -> Standing:
        """Reads only, needs neither ``open`` nor a Spark session."""
        ...

    def move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None = None) -> None:
        """Move the position and leave a record of it, in one durable step. The target's rows are not touched.

        Takes the lease for that moment (``LeaseHeld`` while a runner is alive) and raises the epoch. Refused are a
        position that is not ``before`` any more (``WindowOutOfOrder``), and with ``TargetNotReady`` everything for which
        ``open`` would refuse the target afterwards; a position for an empty target is among that.
        """
        ...


@runtime_checkable
class Cancellable(Protocol):
    """A sink whose running step can be given up, for a caller that has waited long enough."""

    def cancel(self) -> None:
        """Called from another thread: the ``load`` or ``apply`` that waits for the target fails soon, nothing applied.

        Never raises; without effect where nothing is running.
        """
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A sink that prepares a window while the one before it is being made durable."""

    def announce(self, window: Window) -> None:
        """Before ``apply`` of a window: the one after it, the very object that ``apply`` is to be given next.

        It may never come: after a failure another window does, or none. Nothing of an announced window can be seen before
        its own ``apply``, where also everything is raised that is wrong with it.
        """
        ...


@runtime_checkable
class Comparable(Protocol):
    """A sink whose contents ``verify`` can hold against the source."""

    def image(self, source: Source) -> AbstractContextManager[Image]:
        """Reads only, needs no ``open``; digests as ``cdf.changes.canonical`` has them, by the source's schema and key."""
        ...
