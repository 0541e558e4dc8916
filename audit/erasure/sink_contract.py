"""What every place that holds copies of a table's rows does when a person is erased: a sink is ``Erasable``.

The run calls it in this order, each call after every sink of every touched table has passed the erasing commits::

    erase  →  purge (again and again, until nothing waits)  →  scan

Each may be called again after a crash and then changes nothing. None carries a row's value out: results are counts, places
and dates.
"""

from __future__ import annotations

import datetime as dt
import errno
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from audit.erasure.model import OnErase, State
from cdf.errors import SourceUnavailable
from cdf.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.encryption.key_registry import States
    from audit.erasure.scan.search_terms import Needles
    from audit.reencryption.plaintext_rows import PlaintextRows
    from cdf.source.table import ChangeFeed

__all__ = [
    "Checked",
    "Erasable",
    "Erasing",
    "Find",
    "Historic",
    "Keeping",
    "Noting",
    "Purged",
    "Reached",
    "Scanned",
    "Sealed",
    "SealedFor",
    "Unseen",
    "not_seen",
]

_PASSES = (
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EBUSY,
)


@dataclass(frozen=True, slots=True)
class SealedFor:
    """What is sealed in a row for one of the people whom it may name: for whoever has one of the tokens, and there."""

    tokens: frozenset[bytes] = frozenset()
    """By which the registry of keys knows somebody; whoever has these has no name."""
    columns: frozenset[str] = frozenset()
    """That are about the person at this place of the row; with their case folded, like the others."""
    others: frozenset[str] = frozenset()
    """That are about somebody else in the row."""


@dataclass(frozen=True, slots=True)
class Erasing:
    """What one run erases from one source table, as a sink of that table is told."""

    run: str
    requests: tuple[str, ...]
    """Ids: all that may be written down anywhere."""
    table: str
    versions: tuple[int, ...]
    """The commits of the source that erased, ascending; none where the source held no row any more."""
    key: tuple[str, ...]
    """The source's key columns, in the pipeline's order."""
    on_erase: OnErase
    personal: tuple[str, ...]
    keys: Callable[[], DataFrame] = field(repr=False)
    """The distinct keys of all rows that were erased, with the columns ``key`` as the source has them. Values are data:
    they go to the target as data, never as text of a statement."""
    catch: Callable[[DataFrame], DataFrame] = field(repr=False)
    """Of a frame with the source's columns (others pass through) the rows that are the subjects', by what they hold or by
    their key: also those that the source lost long ago."""
    needles: Needles = field(repr=False)
    immediately: bool = False
    """Purge without waiting for retentions of the target's own."""
    link: str | None = None
    """The column that says whose a row is, in a table linked to the person's; None where the rows hold the person's
    identifiers."""
    others: tuple[str, ...] = ()
    """The columns that say which other people a row names."""
    sealed: SealedFor = SealedFor()
    shredded: frozenset[bytes] = frozenset()
    """The ids of their keys that are destroyed."""
    registered: frozenset[bytes] = frozenset()
    """The ids of all keys that the registry has of them, destroyed or held."""


@dataclass(frozen=True, slots=True)
class Purged(Result):
    """What one call of ``purge`` came to. It is done once ``waits_until`` is None."""

    done: Mapping[str, int] = field(default_factory=dict)
    """What was removed for good, by kind: files, rows, records."""
    waits_until: dt.datetime | None = None
    """When to call again: what is left can be removed then, and not before."""
    waits_for: str | None = None
    """In a few words: ``log retention of events``."""
    out_of_reach: tuple[str, ...] = ()
    """Copies of the target that nobody here can remove, and what does."""


@dataclass(frozen=True, slots=True)
class Find(Result):
    """Somebody's data is still there."""

    request: str
    place: str
    """A file, a table, a topic: without any value; a name that holds one itself is shown up to there."""
    reason: str
    """Why it is there, one of the words of ``audit.erasure.scan.findings.REASONS``."""
    spelling: str
    """How it was written there: ``value``, ``url``, ``json``, ``base64``, ``prefix``, ``sha256`` …"""
    count: int = 1
    clears_on: dt.date | None = None
    """When it goes by itself or by the next purge; None: it stays until somebody does something."""


