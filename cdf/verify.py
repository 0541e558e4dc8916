"""Does the target hold what the source held at the target's position?

Counts first, then a checksum per bucket of keys, and only where those differ the rows themselves, by their digests. Both
sides are read at one moment: the target in one database snapshot together with its position, the source by time travel to
that position.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from cdf.canonical import BUCKET, KEY_DIGEST, KEY_TEXT, ROW_DIGEST, checksum, digests
from cdf.errors import CdfError, VerificationError, VersionsExpired
from cdf.result import Result
from cdf.sink import BucketDigest, Comparable, Image, RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.pipeline import Pipeline

__all__ = ["Verification", "Difference", "verify"]

ROWS_PER_BUCKET = 1_000
MOST_BUCKETS = 65_536
MOST_ROWS_COMPARED = 200_000


@dataclass(frozen=True, slots=True)
class Difference(Result):
    kind: Literal["missing", "extra", "different", "duplicate"]
    """``missing`` in the target, ``extra`` there, the same key with other values, or ``duplicate`` in the source."""
    key: str
    """MD5 of the key (``cdf.canonical``), or the key itself where that was asked for."""


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
    schema = rows.schema
    target_rows = image.row_count()
    # By the larger side: an emptied target must not put the whole source into one bucket
    buckets = min(MOST_BUCKETS, max(1, math.ceil(max(target_rows, rows.count()) / ROWS_PER_BUCKET)))
    hashed = digests(rows, schema, pipeline.key, buckets, show_keys=show_keys)
    found = hashed.groupBy(BUCKET).agg(F.count("*").alias("rows"), checksum().alias("checksum")).collect()
    source = {row[BUCKET]: BucketDigest(int(row["rows"]), int(row["checksum"])) for row in found}
    target = image.digest(buckets)
    differing = sorted(bucket for bucket in source.keys() | target.keys() if source.get(bucket) != target.get(bucket))
    chosen = _affordable(differing, source, target)
    missing, extra, different, examples = 0, 0, 0, []
    duplicates: dict[str, RowDigest] = {}
    if chosen:
        here: dict[str, RowDigest] = {}
        for row in hashed.where(F.col(BUCKET).isin(chosen)).toLocalIterator():
            mine = RowDigest(row[KEY_DIGEST], row[ROW_DIGEST], row[KEY_TEXT])
            if mine.key in here:
                duplicates[mine.key] = mine
            here[mine.key] = mine
        for there in image.rows(buckets, chosen, show_keys=show_keys):
            found_here = here.pop(there.key, None)
            if found_here is None:
                extra += 1
                examples.append(Difference("extra", there.shown or there.key))
            elif found_here.row != there.row and there.key not in duplicates:
                different += 1
                examples.append(Difference("different", found_here.shown or found_here.key))
        missing = len(here)
        examples += [Difference("missing", row.shown or row.key) for row in here.values()]
        examples += [Difference("duplicate", row.shown or row.key) for row in duplicates.values()]
    return Verification(
        pipeline=pipeline.name,
        table=pipeline.feed.table,
        version=version,
        source_rows=sum(digest.rows for digest in source.values()),
        target_rows=target_rows,
        equal=not differing,
        missing=missing,
        extra=extra,
        different=different,
        duplicate=len(duplicates),
        complete=len(chosen) == len(differing),
        buckets=buckets,
        differing_buckets=len(differing),
        examples=tuple(sorted(examples, key=lambda one: (one.kind, one.key))[:most]),
        seconds=round(time.monotonic() - began, 3),
    )


def _affordable(
    differing: list[int], source: Mapping[int, BucketDigest], target: Mapping[int, BucketDigest]
) -> list[int]:
    """As many differing buckets as can be compared row by row in the driver's memory, at least one."""
    nothing = BucketDigest(0, 0)
    chosen: list[int] = []
    rows = 0
    for bucket in differing:
        rows += source.get(bucket, nothing).rows + target.get(bucket, nothing).rows
        if chosen and rows > MOST_ROWS_COMPARED:
            break
        chosen.append(bucket)
    return chosen
