"""What a comparison of a trail with its source tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdf.result import Result

__all__ = ["Fault", "Mismatch", "NotCompared", "Reason", "Reconciled"]

Fault = Literal["missing", "doubled", "added", "counts", "rows", "log", "cut_off", "replaced"]
Reason = Literal["expired", "feed_off", "removed", "drift", "before", "behind", "sealed"]


@dataclass(frozen=True, slots=True)
class Mismatch(Result):
    """One version that is not the same on both sides; None: the table as such."""

    version: int | None
    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class NotCompared(Result):
    """Versions whose rows could not be held against the source's, or that the trail does not cover."""

    first: int
    last: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class Reconciled(Result):
    """``equal`` is about what was compared; None: nothing could be."""

    trail: str
    source: str
    equal: bool | None
    first_version: int | None
    """Of the trail."""
    last_version: int | None
    source_version: int
    versions: int
    """So many were compared row by row."""
    rows: int
    """The source's changes in them."""
    baseline_rows: int | None
    """Rows of the baseline that were compared with the table at its version."""
    pins: int
    """Commit files that are what they were when they were trailed."""
    removed: int
    """Changes whose values were removed, as the ledger records: only counted."""
    mismatches: tuple[Mismatch, ...] = ()
    more_mismatches: bool = False
    not_compared: tuple[NotCompared, ...] = ()
    seconds: float = 0.0
