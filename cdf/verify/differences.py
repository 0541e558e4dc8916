"""Compares the rows of both sides bucket by bucket, by their digests, with the rows of one bucket in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import groupby
from typing import Literal

from cdf.errors import VerificationError
from cdf.result import Result
from cdf.sink import RowDigest

__all__ = ["Difference", "Differences", "RowsByBucket", "bucket_of"]


@dataclass(frozen=True, slots=True)
class Difference(Result):
    kind: Literal["missing", "extra", "different", "duplicate"]
    """``missing`` from the target, ``extra`` in the target, ``different`` values, or ``duplicate`` key in the source."""
    key: str
    """MD5 of the key (``cdf.changes.canonical``), or the key itself on request."""


@dataclass(slots=True)
class Differences:
    """The differences found so far."""

    most_examples: int
    keeps_deleted: bool
    """Rows that only the target has are counted as kept."""
    source_rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    duplicate: int = 0
    kept: int = 0
    differing_buckets: int = 0
    examples: list[Difference] = field(default_factory=list)
    """The first ones, by kind and key."""

    def compare(self, source: list[RowDigest], target: Iterable[RowDigest]) -> None:
        """Compare the source's rows of one bucket with the target's."""
        unmatched = {row.key: row for row in source}
        duplicates: dict[str, RowDigest] = {}
        if len(unmatched) < len(source):
            counts = Counter(row.key for row in source)
            duplicates = {key: row for key, row in unmatched.items() if counts[key] > 1}
        found = [Difference("duplicate", row.shown or key) for key, row in duplicates.items()]
        kept = 0
        for row in target:
            source_row = unmatched.pop(row.key, None)
            if source_row is None:
                if self.keeps_deleted:
                    kept += 1
                else:
                    found.append(Difference("extra", row.shown or row.key))
            elif source_row.row != row.row and row.key not in duplicates:
                found.append(Difference("different", source_row.shown or source_row.key))
        found += [Difference("missing", row.shown or row.key) for row in unmatched.values()]
        self.source_rows += len(source)
        self.kept += kept
        if found:
            self._add(found)
        if found or kept:
            self.differing_buckets += 1

    def _add(self, found: list[Difference]) -> None:
        by_kind = Counter(one.kind for one in found)
        self.missing += by_kind["missing"]
        self.extra += by_kind["extra"]
        self.different += by_kind["different"]
        self.duplicate += by_kind["duplicate"]
        self.examples = nsmallest(self.most_examples, self.examples + found, key=lambda one: (one.kind, one.key))


class RowsByBucket:
    """Reads rows that are ordered by bucket, in one pass, with the rows of one bucket in memory."""

    def __init__(self, rows: Iterable[RowDigest], buckets: int, *, side: str) -> None:
        self._side = side
        self._groups = groupby(rows, key=lambda row: bucket_of(row, buckets))
        self._next = next(self._groups, None)

    def take(self, bucket: int) -> list[RowDigest]:
        if self._next is None or self._next[0] != bucket:
            return []
        rows = list(self._next[1])
        self._next = next(self._groups, None)
        return rows

    def check_exhausted(self) -> None:
        if self._next is not None:
            raise VerificationError(
                f"the {self._side}'s rows were not ordered by bucket: not all of them were compared",
                hint="this is an error in the sink: report it"
                if self._side == "target"
                else "this is an error: report it",
            )


def bucket_of(row: RowDigest, buckets: int) -> int:
    """The bucket of a row, computed as in ``cdf.changes.canonical.digests``."""
    return int(row.key[:8], 16) % buckets
