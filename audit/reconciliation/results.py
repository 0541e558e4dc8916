"""Results of a comparison of a trail with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdf.result import Result

__all__ = ["Fault", "Mismatch", "NotCompared", "Reason", "Reconciled"]

Fault = Literal["missing", "doubled", "added", "counts", "rows", "log", "cut_off", "replaced"]
Reason = Literal["expired", "feed_off", "removed", "drift", "before", "behind", "sealed"]


@dataclass(frozen=True, slots=True)
class Mismatch(Result):
    """A version that differs between trail and source; None: the difference concerns the table."""

    version: int | None
    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class NotCompared(Result):
    """Versions whose rows could not be compared with the source, or that the trail does not cover."""

    first: int
    last: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class Reconciled(Result):
    """``equal`` covers what was compared; None: nothing could be compared."""

    trail: str
    source: str
    equal: bool | None
    first_version: int | None
    """Of the trail."""
    last_version: int | None
    source_version: int
    versions: int
    """Number of versions that were compared row by row."""
    rows: int
    """The source's changes in them."""
    baseline_rows: int | None
    """Rows of the baseline that were compared with the table at its version."""
    pins: int
    """Commit files of the source's log that match the hashes in the ledger."""
    removed: int
    """Changes whose values were removed according to the ledger: only their number was compared."""
    mismatches: tuple[Mismatch, ...] = ()
    more_mismatches: bool = False
    not_compared: tuple[NotCompared, ...] = ()
    seconds: float = 0.0
