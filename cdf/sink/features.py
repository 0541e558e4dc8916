"""What a sink may offer beyond the contract. Generic code checks for each protocol with ``isinstance``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cdf.sink.contract import Sink
from cdf.sink.controls import Controls
from cdf.sink.records import (
    Activity,
    Applied,
    BucketDigest,
    DeadLetter,
    Position,
    RowDigest,
    RunRecord,
    Source,
    Standing,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from cdf.changes.window import Snapshot
    from cdf.errors import CdfError

__all__ = [
    "Comparable",
    "Controllable",
    "DeadLetterStore",
    "HashingImage",
    "Image",
    "Monitored",
    "Movable",
    "Observable",
    "Reloadable",
    "RowHashes",
    "SetsAside",
    "Tracked",
]


@runtime_checkable
class Tracked(Protocol):
    """A sink whose position can be read at any time, as ``status`` does."""

    def position(self) -> Position:
        """Read the position. Needs neither ``open`` nor a Spark session, answers in milliseconds."""
        ...


@runtime_checkable
class Observable(Protocol):
    """A sink that shows what happens at its target: for ``status``, metrics and the status page."""

    def activity(self) -> Activity:
        """Read the activity. Needs neither ``open`` nor a Spark session, answers in milliseconds.

        What the user may not read is None, except for the position. Raises ``SinkUnavailable``.
        """
        ...


@runtime_checkable
class Movable(Protocol):
    """A sink whose position a user may move: for ``position show|set|adopt|rewind``."""

    def standing(self, *, most_records: int = 10) -> Standing:
        """Read everything about the position. Needs neither ``open`` nor a Spark session."""
        ...

    def move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None = None) -> None:
        """Move the position and record the move, in one durable step. The target's rows are not touched.

        Takes the lease for that moment (``LeaseHeld`` while a runner is alive) and raises the epoch. Raises
        ``WindowOutOfOrder`` if the position is no longer ``before``, and ``TargetNotReady`` for everything that would make
        ``open`` refuse the target afterwards; that includes a position for an empty target.
        """
        ...


@runtime_checkable
class Controllable(Protocol):
    """A sink that stores what users decide about its pipeline: for ``pause``, ``resume``, ``approve`` and every runner.

    Neither method needs ``open`` or a Spark session, nor disturbs a runner. Both raise ``SinkUnavailable``.
    """

    def controls(self) -> Controls:
        """Read the controls; empty where none are stored. Answers in milliseconds."""
        ...

    def change_controls(self, change: Callable[[Controls], Controls]) -> Controls:
        """Replace the controls by ``change(controls)``, atomically and durably. → the new controls

        ``change`` may be called again if another process changed them meanwhile. It has no other effect.
        """
        ...


@runtime_checkable
class Reloadable(Sink, Protocol):
    """A state sink that can rebuild its target from a snapshot, whatever the target holds and whatever its position::

    open_to_reload  →  reload  →  close
    """

    def open_to_reload(self, source: Source) -> Position:
        """Like ``open``, in order to ``reload``. Raises ``TargetNotReady`` only for problems that would stop the reload.

        Other columns, other types, the position of another table and a missing target are no problem. Rows without a
        position are one, because they may belong to another writer (``position adopt`` takes them over). So are
        additional columns of the target that hold values and are not in ``source.former``: they are not ours.
        """
        ...

    def reload(self, snapshot: Snapshot) -> Applied:
        """Rebuild the target: afterwards it equals the snapshot, and the position is its version and table id.

        Both change in one step that readers see as a whole or not at all; they never see an empty target. Works from any
        position, also from a later one or from another table's. Raising means that target and position are unchanged.
        Keys and fence are checked as by ``load``. ``Applied.inserts`` is the number of the snapshot's rows; ``seconds``
        and ``ddl`` show how the target was rebuilt. Needs ``open_to_reload``; only ``close`` may follow.
        """
        ...


@runtime_checkable
class Monitored(Protocol):
    """A sink that keeps progress and run history at the target: for ``status``, ``runs`` and ``doctor``.

    The record of a step becomes durable together with the step, so the history says what happened and nothing else.
    """

    def report(self, figures: Mapping[str, Any]) -> None:
        """Store the figures of the last durable step of a following pipeline, or that a run has succeeded. Called on the
        open sink.

        They are information only: figures that cannot be stored are dropped without an error.
        """
        ...

    def reported(self) -> Mapping[str, Any] | None:
        """Read the last figures; None: there are none. Reads only, needs no ``open``, answers in milliseconds."""
        ...

    def runs(self, limit: int, *, failed: bool = False, schema_changes: bool = False) -> Sequence[RunRecord]:
        """Read the run history, the latest first; with ``failed`` only failed attempts, with ``schema_changes`` only steps
        that followed some. Reads only, needs no ``open``."""
        ...

    def record_failure(self, error: CdfError, *, pipeline: str, source: str, retries: int) -> None:
        """Record a failed attempt. Called before ``close``, also for a failure before ``open``.

        It is information only: a record that cannot be stored is dropped quickly and without an error.
        """
        ...

    def now(self) -> dt.datetime:
        """Read the target's clock, with its time zone. Reads only, needs no ``open``, answers in milliseconds."""
        ...


