"""Does the target hold what the source held at the target's position?

Counts are compared first, then a checksum per bucket of keys. Only the rows of buckets that differ are compared one by
one, by their digests. Both sides are read at one moment: the target together with its position in one database snapshot,
the source by time travel to that position.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal, Protocol

from pyspark.sql import functions as F

from cdf.changes.canonical import BUCKET, KEY_DIGEST, KEY_TEXT, ROW_DIGEST, checksum, digests
from cdf.changes.columns import quoted
from cdf.errors import CdfError, VerificationError, VersionsExpired
from cdf.result import Result
from cdf.sink import BucketDigest, Comparable, Image, Position, RowDigest, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot
    from cdf.source.table import ChangeFeed

__all__ = ["Difference", "Replica", "Verification", "verify"]

ROWS_PER_BUCKET = 1_000
MOST_BUCKETS = 65_536
MOST_ROWS_COMPARED = 200_000
MOST_EXAMPLES_KEPT = 400_000


@dataclass(frozen=True, slots=True)
class Difference(Result):
    kind: Literal["missing", "extra", "different", "duplicate"]
    """``missing`` from the target, ``extra`` in the target, ``different`` values, or ``duplicate`` key in the source."""
    key: str
    """MD5 of the key (``cdf.changes.canonical``), or the key itself on request."""


@dataclass(frozen=True, slots=True)
class Verification(Result):
    pipeline: str
    table: str
    version: int
    source_rows: int
    target_rows: int
    equal: bool
    missing: int
    extra: int
    different: int
    duplicate: int
    """Keys that the source holds more than once: a target with one row per key cannot equal them."""
    set_aside: int
    """Keys of dead letters: they are not compared."""
    kept: int
    """Rows that the target keeps, as configured, although the source has deleted them."""
    complete: bool
    """False if so many rows differ that only a part was compared: the four counts are lower bounds then."""
    buckets: int
    differing_buckets: int
    examples: tuple[Difference, ...]
    seconds: float


class Replica(Protocol):
    """A target and the source that feeds it: what a comparison needs of a pipeline."""

    @property
    def name(self) -> str: ...

    @property
    def feed(self) -> ChangeFeed: ...

    @property
    def sink(self) -> Sink: ...

    @property
    def key(self) -> tuple[str, ...]: ...

    def describe_source(self, schema: StructType) -> Source: ...

    def snapshot(self, version: int) -> Snapshot: ...

    def check_position(self, position: Position) -> None: ...


def verify(
    replica: Replica, *, show_keys: bool = False, most_examples: int = 20, at: int | None = None
) -> Verification:
    """Compare source and target at the target's position, or with the source ``at`` a version, whatever the position is.

    Raises VerificationError if no comparison is possible: the target has no position, the sink keeps history, or the
    source can no longer be read at that version.
    """
    began = time.monotonic()
    if not isinstance(replica.sink, Comparable):
        raise VerificationError("this sink cannot be compared with its source", hint="use the sink's own check")
    feed = replica.feed
    with replica.sink.image(replica.describe_source(feed.log.metadata().schema)) as image:
        version = image.position.version if at is None else at
        if version is None:
            raise VerificationError(
                f"the target of {replica.name} has no position yet",
                hint=f"run `deltarelay run --pipeline {replica.name}`",
            )
        if at is None:
            replica.check_position(image.position)
        try:
            snapshot = replica.snapshot(version)
            rows = snapshot.read()
        except VersionsExpired as error:
            raise _history_gone(error, feed.table, version) from error
    # A second image, with the schema of its own version, which may be older than the present one
    with replica.sink.image(replica.describe_source(snapshot.schema)) as image:
        if at is None and image.position.version != version:
            raise VerificationError(
                "the target's position changed while the comparison was starting",
                hint="run verify again, or stop the pipeline first",
            )
        try:
            return _compare(replica, image, rows, version, show_keys, most_examples, began)
        except CdfError:
            raise
        except Exception as error:
            failure = snapshot.failure(error)
            if isinstance(failure, VersionsExpired):
                failure = _history_gone(failure, feed.table, version)
            raise failure from error


def _history_gone(error: VersionsExpired, table: str, version: int) -> VerificationError:
    return VerificationError(
        f"cannot verify: version {version} of {table}, the target's position, can no longer be read as a whole",
        hint="let the pipeline catch up to a version that can still be read, then verify again",
        condition=error.condition,
    )


def _compare(
    replica: Replica, image: Image, rows: DataFrame, version: int, show_keys: bool, most: int, began: float
) -> Verification:
    if image.columns is not None:
        rows = rows.select(*map(quoted, image.columns))
    schema = rows.schema
    target_rows = image.row_count()
    # By the larger side: with an empty target the whole source must not become one bucket
    buckets = min(MOST_BUCKETS, max(1, math.ceil(max(target_rows, rows.count()) / ROWS_PER_BUCKET)))
    hashed = digests(rows, schema, replica.key, buckets, show_keys=show_keys, by_element=image.by_element)
    if image.set_aside:
        hashed = hashed.where(~F.col(KEY_DIGEST).isin(list(image.set_aside)))
    found = hashed.groupBy(BUCKET).agg(F.count("*").alias("rows"), checksum().alias("checksum")).collect()
    source = {row[BUCKET]: BucketDigest(int(row["rows"]), int(row["checksum"])) for row in found}
    target = image.digest(buckets)
    differing = sorted(bucket for bucket in source.keys() | target.keys() if source.get(bucket) != target.get(bucket))
    # If the target keeps deleted rows, a differing bucket proves nothing: then all differing buckets are compared by row
    chosen = differing if image.keeps_deleted else _choose_buckets(differing, source, target)
    counts = _Differences()
    if chosen:
        hashed_rows = hashed.where(F.col(BUCKET).isin(chosen)).orderBy(BUCKET).toLocalIterator()
        source_rows = _RowsByBucket(
            (RowDigest(row[KEY_DIGEST], row[ROW_DIGEST], row[KEY_TEXT]) for row in hashed_rows), buckets
        )
        image_rows: Iterable[RowDigest] = image.rows(buckets, chosen, show_keys=show_keys)
        if not image.keeps_deleted:
            image_rows = sorted(image_rows, key=lambda row: _bucket_of(row, buckets))
        target_rows_by_bucket = _RowsByBucket(image_rows, buckets)
        for bucket in chosen:
            counts.compare(
                source_rows.take(bucket), target_rows_by_bucket.take(bucket), keeps_deleted=image.keeps_deleted
            )
        source_rows.check_exhausted()
        target_rows_by_bucket.check_exhausted()
    complete = len(chosen) == len(differing)
    has_differences = counts.missing or counts.different or counts.duplicates
    equal = not differing or (image.keeps_deleted and complete and not has_differences)
    examples = counts.examples + [Difference("duplicate", row.shown or row.key) for row in counts.duplicates.values()]
    return Verification(
        pipeline=replica.name,
        table=replica.feed.table,
        version=version,
        source_rows=sum(digest.rows for digest in source.values()),
        target_rows=target_rows,
        equal=equal,
        missing=counts.missing,
        extra=counts.extra,
        different=counts.different,
        duplicate=len(counts.duplicates),
        set_aside=len(image.set_aside),
        kept=counts.kept,
        complete=complete,
        buckets=buckets,
        differing_buckets=len(differing),
        examples=tuple(sorted(examples, key=lambda example: (example.kind, example.key))[:most]),
        seconds=round(time.monotonic() - began, 3),
    )


@dataclass(slots=True)
class _Differences:
    """The differences found so far, bucket by bucket."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    kept: int = 0
    duplicates: dict[str, RowDigest] = field(default_factory=dict)
    examples: list[Difference] = field(default_factory=list)

    def compare(self, source: Iterable[RowDigest], target: Iterable[RowDigest], *, keeps_deleted: bool) -> None:
        """Compare the source's rows of one bucket with the target's."""
        unmatched: dict[str, RowDigest] = {}
        for row in source:
            if row.key in unmatched:
                self.duplicates[row.key] = row
            unmatched[row.key] = row
        for target_row in target:
            source_row = unmatched.pop(target_row.key, None)
            if source_row is None and keeps_deleted:
                self.kept += 1
            elif source_row is None:
                self.extra += 1
                self._add_example(Difference("extra", target_row.shown or target_row.key))
            elif source_row.row != target_row.row and target_row.key not in self.duplicates:
                self.different += 1
                self._add_example(Difference("different", source_row.shown or source_row.key))
        self.missing += len(unmatched)
        for row in unmatched.values():
            self._add_example(Difference("missing", row.shown or row.key))

    def _add_example(self, difference: Difference) -> None:
        if len(self.examples) < MOST_EXAMPLES_KEPT:
            self.examples.append(difference)


def _bucket_of(row: RowDigest, buckets: int) -> int:
    """The bucket of a row, computed as in ``cdf.changes.canonical.digests``."""
    return int(row.key[:8], 16) % buckets


class _RowsByBucket:
    """Reads rows that are ordered by bucket, in one pass, with the rows of one bucket in memory."""

    def __init__(self, rows: Iterable[RowDigest], buckets: int) -> None:
        self._groups = groupby(rows, key=lambda row: _bucket_of(row, buckets))
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
                "the target's rows were not ordered by bucket: not all of them were compared",
                hint="this is an error in the sink: report it",
            )


def _choose_buckets(
    differing: list[int], source: Mapping[int, BucketDigest], target: Mapping[int, BucketDigest]
) -> list[int]:
    """The first differing buckets, with up to ``MOST_ROWS_COMPARED`` rows together; at least one bucket."""
    nothing = BucketDigest(0, 0)
    chosen: list[int] = []
    rows = 0
    for bucket in differing:
        size = source.get(bucket, nothing).rows + target.get(bucket, nothing).rows
        if chosen and rows + size > MOST_ROWS_COMPARED:
            break
        chosen.append(bucket)
        rows += size
    return chosen
