"""COPY from Spark tasks into our own tables, each task in a separate transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cdf.changes.canonical import is_nested
from cdf.changes.net_arrow import net_of_sorted
from connectors.postgres.errors import sqlstate_of_task
from connectors.postgres.sqlstates import UNFAITHFUL
from connectors.postgres.staging import adbc_copy, file_copy
from connectors.postgres.staging.columns import COPY_ROWS, Staged, StagingOptions
from connectors.postgres.staging.wire import NetForm, wire_changes, wire_net, wire_rows
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot, Window

__all__ = [
    "copy_from_tasks",
    "copy_snapshot_rows",
    "copy_window",
    "load_columns",
    "plan_copy",
    "plan_copy_of_net",
]

log = logging.getLogger("deltarelay.postgres")

Batches = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]

_REPORT = "attempt string, inserts bigint, updates bigint, deletes bigint, transients bigint, conflicts bigint"


def plan_copy(window: Window, options: StagingOptions, dsn: str, table: str) -> Callable[[], Staged]:
    """Plan the COPY of a window's net effect into staging. The returned function runs it, in any thread. It raises
    FilesRefused if Spark must read the window: then plan it again without ``options.files``."""
    return file_copy.plan_window_files(window, options, dsn, table) or _plan_copy_by_rows(window, options, dsn, table)


def _plan_copy_by_rows(window: Window, options: StagingOptions, dsn: str, table: str) -> Callable[[], Staged]:
    """Plan the COPY of a window's net effect into staging. The returned function runs it, in any thread.

    Each task computes the net effect of its keys: sorting and numpy are faster than Spark's window functions. Nested values
    are an exception: one that fails the job may be superseded within the window (invalid text in JSON), so Spark computes
    the net effect before they are converted.
    """
    if any(is_nested(field.dataType) for field in window.schema.fields):
        return plan_copy_of_net(window, options, dsn, table)
    window.refuse_missing_images()  # a task does not see all rows of a version
    form = NetForm.of(window, options)
    rows = wire_changes(window, options).repartition(*form.key).sortWithinPartitions(*form.key)

    def net(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for changes in net_of_sorted(batches, form.key, transients=options.transients):
            yield from form.to_staged(changes).combine_chunks().to_batches(max_chunksize=COPY_ROWS)

    return lambda: copy_from_tasks(rows, dsn, table, None, net)


def plan_copy_of_net(window: Window, options: StagingOptions, dsn: str, table: str) -> Callable[[], Staged]:
    """``plan_copy`` with the net effect computed by Spark."""
    planned = wire_net(window.net(transients=options.transients), window.schema, window.key, options)
    return lambda: copy_from_tasks(planned, dsn, table)


def copy_window(window: Window, options: StagingOptions, dsn: str, table: str) -> Staged:
    """Run ``plan_copy``. A value that PostgreSQL cannot store may be superseded within the window, or belong to a row that
    was inserted and deleted: if one fails the tasks, the net effect is computed first."""
    try:
        return plan_copy(window, options, dsn, table)()
    except Exception as error:
        if sqlstate_of_task(error) not in UNFAITHFUL:
            raise
    log.info("computing the net effect before the COPY", extra={"table": window.table})
    return plan_copy_of_net(window, options, dsn, table)()


def copy_from_tasks(
    rows: DataFrame, dsn: str, table: str, load: StructType | None = None, prepare: Batches | None = None
) -> Staged:
    """COPY every partition from its own task: a ``wire_net`` result into staging, a ``wire_rows`` result of the schema
    ``load`` into a table with its columns. ``prepare`` is applied to the rows in the task, before the COPY."""
    columns = None if load is None else load_columns(load)
    reports = rows.mapInArrow(_copier(dsn, table, columns, prepare), _REPORT).collect()
    counts = {name: sum(row[name] for row in reports) for name in Staged.counts()}
    return Staged(tuple(row["attempt"] for row in reports), **counts)


def copy_snapshot_rows(snapshot: Snapshot, dsn: str, table: str) -> Staged:
    """COPY all rows of a snapshot into a table with its columns."""
    return copy_from_tasks(wire_rows(snapshot.read(), snapshot.schema), dsn, table, snapshot.schema)


def load_columns(schema: StructType) -> list[tuple[str, bool]]:
    return [(field.name, target_type(field.dataType) == "jsonb") for field in schema.fields]


def _copier(dsn: str, table: str, columns: list[tuple[str, bool]] | None, prepare: Batches | None) -> Batches:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        batches = batches if prepare is None else prepare(batches)
        first = next(batches, None)
        if first is None:
            return
        tally = adbc_copy.Tally(columns)
        with adbc_copy.bulk_connection(dsn) as connection:
            adbc_copy.copy_batches(connection, table, first, batches, tally)
        yield pa.RecordBatch.from_pylist([tally.report()])

    return copy