@runtime_checkable
class DeadLetterStore(Protocol):
    """A sink that can store rows as dead letters if the target refuses them: for ``deadletter list|show|replay|drop``."""

    def dead_letters(self, *, most: int = 100, ids: Collection[int] | None = None) -> Sequence[DeadLetter]:
        """Read dead letters, the oldest first. Needs neither ``open`` nor a Spark session."""
        ...

    def drop_dead_letters(self, ids: Collection[int] | None = None) -> int:
        """Delete these dead letters, or all. The target's rows are not touched. → the number of deleted dead letters."""
        ...

    def replay(self, snapshot: Snapshot) -> Applied:
        """Try to store all dead letters again. Called on the open sink.

        ``snapshot`` is the source at the sink's position. The row that it has under a dead letter's key is stored; if it
        has none, the target's row is deleted. Rows that the target still refuses remain dead letters.
        """
        ...


SetsAside = DeadLetterStore
"""Former name of ``DeadLetterStore``."""


class Image(Protocol):
    """The target's contents, frozen at one moment together with its position.

    Write an image as a subclass. The properties with a default describe a target that should hold exactly the source's
    rows and columns.
    """

    @property
    def position(self) -> Position: ...

    def row_count(self) -> int: ...

    def digest(self, buckets: int) -> Mapping[int, BucketDigest]:
        """The digest of each bucket that has rows, by bucket number in ``range(buckets)``."""
        ...

    def rows(self, buckets: int, chosen: Collection[int], *, show_keys: bool) -> Iterator[RowDigest]:
        """Every row of the chosen buckets."""
        ...

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The source's columns that the target holds, in the order of the row digests. None: all of them."""
        return None

    @property
    def by_element(self) -> tuple[str, ...]:
        """The array columns that the target also stores as arrays, not as JSON."""
        return ()

    @property
    def keeps_deleted(self) -> bool:
        """True: rows that the source no longer has are not a difference.

        ``rows`` must then return the buckets in ascending order: there may be as many rows as in the whole table.
        """
        return False

    @property
    def set_aside(self) -> Collection[str]:
        """Digests of the keys of dead letters. They are not compared: neither ``digest`` nor ``rows`` includes them."""
        return ()


@dataclass(frozen=True, slots=True)
class RowHashes:
    """A hash of every row that source and target compute alike, so that equal sums show that both hold the same rows.

    Rows that ``verify`` must report as different need different hashes, except by chance. Equal rows may have different
    ones: then all rows are compared as those of any other image.
    """

    of_batch: Callable[[pa.RecordBatch], np.ndarray[Any, np.dtype[np.int64]]]
    """The hashes of rows of the source with the columns of ``Image.columns``. Spark's tasks call it."""
    of_target: Callable[[], BucketDigest]
    """All rows of the target as one bucket: their number, and the sum of their hashes. Called in a thread."""
    cancel: Callable[[], None]
    """End ``of_target`` early; raises nothing. Called in another thread, until it has ended."""


@runtime_checkable
class HashingImage(Protocol):
    """An image that can also show cheaply that nothing differs."""

    def row_hashes(self) -> RowHashes | None:
        """None: not for these columns. Asked only of an image without dead letters that keeps no deleted rows."""
        ...


@runtime_checkable
class Comparable(Protocol):
    """A sink whose contents ``verify`` can compare with the source."""

    def image(self, source: Source) -> AbstractContextManager[Image]:
        """Open an image. Reads only, needs no ``open``; digests follow ``cdf.changes.canonical`` for source and key."""
        ...