@dataclass(frozen=True, slots=True)
class Checked(Result):
    """What was looked through."""

    what: str
    count: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Unseen(Result):
    """What could not be looked at, and why: it counts as not verified."""

    place: str
    why: str


def not_seen(place: str, error: OSError) -> Unseen:
    """Raises SourceUnavailable where another try may well see it: an outage is nothing to put into a certificate."""
    why = error.strerror or str(error) or type(error).__name__
    if error.errno in _PASSES:
        raise SourceUnavailable(
            f"{place} cannot be read now: {why}",
            hint="run again when it can: what was not looked through is not certified",
        ) from error
    return Unseen(place, why)


@dataclass(frozen=True, slots=True)
class Scanned(Result):
    finds: tuple[Find, ...] = ()
    checked: tuple[Checked, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    def at(self, place: str) -> Scanned:
        """With the place in what was looked through."""
        return replace(self, checked=tuple(replace(one, what=f"{one.what} of {place}") for one in self.checked))

    def __add__(self, other: Scanned) -> Scanned:
        return Scanned(self.finds + other.finds, self.checked + other.checked, self.unseen + other.unseen)


@dataclass(frozen=True, slots=True)
class Reached(Result):
    """A state that the requests of a run have reached."""

    state: State
    reached_at: dt.datetime
    requests: tuple[str, ...]


@runtime_checkable
class Noting(Protocol):
    """A sink whose history tells of erasures as well. Needs no ``open``."""

    def note_erasure(self, table: str, key: tuple[str, ...], run: str, steps: Sequence[Reached]) -> None:
        """Of ``steps`` those that the history has not got yet are taken into it. ``table`` and ``key``: of its source."""
        ...


@runtime_checkable
class Sealed(Protocol):
    """A sink that seals columns of persons under keys of their own."""

    def unsealed(self) -> PlaintextRows:
        """Rows of persons that are not sealed, from before a class was named. Needs no ``open``; reads only."""
        ...

    def seals(self) -> bool:
        """Whether anything is sealed in it, whatever is named now. Needs no ``open``; reads only."""
        ...


@runtime_checkable
class Historic(Protocol):
    """A sink that keeps every change."""

    path: str

    def past(
        self,
        catch: Callable[[DataFrame], DataFrame],
        sealed: SealedFor,
        states: Callable[[str], States] | None,
    ) -> DataFrame:
        """The events of rows that ``catch`` gives back, and of those with something ``sealed``: ``_commit_version``,
        ``_commit_timestamp``, ``_change_type``, ``_operation``, ``_unreadable`` (by column, as the source has it now, why
        its value is not shown; NULL where all are), and the source's columns. ``states``: from where keys are had for the
        trail of a path; only those of the tokens are asked for. Needs no ``open``; reads only."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """A sink that keeps rows after its source has lost them: what they tell of a person the source tells no more."""

    def kept(self, source: ChangeFeed, columns: Collection[str]) -> Iterator[DataFrame]:
        """Such rows, and maybe others besides, with those of the columns that it has, named as in the source. Part by
        part, none where it keeps none. Needs no ``open``; reads only."""
        ...


@runtime_checkable
class Erasable(Protocol):
    """A sink that can forget a person. Needs no ``open``; takes the target's lease by itself where it writes."""

    def erase(self, erasing: Erasing) -> Mapping[str, int]:
        """Remove what the delete that came through the feed has left: soft-deleted rows, staging, dead letters, values of
        former versions. → counts by kind, as words: ``{"rows": 3, "dead letters": 1}``. Called after the sink's position
        has passed the last of ``versions``; raises WindowOutOfOrder where it has not."""
        ...

    def purge(self, erasing: Erasing, *, now: dt.datetime) -> Purged:
        """Remove for good what storage still has of it: files, dead tuples, statistics."""
        ...

    def scan(self, needles: Needles) -> Scanned:
        """Look for every needle in all that the target has. Reads only."""
        ...
