"""COPY from Parquet files: the tasks decode them by column, without Spark's rows.

A file that Spark would read otherwise is refused (``cdf.source.parquet_rows``); then everything is copied from Spark's rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cdf.changes.columns import CHANGE_TYPE
from cdf.changes.net_arrow import net_on_driver
from cdf.changes.plain_files import name_of_file
from cdf.source.parquet_rows import FileRefused, add_change_columns, can_decode, decode_file
from cdf.spark_versions import arrow_type
from connectors.postgres.errors import sqlstate_of_task
from connectors.postgres.staging import adbc_copy
from connectors.postgres.staging.columns import COPY_ROWS, Staged, StagingOptions
from connectors.postgres.staging.wire import NetForm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.plain_files import PlainFiles
    from cdf.changes.window import Snapshot, Window

__all__ = ["FilesRefused", "copy_snapshot_files", "find_snapshot_files", "plan_window_files"]

log = logging.getLogger("deltarelay.postgres")

MAX_CHANGE_BYTES = 32 * 2**20
"""Of a window's files. One task decodes them all, which saves the shuffle by key, but it does not use more cores."""
MAX_DECODED_BYTES = 128 * 2**20
"""Of a window's rows in the memory of that task."""
DECODED_ROWS = 1_000
"""Of a window, before their bytes are counted: with a dictionary, few bytes of a file can be many in memory."""
_REPORT = (
    "names array<string>, read bigint, attempt string, inserts bigint, updates bigint, deletes bigint, transients bigint, "
    "conflicts bigint"
)

Batches = Iterator["pa.RecordBatch"]


class _Reading:
    """The files of one task, and what was read of them."""

    def __init__(self, listed: Batches, batch_rows: int) -> None:
        self._listed, self._batch_rows = listed, batch_rows
        self.names: list[str] = []
        self.count = 0

    def files(self) -> Iterator[tuple[str, pa.Buffer | None]]:
        for file in self._listed:
            for path, content in zip(file["path"].to_pylist(), file["content"], strict=True):
                self.names.append(name_of_file(path))
                yield path, content.as_buffer()

    def rows(self, path: str, content: pa.Buffer | None, names: Sequence[str], types: Sequence[pa.DataType]) -> Batches:
        for batch in decode_file(path, content, names, types, self._batch_rows):
            self.count += batch.num_rows
            yield _to_wire(batch)


class FilesRefused(Exception):
    """Spark must read the files. Rows of other files may have been copied."""


# ── a snapshot ───────────────────────────────────────────────────────────────────────────────────────────────────────


def find_snapshot_files(snapshot: Snapshot) -> PlainFiles | None:
    """The snapshot's files, if the tasks may decode them."""
    return snapshot.plain_files() if can_decode(snapshot.schema) else None


def copy_snapshot_files(
    files: PlainFiles, schema: StructType, columns: list[tuple[str, bool]], dsn: str, table: str
) -> Staged:
    """COPY all rows into a table with these columns (see ``adbc_copy.Tally``). Raises FilesRefused."""
    names, types = _in_files(files, schema)

    def decode(reading: _Reading) -> Batches:
        for path, content in reading.files():
            yield from reading.rows(path, content, names, types)

    if (listed := _list(files)) is None:
        raise FilesRefused
    return _copy(files, listed, decode, columns, dsn, table)


# ── a window ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def plan_window_files(window: Window, options: StagingOptions, dsn: str, table: str) -> Callable[[], Staged] | None:
    """Plan the COPY of a window's net effect by one task. The returned function raises FilesRefused. None: the window must
    be read by Spark."""
    if (
        not options.files
        or options.commit
        or options.rejects
        or window.change_bytes > MAX_CHANGE_BYTES
        or not can_decode(window.schema)
    ):
        return None
    if any(commit.may_lack_images for commit in window.commits) or (files := window.plain_files()) is None:
        return None
    form, versions = NetForm.of(window, options), files.versions
    names, types = _in_files(files, window.schema)
    if (listed := _list(files)) is None:
        return None
    rows = listed.coalesce(1)

    def net(reading: _Reading) -> Batches:
        changes = _decode_changes(reading, names, types, form.values, versions)
        if changes is None:
            return
        net = net_on_driver(changes, form.key, transients=options.transients)
        staged = form.to_staged(form.drop_removed_values(net))
        yield from staged.combine_chunks().to_batches(max_chunksize=COPY_ROWS)

    return lambda: _copy(files, rows, net, None, dsn, table)


