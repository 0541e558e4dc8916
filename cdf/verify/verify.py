"""Does the target hold what the source held at the target's position?

Counts first, then a checksum per bucket of keys, and only where those differ the rows themselves, by their digests. Both
sides are read at one moment: the target in one database snapshot together with its position, the source by time travel to
that position.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from cdf.changes.canonical import BUCKET, KEY_DIGEST, KEY_TEXT, ROW_DIGEST, checksum, digests
from cdf.changes.columns import quoted
from cdf.errors import CdfError, VerificationError, VersionsExpired
from cdf.result import Result
from cdf.sink import BucketDigest, Comparable, Image, RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.pipeline.pipeline import Pipeline

__all__ = ["Verification", "Difference", "verify"]

ROWS_PER_BUCKET = 1_000
MOST_BUCKETS = 65_536
MOST_ROWS_COMPARED = 200_000
MOST_EXAMPLES_KEPT = 400_000


@dataclass(frozen=True, slots=True)
class Difference(Result):
    kind: Literal["missing", "extra", "different", "duplicate"]
    """``missing`` in the target, ``extra`` there, the same key with other values, or ``duplicate`` in the source."""
    key: str
    """MD5 of the key (``cdf.changes.canonical``), or the key itself where that was asked for."""


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
    """Keys that the source holds more than once: one row per key cannot equal them."""
    set_aside: int
    """Keys that are not compared: their rows could not be stored, and are dead letters."""
    kept: int
    """Rows that the target keeps although the source has deleted them, as it was told to."""
    complete: bool
    """False where so many rows differ that only a part was looked at: the four counts are lower bounds then."""
    buckets: int
    differing_buckets: int
    examples: tuple[Difference, ...]
    seconds: float


def verify(
    pipeline: Pipeline, *, show_keys: bool = False, most_examples: int = 20, at: int | None = None
) -> Verification:
    """Compare source and target at the target's position, or with the source ``at`` a version, whatever the position is.

    Raises VerificationError where no comparison can be made: the target has no position, the sink keeps history, or the
    source can no longer be read at that version.
    """
    began = time.monotonic()
    if not isinstance(pipeline.sink, Comparable):
        raise VerificationError("this sink cannot be compared with its source", hint="use the sink's own check")
    feed = pipeline.feed
    with pipeline.sink.image(pipeline.source(feed.log.metadata().schema)) as image:
        version = image.position.version if at is None else at
        if version is None:
            raise VerificationError(
                f"the target of {pipeline.name} has no position yet",
                hint=f"run `deltarelay run --pipeline {pipeline.name}`",
            )
        if at is None:
            pipeline.check_position(image.position)
        try:
            snapshot = pipeline.snapshot(version)
            rows = snapshot.read()
        except VersionsExpired as error:
            raise _history_gone(error, feed.table, version) from error
    # The image has to be asked with the schema of its own version, which may be older than today's.
    with pipeline.sink.image(pipeline.source(snapshot.schema)) as image:
        if at is None and image.position.version != version:
            raise VerificationError(
                "the target moved on while the comparison began", hint="run verify again, or stop the pipeline first"
            )
        try:
            return _compare(pipeline, image, rows, version, show_keys, most_examples, began)
        except CdfError:
            raise
        except Exception as error:
            failure = snapshot.failure(error)
            if isinstance(failure, VersionsExpired):
                failure = _history_gone(failure, feed.table, version)
            raise failure from error


def _history_gone(error: VersionsExpired, table: str, version: int) -> VerificationError:
    return VerificationError(
        f"cannot verify: version {version} of {table}, where the target stands, can no longer be read as a whole",
        hint="let the pipeline catch up to a version that is still there, then verify again",
        condition=error.condition,
    )


def _compare(
    pipeline: Pipeline, image: Image, rows: DataFrame, version: int, show_keys: bool, most: int, began: float
) -> Verification:
    if image.columns is not None:
        rows = rows.select(*map(quoted, image.columns))
    schema = rows.schema
    target_rows = image.row_count()
    # By the larger side: an emptied target must not put the whole source into one bucket
    buckets = min(MOST_BUCKETS, max(1, math.ceil(max(target_rows, rows.count()) / ROWS_PER_BUCKET)))
    hashed = digests(rows, schema, pipeline.key, buckets, show_keys=show_keys, by_element=image.by_element)
    if image.set_aside:
        hashed = hashed.where(~F.col(KEY_DIGEST).isin(list(image.set_aside)))
    found = hashed.groupBy(BUCKET).agg(F.count("*").alias("rows"), checksum().alias("checksum")).collect()
    source = {row[BUCKET]: BucketDigest(int(row["rows"]), int(row["checksum"])) for row in found}
    target = image.digest(buckets)
    differing = sorted(bucket for bucket in source.keys() | target.keys() if source.get(bucket) != target.get(bucket))
    keeps = image.keeps_deleted
    # Where deleted rows stay, a bucket that differs says nothing yet: then all of them are looked at
    chosen = differing if keeps else _first_part(differing, source, target)
    seen = _Seen()
    if chosen:
        ours = hashed.where(F.col(BUCKET).isin(chosen)).orderBy(BUCKET).toLocalIterator()
        mine = _ByBucket((RowDigest(row[KEY_DIGEST], row[ROW_DIGEST], row[KEY_TEXT]) for row in ours), buckets)
        there: Iterable[RowDigest] = image.rows(buckets, chosen, show_keys=show_keys)
        if not keeps:
            there = sorted(there, key=lambda row: _bucket_of(row, buckets))
        theirs = _ByBucket(there, buckets)
        for bucket in chosen:
            seen.compare(mine.take(bucket), theirs.take(bucket), keeps_deleted=keeps)
        mine.check_taken()
        theirs.check_taken()
    complete = len(chosen) == len(differing)
    equal = not differing or (keeps and complete and not (seen.missing or seen.different or seen.duplicates))
    examples = seen.examples + [Difference("duplicate", row.shown or row.key) for row in seen.duplicates.values()]
    return Verification(
        pipeline=pipeline.name,
        table=pipeline.feed.table,
        version=version,
        source_rows=sum(digest.rows for digest in source.values()),
        target_rows=target_rows,
        equal=equal,
        missing=seen.missing,
        extra=seen.extra,
        different=seen.different,
        duplicate=len(seen.duplicates),
        set_aside=len(image.set_aside),
        kept=seen.kept,
        complete=complete,
        buckets=buckets,
        differing_buckets=len(differing),
        examples=tuple(sorted(examples, key=lambda one: (one.kind, one.key))[:most]),
        seconds=round(time.monotonic() - began, 3),
    )


@dataclass(slots=True)
class _Seen:
    """What the comparison of rows has found so far."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    kept: int = 0
    duplicates: dict[str, RowDigest] = field(default_factory=dict)
    examples: list[Difference] = field(default_factory=list)

    def compare(self, source: Iterable[RowDigest], target: Iterable[RowDigest], *, keeps_deleted: bool) -> None:
        """Hold the source's rows of a bucket against the target's."""
        here: dict[str, RowDigest] = {}
        for row in source:
            if row.key in here:
                self.duplicates[row.key] = row
            here[row.key] = row
        for there in target:
            mine = here.pop(there.key, None)
            if mine is None and keeps_deleted:
                self.kept += 1
            elif mine is None:
                self.extra += 1
                self._example(Difference("extra", there.shown or there.key))
            elif mine.row != there.row and there.key not in self.duplicates:
                self.different += 1
                self._example(Difference("different", mine.shown or mine.key))
        self.missing += len(here)
        for row in here.values():
            self._example(Difference("missing", row.shown or row.key))

    def _example(self, difference: Difference) -> None:
        if len(self.examples) < MOST_EXAMPLES_KEPT:
            self.examples.append(difference)


def _bucket_of(row: RowDigest, buckets: int) -> int:
    """As ``cdf.changes.canonical.digests`` has it."""
    return int(row.key[:8], 16) % buckets


class _ByBucket:
    """Rows in the order of their buckets, bucket by bucket: one pass, with the rows of one bucket in memory."""

    def __init__(self, rows: Iterable[RowDigest], buckets: int) -> None:
        self._groups = groupby(rows, key=lambda row: _bucket_of(row, buckets))
        self._next = next(self._groups, None)

    def take(self, bucket: int) -> list[RowDigest]:
        if self._next is None or self._next[0] != bucket:
            return []
        rows = list(self._next[1])
        self._next = next(self._groups, None)
        return rows

    def check_taken(self) -> None:
        if self._next is not None:
            raise VerificationError(
                "the rows of the target did not come in the order of their buckets: not all of them were compared",
                hint="this is an error in the sink: report it",
            )


def _first_part(
    differing: list[int], source: Mapping[int, BucketDigest], target: Mapping[int, BucketDigest]
) -> list[int]:
    """So many of the differing buckets as are worth being compared row by row, at least one."""
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
