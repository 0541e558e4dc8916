"""Does the target hold what the source held at the target's position?

If the sink can compute a hash of each row, the sums of all hashes are compared first (``equality``). If they differ, a
checksum per bucket of keys is compared, and the rows of buckets that differ are compared one by one, by their digests. Both
sides are read at one moment: the target together with its position in one database snapshot, the source by time travel to
that position.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F

from cdf.changes.canonical import BUCKET, KEY_DIGEST, KEY_TEXT, ROW_DIGEST, checksum, digests
from cdf.changes.columns import quoted
from cdf.errors import CdfError, VerificationError, VersionsExpired
from cdf.result import Result
from cdf.sink import BucketDigest, Comparable, Image, Position, RowDigest, Sink, Source
from cdf.spark_versions import iterate_rows, repartition_by_number
from cdf.verify.differences import Difference, Differences, RowsByBucket, bucket_of
from cdf.verify.equality import count_if_equal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot
    from cdf.source.table import ChangeFeed

__all__ = ["Difference", "Replica", "Verification", "verify"]

ROWS_PER_BUCKET = 1_000
MOST_BUCKETS = 65_536
MOST_ROWS_COMPARED = 200_000
ROWS_PER_PARTITION = 200_000
"""The driver asks Spark for the rows of one partition after the other."""
_PART = "part"


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
    # The log is read after the position: it has the position's version
    with replica.sink.image(replica.describe_source(feed.log.metadata().schema)) as image, feed.log.cache_reads():
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
            source = replica.describe_source(snapshot.schema)
        except VersionsExpired as error:
            raise _history_gone(error, feed.table, version) from error
    # A second image, with the schema of its own version, which may be older than the present one
    with replica.sink.image(source) as image:
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


@dataclass(frozen=True, slots=True)
class _Comparison:
    source_rows: int
    target_rows: int
    buckets: int
    differing: int
    complete: bool
    counts: Differences


def _compare(
    replica: Replica, image: Image, rows: DataFrame, version: int, show_keys: bool, most: int, began: float
) -> Verification:
    if image.columns is not None:
        rows = rows.select(*map(quoted, image.columns))
    equal_rows = count_if_equal(image, rows)
    if equal_rows is None:
        found = _compare_buckets(replica.key, image, rows, show_keys, most)
    else:
        buckets = _count_buckets(equal_rows)
        found = _Comparison(equal_rows, equal_rows, buckets, 0, True, Differences(most, image.keeps_deleted))
    counts = found.counts
    has_differences = counts.missing or counts.different or counts.duplicate
    return Verification(
        pipeline=replica.name,
        table=replica.feed.table,
        version=version,
        source_rows=found.source_rows,
        target_rows=found.target_rows,
        equal=not found.differing or (image.keeps_deleted and found.complete and not has_differences),
        missing=counts.missing,
        extra=counts.extra,
        different=counts.different,
        duplicate=counts.duplicate,
        set_aside=len(image.set_aside),
        kept=counts.kept,
        complete=found.complete,
        buckets=found.buckets,
        differing_buckets=found.differing,
        examples=tuple(counts.examples),
        seconds=round(time.monotonic() - began, 3),
    )


def _compare_buckets(key: tuple[str, ...], image: Image, rows: DataFrame, show_keys: bool, most: int) -> _Comparison:
    target_rows, rows_read = image.row_count(), rows.count()
    # By the larger side: with an empty target the whole source must not become one bucket
    buckets = _count_buckets(max(target_rows, rows_read))
    hashed = digests(rows, rows.schema, key, buckets, show_keys=show_keys, by_element=image.by_element)
    if image.set_aside:
        hashed = hashed.where(~F.col(KEY_DIGEST).isin(list(image.set_aside)))
    counts = Differences(most, image.keeps_deleted)
    if image.keeps_deleted and target_rows - rows_read >= buckets:
        # With a kept row in most buckets their checksums show nothing: all rows are compared at once
        size = max(target_rows, rows_read)
        _compare_rows(image, hashed, buckets, list(range(buckets)), size, show_keys, counts)
        return _Comparison(counts.source_rows, target_rows, buckets, counts.differing_buckets, True, counts)
    source, target = _read_checksums(hashed), image.digest(buckets)
    different = sorted(bucket for bucket in source.keys() | target.keys() if source.get(bucket) != target.get(bucket))
    # If the target keeps deleted rows, a differing bucket proves nothing: then all of them are compared by row
    chosen = different if image.keeps_deleted else _choose_buckets(different, source, target)
    if chosen:
        size = sum(source[bucket].rows for bucket in chosen if bucket in source)
        _compare_rows(image, hashed, buckets, chosen, size, show_keys, counts)
    source_rows = sum(digest.rows for digest in source.values())
    return _Comparison(source_rows, target_rows, buckets, len(different), len(chosen) == len(different), counts)


def _count_buckets(rows: int) -> int:
    return min(MOST_BUCKETS, max(1, math.ceil(rows / ROWS_PER_BUCKET)))


def _read_checksums(hashed: DataFrame) -> dict[int, BucketDigest]:
    found = hashed.groupBy(BUCKET).agg(F.count("*").alias("rows"), checksum().alias("checksum")).collect()
    return {row[BUCKET]: BucketDigest(int(row["rows"]), int(row["checksum"])) for row in found}


def _compare_rows(
    image: Image,
    hashed: DataFrame,
    buckets: int,
    chosen: list[int],
    size: int,
    show_keys: bool,
    counts: Differences,
) -> None:
    """Compare the rows of the chosen buckets, one after the other. ``size``: about how many rows the source has there."""
    if len(chosen) < buckets:
        # As one text: Spark's API needs a call for each literal
        hashed = hashed.where(f"{BUCKET} in ({', '.join(map(str, chosen))})")
    # In partitions by number, not by ``orderBy``, which would read and hash all rows once more to find its borders
    partitions = max(1, math.ceil(size / ROWS_PER_PARTITION))
    part = F.floor(F.col(BUCKET).cast("bigint") * partitions / buckets).cast("int")
    placed = repartition_by_number(hashed.withColumn(_PART, part), partitions, _PART).sortWithinPartitions(BUCKET)
    of_source = iterate_rows(placed.select(KEY_DIGEST, ROW_DIGEST, KEY_TEXT), prefetch=True)
    source = RowsByBucket((RowDigest(*row) for row in of_source), buckets, side="source")
    of_image: Iterable[RowDigest] = image.rows(buckets, chosen, show_keys=show_keys)
    if not image.keeps_deleted:
        of_image = sorted(of_image, key=lambda row: bucket_of(row, buckets))
    target = RowsByBucket(of_image, buckets, side="target")
    for bucket in chosen:
        counts.compare(source.take(bucket), target.take(bucket))
    source.check_exhausted()
    target.check_exhausted()


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
