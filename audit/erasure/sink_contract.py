"""The erasure component of a sink: how a sink removes a person's data from its target, and proves what it still holds.

A sink that supports erasure is ``Erasable``: it offers one component, ``sink.erasure``. The erasure run calls it in this
order, each call after every sink of every touched table has passed the erasing commits::

    erase  →  purge (repeatedly, until nothing must wait)  →  scan

Each call may be repeated after a crash and then changes nothing. No call returns a row's value: results are counts, storage
locations and dates. No call needs ``sink.open``; a call that writes acquires the target's lease itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from audit.erasure.model import EncryptedColumns, OnErase
from cdf.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.encryption.key_registry import States
    from audit.erasure.model import ReachedState
    from audit.erasure.scan.results import ScanResult
    from audit.erasure.scan.search_terms import SearchTerms
    from audit.reencryption.plaintext_rows import PlaintextRows
    from cdf.source.table import ChangeFeed

__all__ = [
    "Erasable",
    "ErasureTask",
    "PurgeResult",
    "SinkErasure",
    "TrailErasure",
]


@dataclass(frozen=True, slots=True)
class ErasureTask:
    """What one run erases from one source table, as passed to each sink of that table."""

    run: str
    requests: tuple[str, ...]
    """Ids of the erasure requests: the only thing about them that may be stored."""
    table: str
    versions: tuple[int, ...]
    """The erasing commits of the source, ascending; empty where the source held no row any more."""
    key: tuple[str, ...]
    """The source's key columns, in the pipeline's order."""
    on_erase: OnErase
    personal: tuple[str, ...]
    keys: Callable[[], DataFrame] = field(repr=False)
    """The distinct keys of all erased rows, with the columns ``key`` of the source. Values are data: pass them to the target
    as data, never as text of a statement."""
    catch: Callable[[DataFrame], DataFrame] = field(repr=False)
    """Takes a frame with columns of the source (other columns pass through) and returns the data subjects' rows, found by
    identifiers or by key; also rows that the source lost long ago."""
    search_terms: SearchTerms = field(repr=False)
    immediately: bool = False
    """Purge without waiting for the target's own retention."""
    link: str | None = None
    """In a table that is linked to the person's table: the column that says whose a row is. None where the rows hold the
    person's identifiers."""
    others: tuple[str, ...] = ()
    """The columns that name the other people of a row."""
    encrypted: EncryptedColumns = field(default_factory=EncryptedColumns)
    destroyed_keys: frozenset[bytes] = frozenset()
    """Ids of the data subjects' keys that are destroyed."""
    registered_keys: frozenset[bytes] = frozenset()
    """Ids of all their keys in the registry, destroyed or on hold."""


@dataclass(frozen=True, slots=True)
class PurgeResult(Result):
    """The outcome of one call of ``purge``. The purge is done once ``waits_until`` is None."""

    done: Mapping[str, int] = field(default_factory=dict)
    """What was removed for good, by kind: files, rows, records."""
    waits_until: dt.datetime | None = None
    """When to call again: the rest can be removed then, and not earlier."""
    waits_for: str | None = None
    """In a few words: ``log retention of events``."""
    out_of_reach: tuple[str, ...] = ()
    """Copies of the target that this program cannot remove, and what removes them."""


class SinkErasure(Protocol):
    """What every sink that supports erasure implements. Inherit from it to get the default of ``retained_rows``."""

    def erase(self, task: ErasureTask) -> Mapping[str, int]:
        """Remove what the replicated delete leaves behind: soft-deleted rows, staging, dead letters, values of former
        versions. Return counts by kind, in words: ``{"rows": 3, "dead letters": 1}``.

        Called after the sink's position has passed the last of ``versions``; raises WindowOutOfOrder where it has not."""
        ...

    def purge(self, task: ErasureTask, *, now: dt.datetime) -> PurgeResult:
        """Remove for good what storage still holds of erased rows: files, dead tuples, statistics."""
        ...

    def scan(self, terms: SearchTerms) -> ScanResult:
        """Search everything that the target holds for every search term. Reads only."""
        ...

    def retained_rows(self, source: ChangeFeed, columns: Collection[str]) -> Iterator[DataFrame]:  # noqa: ARG002
        """Yield the rows that the target keeps after its source has lost them, and possibly others: they contain identifiers
        that the source no longer has. Each frame has those of ``columns`` that the target has, named as in the source. Reads
        only. Default: none."""
        return iter(())


@runtime_checkable
class TrailErasure(SinkErasure, Protocol):
    """What an audit trail implements in addition: it keeps every change, and encrypts columns under keys of each person."""

    path: str
    """The trail's folder."""

    def record_states(self, table: str, key: tuple[str, ...], run: str, states: Sequence[ReachedState]) -> None:
        """Record in the trail those of the run's states that it does not have yet. ``table`` and ``key``: of its source."""
        ...

    def unencrypted_rows(self) -> PlaintextRows:
        """Count the rows of people that were written before their class of columns was configured, and are readable. Reads
        only."""
        ...

    def has_encrypted_columns(self) -> bool:
        """Return whether the trail holds anything encrypted, whatever is configured now. Reads only."""
        ...

    def read_history(
        self,
        catch: Callable[[DataFrame], DataFrame],
        encrypted: EncryptedColumns,
        states: Callable[[str], States] | None,
    ) -> DataFrame:
        """Return the events of the rows that ``catch`` returns, and of rows with encrypted values of ``encrypted``, with the
        columns ``_commit_version``, ``_commit_timestamp``, ``_change_type``, ``_operation``, ``_unreadable`` (by present
        column name: why its value is not shown; NULL where all are shown), and the source's columns.

        ``states``: given a trail's path, looks up keys; only keys of the tokens are requested. Reads only."""
        ...


@runtime_checkable
class Erasable(Protocol):
    """A sink that supports erasure."""

    @property
    def erasure(self) -> SinkErasure: ...
