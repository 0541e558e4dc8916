"""Shows cheaply that source and target hold the same rows: by the sum of a hash of each row, on both sides at once.

A sum that differs shows nothing but that: the rows are then compared bucket by bucket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from cdf.sink import BucketDigest, HashingImage, Image

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["count_if_equal"]

log = logging.getLogger("deltarelay.verify")

_SUMS = "rows bigint, high bigint, low bigint"
_CANCELLED = "SPARK_JOB_CANCELLED"

_HashRows = Callable[["pa.RecordBatch"], "np.ndarray[Any, np.dtype[np.int64]]"]
_Batches = Iterator["pa.RecordBatch"]


def count_if_equal(image: Image, rows: DataFrame) -> int | None:
    """The number of rows if both sides hold the same; None if they differ, or if that cannot be shown.

    ``rows``: those of the source, with the columns that are compared.
    """
    if not isinstance(image, HashingImage) or image.set_aside or image.keeps_deleted:
        return None
    hashes = image.row_hashes()
    if hashes is None:
        return None
    with ThreadPoolExecutor(max_workers=1) as executor:
        running = executor.submit(hashes.of_target)
        try:
            source = _read_source(hashes.of_batch, rows)
            target = running.result()
        except BaseException:
            while not running.done():  # once is not enough if the query has not begun yet
                hashes.cancel()
                wait([running], timeout=1)
            raise
    return target.rows if source == target else None


def _read_source(of_batch: _HashRows, rows: DataFrame) -> BucketDigest | None:
    """None: the tasks cannot do it."""
    try:
        return _sum_source(of_batch, rows)
    except Exception as error:
        if _CANCELLED in str(error):
            raise
        log.info("all rows are compared by their digests", extra={"reason": type(error).__name__})
        return None


def _sum_source(of_batch: _HashRows, rows: DataFrame) -> BucketDigest:
    """Spark reads the rows, although decoding the files would be faster: a copy may have decoded them in the same way."""

    def of_rows(batches: _Batches) -> _Batches:
        yield _sum_up(of_batch, batches)

    reports = rows.mapInArrow(of_rows, _SUMS).collect()
    return BucketDigest(sum(row["rows"] for row in reports), sum((row["high"] << 32) + row["low"] for row in reports))


def _sum_up(of_batch: _HashRows, batches: _Batches) -> pa.RecordBatch:
    """As two numbers: the sum needs more than 64 bits."""
    import pyarrow as pa

    rows = high = low = 0
    for batch in batches:
        found = of_batch(batch)
        rows += len(found)
        high += int((found >> 32).sum())
        low += int((found & 0xFFFFFFFF).sum())
    return pa.RecordBatch.from_pylist([{"rows": rows, "high": high, "low": low}])
