"""The rows of a small window or snapshot in memory, decoded from its plain files: planning a Spark job takes longer.

What is decoded is what the tasks decode too (``plain_files``, ``parquet_rows``). For everything else the answer is None, and
Spark reads the rows. ``test_direct_reader`` and ``test_kafka_direct`` compare both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
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
    from cdf.changes.window import Snapshot

__all__ = ["MAX_BYTES", "DirectWindow", "ManyRows", "read_directly", "read_snapshot_directly"]

log = logging.getLogger("deltarelay.driver")

MAX_BYTES = 2**20
"""Of the files together. Spark's tasks read more than that faster."""
MAX_FILES = 50
"""They are read one after the other, and each takes some milliseconds on a local disk and tens of them on S3."""


class ManyRows(Exception):
    """The files have more than ``DRIVER_ROWS`` rows: the driver must not hold them, even if Spark reads them."""


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

    Raises ManyRows if the files have more than ``DRIVER_ROWS`` rows.

    ``times``: with ``_commit_timestamp``, for which Delta lists the log. Without it there is no DataFrame.
    """
    if window.change_bytes > MAX_BYTES or not can_decode(window.schema) or (files := window.plain_files()) is None:
        return None
    if (rows := _read(lambda: _read_window(files, window.schema, times=times), files, window.table)) is None:
        return None
    common = {one.name: getattr(window, one.name) for one in fields(Window) if one.name != "read"}
    return DirectWindow(**common, rows=lambda: rows, session=files.session)


def read_snapshot_directly(snapshot: Snapshot, files: PlainFiles) -> pa.Table | None:
    """The rows of ``snapshot.collect()``, in any order, read without a Spark job. None: Spark must read them."""
    if files.size > MAX_BYTES or not can_decode(snapshot.schema):
        return None
    try:
        return _read(lambda: _read_snapshot(files, snapshot.schema), files, snapshot.table)
    except ManyRows:
        return None


def _read(read: Callable[[], pa.Table], files: PlainFiles, table: str) -> pa.Table | None:
    if len(files.names) > MAX_FILES:
        return None
    try:
        rows = read()
    except ManyRows:
        raise
    except Exception as error:  # Spark reads the same rows, and raises the error if there is one
        reason = str(error) if isinstance(error, FileRefused) else type(error).__name__
        log.debug("Spark reads a few rows", extra={"table": table, "reason": reason})
        return None
    files.count(rows.num_rows)
    return rows


def _read_window(files: PlainFiles, schema: StructType, *, times: bool) -> pa.Table:
    import pyarrow as pa

    found = files.find_times() if times else None
    names = schema.fieldNames()

    def complete(path: str, batch: pa.RecordBatch) -> pa.Table:
        version, has_kind = files.versions[name_of_file(path)]
        rows = add_change_columns(pa.Table.from_batches([batch]), names, version, has_change_type=has_kind)
        if found is None:
            return rows
        time = pa.repeat(pa.scalar(found[version], pa.timestamp("us", "UTC")), batch.num_rows)
        return rows.append_column(COMMIT_TIMESTAMP, time)

    batches = _decode(files, schema, lambda path: files.versions[name_of_file(path)][1])
    return pa.concat_tables([complete(path, batch) for path, batch in batches])


def _read_snapshot(files: PlainFiles, schema: StructType) -> pa.Table:
    import pyarrow as pa

    names = schema.fieldNames()
    kinds = pa.schema([(of.name, arrow_type(of.dataType)) for of in schema.fields])
    batches = [batch.rename_columns(names) for _, batch in _decode(files, schema, lambda _: False)]
    return pa.Table.from_batches(batches, kinds)


def _decode(
    files: PlainFiles, schema: StructType, has_kind: Callable[[str], bool]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The path of a file, and some of its rows: the schema's columns, and the change type where the file ``has_kind``."""
    import pyarrow as pa

    names = [files.columns[name] for name in schema.fieldNames()]
    types = [arrow_type(of.dataType) for of in schema.fields]
    required = [number for number, of in enumerate(schema.fields) if not of.nullable]
    room = MAX_BYTES
    count = size = 0
    for path, content in files.read_here(MAX_BYTES):
        room -= content.size
        if room < 0:
            raise FileRefused("large files")
        wanted, of_type = ([*names, CHANGE_TYPE], [*types, pa.string()]) if has_kind(path) else (names, types)
        for batch in decode_file("", content, wanted, of_type, _find_batch_rows(content)):
            count, size = count + batch.num_rows, size + batch.nbytes
            if count > DRIVER_ROWS:
                raise ManyRows
            if size > DRIVER_BYTES:
                raise FileRefused("large rows")
            if any(batch.column(number).null_count for number in required):
                raise FileRefused("a null where the table has none")
            yield path, _as_in_spark(batch)


def _find_batch_rows(content: pa.Buffer) -> int:
    """So few rows that a batch cannot fill the memory: many rows may share one long value of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = pq.read_metadata(pa.BufferReader(content))
    decompressed = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    if footer.num_rows > DRIVER_ROWS:
        raise ManyRows
    if decompressed > DRIVER_BYTES:
        raise FileRefused("large rows")
    return int(max(1, DRIVER_BYTES // max(1, decompressed)))


def _as_in_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
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
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
