"""COPY of Arrow batches through ADBC, into tables that this package created."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import CONFLICTS, DELETE, INSERT, TRANSIENT, UPDATE
from connectors.postgres.errors import StagingFailed, sqlstate_of
from connectors.postgres.sql_parts import SCHEMA
from connectors.postgres.staging.columns import ATTEMPT, CODES, OPERATION, Staged

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Tally", "bulk_connection", "connect_ahead", "copy_batches", "run_interruptibly"]


class Tally:
    """Prepares batches for the COPY and counts their rows.

    Without ``columns`` the batches are of a net effect. With ``columns`` they are plain rows: name of each column, and
    whether it is jsonb.
    """

    def __init__(self, columns: list[tuple[str, bool]] | None = None) -> None:
        self.attempt = uuid.uuid4().hex
        self.counts = dict.fromkeys(CODES.values(), 0)
        self.conflicts = 0
        self._columns = columns

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._columns is None:
            for entry in pc.value_counts(batch.column(OPERATION)).to_pylist():
                self.counts[entry["values"]] += entry["counts"]
            self.conflicts += pc.sum(batch.column(CONFLICTS)).as_py() or 0
            batch = batch.drop_columns([CONFLICTS])
            attempt = pa.array([self.attempt] * batch.num_rows, type=pa.string())
            return pa.RecordBatch.from_arrays([attempt, *batch.columns], names=[ATTEMPT, *batch.schema.names])
        self.counts[CODES[INSERT]] += batch.num_rows
        arrays = [
            # The only type name by which ADBC recognises text for a jsonb column
            pa.ExtensionArray.from_storage(pa.json_(array.type), array) if is_json else array
            for (_, is_json), array in zip(self._columns, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self._columns])

    def report(self) -> dict[str, Any]:
        return {
            "attempt": self.attempt,
            "inserts": self.counts[CODES[INSERT]],
            "updates": self.counts[CODES[UPDATE]],
            "deletes": self.counts[CODES[DELETE]],
            "transients": self.counts[CODES[TRANSIENT]],
            "conflicts": self.conflicts,
        }

    def staged(self) -> Staged:
        report = self.report()
        return Staged((report.pop("attempt"),), **report)


def bulk_connection(dsn: str) -> Any:
    """Open an ADBC connection. Raises StagingFailed: the driver's own messages quote the server's."""
    from adbc_driver_postgresql import dbapi

    try:
        return dbapi.connect(dsn)
    except dbapi.Error as error:
        failure = StagingFailed(sqlstate_of(error) or "08000")
    raise failure


@contextmanager
def connect_ahead(dsn: str) -> Iterator[Callable[[], Any]]:
    """Open a connection while the block prepares the first rows. The yielded function waits for it, and raises as
    ``bulk_connection`` does. The connection is closed at the end of the block."""
    import adbc_driver_postgresql.dbapi  # noqa: F401  # not in the thread: the block imports as well

    with ThreadPoolExecutor(1, thread_name_prefix="connect") as thread:
        opening = thread.submit(bulk_connection, dsn)
        try:
            yield opening.result
        finally:
            with suppress(Exception):
                opening.result().close()


def copy_batches(
    connection: Any, table: str, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], tally: Tally
) -> None:
    """COPY the batches into ``deltarelay.<table>`` and commit. A failure leaves none of the rows."""
    import pyarrow as pa
    from adbc_driver_postgresql import dbapi

    head = tally.prepare(first)
    own_errors: list[Exception] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield head
        try:
            for batch in rest:
                yield tally.prepare(batch)
        except Exception as error:
            own_errors.append(error)
            raise

    failure: Exception
    try:
        with connection.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(head.schema, batches())
            cursor.adbc_ingest(table, reader, mode="append", db_schema_name=SCHEMA)
        connection.commit()
        return
    except dbapi.Error as error:
        # ADBC reports an error of the iterator as an error of the connection
        failure = own_errors[0] if own_errors else StagingFailed(sqlstate_of(error) or "XX000")
    raise failure


def run_interruptibly(work: Callable[[], None], *, cancel: Callable[[], None]) -> None:
    """Run the work in a separate thread, so that Ctrl-C raises KeyboardInterrupt here.

    On the main thread ADBC handles the signal itself, and raises an error like the server's cancellation (57014).
    """
    with ThreadPoolExecutor(1, thread_name_prefix="copy") as thread:
        copying = thread.submit(work)
        try:
            copying.result()
        except BaseException:
            if not copying.done():
                cancel()
            raise
