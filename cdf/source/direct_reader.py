"""The rows of a small window in memory, decoded from its plain files: planning a Spark job takes longer than reading them.

What is decoded is what the tasks decode too (``plain_files``, ``parquet_rows``). For everything else the answer is None, and
Spark reads the window. ``test_direct_reader`` and ``test_kafka_direct`` compare both.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from cdf.changes.columns import CHANGE_TYPE, COMMIT_TIMESTAMP, CONFLICTS
from cdf.changes.few_rows import DRIVER_BYTES, DRIVER_ROWS
from cdf.changes.in_memory import InMemoryWindow, feed_schema
from cdf.changes.plain_files import name_of_file
from cdf.changes.window import Window
from cdf.source.parquet_rows import FileRefused, add_change_columns, can_decode, decode_file
from cdf.spark_versions import arrow_type, create_from_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from cdf.changes.plain_files import PlainFiles

__all__ = ["MAX_BYTES", "DirectWindow", "read_directly"]

log = logging.getLogger("deltarelay.driver")

MAX_BYTES = 2**20
"""Of a window's files. Spark's tasks read more than that faster."""
MAX_FILES = 50
"""They are read one after the other, and each takes some milliseconds on a local disk and tens of them on S3."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DirectWindow(InMemoryWindow):
    """A window whose rows are in memory. Where a DataFrame is wanted, Spark gets these rows."""

    session: SparkSession = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", self._read_rows)  # also of a copy that has other rows

    def _read_rows(self) -> DataFrame:
        return create_from_arrow(self.session, self.rows(), feed_schema(self.schema))

    def net(self, *, transients: bool = False) -> DataFrame:
        schema = feed_schema(self.schema).add(CONFLICTS, "integer")
        return create_from_arrow(self.session, self.collect_net(transients=transients), schema)


def read_directly(window: Window, *, times: bool) -> DirectWindow | None:
    """The window with the rows of ``window.collect()``, in any order, read without a Spark job. None: Spark must read them.

    ``times``: with ``_commit_timestamp``, for which Delta lists the log. Without it there are no DataFrames.
    """
    if window.change_bytes > MAX_BYTES or not can_decode(window.schema) or (files := window.plain_files()) is None:
        return None
    if len(files.names) > MAX_FILES:
        return None
    try:
        rows = _read(files, window.schema, files.find_times() if times else None)
    except Exception as error:  # Spark reads the same rows, and raises the error if there is one
        reason = str(error) if isinstance(error, FileRefused) else type(error).__name__
        log.debug("Spark reads a small window", extra={"table": window.table, "reason": reason})
        return None
    files.count(rows.num_rows)
    common = {one.name: getattr(window, one.name) for one in fields(Window) if one.name != "read"}
    return DirectWindow(**common, rows=lambda: rows, session=files.session)


def _read(files: PlainFiles, schema: StructType, times: Mapping[int, dt.datetime] | None) -> pa.Table:
    import pyarrow as pa

    names = [files.columns[name] for name in schema.fieldNames()]
    types = [arrow_type(of.dataType) for of in schema.fields]
    required = [of.name for of in schema.fields if not of.nullable]
    parts: list[pa.RecordBatch] = []
    room = MAX_BYTES
    count = size = 0
    for path, content in files.read_here(MAX_BYTES):
        room -= content.size
        if room < 0:
            raise FileRefused("large files")
        version, has_kind = files.versions[name_of_file(path)]
        wanted, of_type = ([*names, CHANGE_TYPE], [*types, pa.string()]) if has_kind else (names, types)
        for batch in decode_file("", content, wanted, of_type, _find_batch_rows(content)):
            count, size = count + batch.num_rows, size + batch.nbytes
            if count > DRIVER_ROWS or size > DRIVER_BYTES:
                raise FileRefused("many rows")
            part = _complete(batch, [*schema.fieldNames()], version, times, has_kind=has_kind)
            if any(part[name].null_count for name in required):
                raise FileRefused("a null where the table has none")
            parts.append(part)
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
    batch = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    rows = add_change_columns(batch, names, version, has_change_type=has_kind)
    if times is None:
        return rows
    time = pa.repeat(pa.scalar(times[version], pa.timestamp("us", "UTC")), batch.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, time], names=[*rows.schema.names, COMMIT_TIMESTAMP])