def _decode_changes(
    reading: _Reading,
    names: Sequence[str],
    types: Sequence[pa.DataType],
    targets: Sequence[str],
    versions: Mapping[str, tuple[int, bool]],
) -> pa.Table | None:
    """The feed's rows with the columns of ``wire.wire_changes``."""
    import pyarrow as pa

    files, size = [], 0
    for path, content in reading.files():
        version, has_kind = versions[name_of_file(path)]
        wanted, kinds = ([*names, CHANGE_TYPE], [*types, pa.string()]) if has_kind else (names, types)
        batches = []
        for batch in reading.rows(path, content, wanted, kinds):
            size += batch.nbytes
            if size > MAX_DECODED_BYTES:
                raise FileRefused("large rows")
            batches.append(batch)
        if batches:
            files.append(add_change_columns(pa.Table.from_batches(batches), targets, version, has_change_type=has_kind))
    return pa.concat_tables(files) if files else None


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _in_files(files: PlainFiles, schema: StructType) -> tuple[list[str], list[pa.DataType]]:
    """The columns' names and types in the files, in the order of the schema."""
    return [files.columns[name] for name in schema.fieldNames()], [arrow_type(one.dataType) for one in schema.fields]


def _list(files: PlainFiles) -> DataFrame | None:
    """The files for the tasks; None: their storage cannot be read in this way."""
    try:
        return files.read()
    except Exception as error:  # Spark reads the rows instead, and raises the error if there is one
        log.info("Spark reads the files", extra={"reason": type(error).__name__})
        return None


def _copy(
    files: PlainFiles,
    listed: DataFrame,
    decode: Callable[[_Reading], Batches],
    columns: list[tuple[str, bool]] | None,
    dsn: str,
    table: str,
) -> Staged:
    try:
        batch_rows = COPY_ROWS if columns is not None else DECODED_ROWS
        reports = listed.mapInArrow(_copier(decode, columns, dsn, table, batch_rows), _REPORT).collect()
    except Exception as error:
        # The database fails in both ways. After any other error, Spark reads the rows, and raises what it finds
        if sqlstate_of_task(error) is not None or "SPARK_JOB_CANCELLED" in str(error):
            raise
        reports = None
    # Spark leaves out a file if its settings or the file's name make it do so
    if reports is None or Counter(name for row in reports for name in row["names"]) != Counter(files.names):
        log.info("Spark reads the files", extra={"staging": table})
        raise FilesRefused
    files.count(sum(row["read"] for row in reports))
    counts = {name: sum(row[name] for row in reports) for name in Staged.counts()}
    return Staged(tuple(row["attempt"] for row in reports), **counts)


def _copier(
    decode: Callable[[_Reading], Batches], columns: list[tuple[str, bool]] | None, dsn: str, table: str, batch_rows: int
) -> Callable[[Batches], Batches]:
    def copy(listed: Batches) -> Batches:
        import pyarrow as pa

        reading = _Reading(listed, batch_rows)
        tally = adbc_copy.Tally(columns)
        batches = decode(reading)
        with adbc_copy.connect_ahead(dsn) as connection:
            first = next(batches, None)
            if first is not None:
                adbc_copy.copy_batches(connection(), table, first, batches, tally)
        yield pa.RecordBatch.from_pylist([{"names": reading.names, "read": reading.count, **tally.report()}])

    return copy


def _to_wire(batch: pa.RecordBatch) -> pa.RecordBatch:
    """PostgreSQL has no integer of one byte."""
    import pyarrow as pa

    if not any(pa.types.is_int8(kind) for kind in batch.schema.types):
        return batch
    arrays = [array.cast(pa.int16()) if pa.types.is_int8(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
