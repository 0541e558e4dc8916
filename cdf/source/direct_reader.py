"""The rows of a small window in memory, decoded from its plain files: planning a Spark job takes longer than reading them.

What is decoded is what the tasks decode too (``plain_files``, ``parquet_rows``). For everything else the answer is None, and
Spark reads the window. ``test_direct_reader`` compares both.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)
from cdf.changes.few_rows import DRIVER_BYTES, DRIVER_ROWS
from cdf.changes.plain_files import name_of_file
from cdf.source.parquet_rows import FileRefused, can_decode, decode_file
from cdf.spark_versions import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cdf.changes.plain_files import PlainFiles
    from cdf.changes.window import Window

__all__ = ["MAX_BYTES", "read_directly"]

log = logging.getLogger("deltarelay.driver")

MAX_BYTES = 2**20
"""Of a window's files. Spark's tasks read more than that faster."""
_KINDS = frozenset({INSERT, DELETE, UPDATE_PREIMAGE, UPDATE_POSTIMAGE})


def read_directly(window: Window, *, times: bool) -> pa.Table | None:
    """The rows of ``window.collect()``, in any order, without a Spark job. None: Spark must read them.

    ``times``: with ``_commit_timestamp``, for which Delta lists the log.
    """
    if window.change_bytes > MAX_BYTES or not can_decode(window.schema) or (files := window.plain_files()) is None:
        return None
    try:
        rows = _read(files, window.schema, files.find_times() if times else None)
    except Exception as error:  # Spark reads the same rows, and raises the error if there is one
        reason = str(error) if isinstance(error, FileRefused) else type(error).__name__
        log.debug("Spark reads a small window", extra={"table": window.table, "reason": reason})
        return None
    files.count(rows.num_rows)
    return rows


def _read(files: PlainFiles, schema: StructType, times: Mapping[int, dt.datetime] | None) -> pa.Table:
    import pyarrow as pa

    names = [files.columns[name] for name in schema.fieldNames()]
    types = [arrow_type(field.dataType) for field in schema.fields]
    parts: list[pa.RecordBatch] = []
    room = MAX_BYTES
    count = size = 0
    for path, content in files.read_here(MAX_BYTES):
        room -= content.size
        if room < 0:
            raise FileRefused("large files")
        version, has_kind = files.versions[name_of_file(path)]
        wanted, kinds = ([*names, CHANGE_TYPE], [*types, pa.string()]) if has_kind else (names, types)
        for batch in decode_file("", content, wanted, kinds, _find_batch_rows(content)):
            count, size = count + batch.num_rows, size + batch.nbytes
            if count > DRIVER_ROWS or size > DRIVER_BYTES:
                raise FileRefused("many rows")
            parts.append(_complete(batch, [*schema.fieldNames()], version, times, has_kind=has_kind))
    return pa.Table.from_batches(parts)


def _find_batch_rows(content: pa.Buffer) -> int:
    """So few rows that a batch cannot fill the memory: many rows may share one long value of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = pq.read_metadata(pa.BufferReader(content))
    decompressed = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    if decompressed > DRIVER_BYTES or footer.num_rows > DRIVER_ROWS:
        raise FileRefused("many rows")
    return int(max(1, DRIVER_BYTES // max(1, decompressed)))


def _complete(
    batch: pa.RecordBatch, names: list[str], version: int, times: Mapping[int, dt.datetime] | None, *, has_kind: bool
) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    batch.validate(full=True)  # among others, that text is UTF-8
    arrays = [
        # Spark has one NaN
        pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
        if pa.types.is_floating(array.type)
        else array
        for array in batch.columns
    ]
    if not has_kind:
        arrays.append(pa.repeat(pa.scalar(INSERT), batch.num_rows))
    elif not _KINDS.issuperset(arrays[-1].unique().to_pylist()):
        raise FileRefused("a change type")
    arrays.append(pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows))
    names = [*names, CHANGE_TYPE, COMMIT_VERSION]
    if times is not None:
        time = pa.scalar(times[version], pa.timestamp("us", "UTC"))
        arrays.append(pa.repeat(time, batch.num_rows))
        names.append(COMMIT_TIMESTAMP)
    return pa.RecordBatch.from_arrays(arrays, names=names)
