"""Rows on their way: COPY from the tasks into tables of our own, in transactions of their own.

Each task attempt copies under an id of its own and reports how many rows it copied. What an attempt that failed, was
killed or ran twice has left behind carries an id that nobody asks for, and the applying transaction recounts what was
reported.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.change import CHANGE_TYPE, COMMIT_VERSION, CONFLICTS, DELETE, INSERT, UPDATE
from cdf.net import key_violation, quoted
from cdf.net_on_driver import KeyRefused, net_on_driver
from connectors.postgres.errors import StagingFailed, from_task, sqlstate_of
from connectors.postgres.types import staging_type, target_type, wire

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.window import Window

__all__ = [
    "Staged",
    "Tally",
    "SCHEMA",
    "ATTEMPT",
    "OPERATION",
    "CODES",
    "COPY_ROWS",
    "columns_of",
    "wire_net",
    "wire_net_on_driver",
    "wire_rows",
    "copy_from_tasks",
    "copy_batches",
    "bulk_connection",
    "interruptible",
]

log = logging.getLogger("deltarelay.postgres")

SCHEMA = "deltarelay"
ATTEMPT, OPERATION = "_attempt", "_operation"
CODES = {INSERT: 1, UPDATE: 2, DELETE: 3}
COPY_ROWS = 10_000
"""Rows per Arrow batch: ADBC encodes a batch whole before it sends it, and larger ones stop the two overlapping."""

DRIVER_ROWS = 20_000
DRIVER_BYTES = 64 * 2**20
"""More changes than these, or more in memory, are no small window, however few bytes they take on disk."""

_REPORT = "attempt string, inserts bigint, updates bigint, deletes bigint, conflicts bigint"


@dataclass(frozen=True, slots=True)
class Staged:
    """What the tasks reported."""

    attempts: tuple[str, ...] = ()
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    conflicts: int = 0

    @property
    def rows(self) -> int:
        return self.inserts + self.updates + self.deletes


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    """The staging table's columns. The source's are numbered, so that no name of theirs can meet one of ours."""
    own = [(ATTEMPT, "text"), (OPERATION, "smallint")]
    return own + [(f"c{number}", str(staging_type(field.dataType))) for number, field in enumerate(schema.fields)]


def wire_net(net: DataFrame, schema: StructType, key: tuple[str, ...]) -> DataFrame:
    """A net effect in the form in which it is copied. Of a delete only the key travels."""
    from pyspark.sql import functions as F

    kind = F.col(CHANGE_TYPE)
    code = F.when(kind == INSERT, CODES[INSERT]).when(kind == UPDATE, CODES[UPDATE]).otherwise(CODES[DELETE])
    columns = []
    for number, field in enumerate(schema.fields):
        value = wire(field.name, field.dataType)
        columns.append((value if field.name in key else F.when(kind != DELETE, value)).alias(f"c{number}"))
    return net.select(code.cast("smallint").alias(OPERATION), *columns, quoted(CONFLICTS))


def wire_net_on_driver(window: Window) -> pa.Table | None:
    """A small window's ``wire_net``, in memory. None where it has too many rows, or one that cannot be copied, which may
    not matter in the end: then the tasks see to it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = window.schema.fields
    columns = [wire(field.name, field.dataType).alias(f"c{number}") for number, field in enumerate(fields)]
    changes = window.read().select(quoted(CHANGE_TYPE), quoted(COMMIT_VERSION), *columns).coalesce(1)
    try:
        rows = changes.limit(DRIVER_ROWS + 1).toArrow()
    except Exception as error:
        if from_task(error) is None and "maxResultSize" not in str(error):
            raise
        log.info("a small window is left to the tasks", extra={"table": window.table})
        return None
    if rows.num_rows > DRIVER_ROWS or rows.nbytes > DRIVER_BYTES:
        return None
    key = [f"c{number}" for number, field in enumerate(fields) if field.name in window.key]
    try:
        net = net_on_driver(rows, key)
    except KeyRefused as refused:
        raise key_violation(refused.reason, refused.version, table=window.table, key=window.key) from refused
    kind = net[CHANGE_TYPE]
    code = pc.if_else(
        pc.equal(kind, INSERT), CODES[INSERT], pc.if_else(pc.equal(kind, UPDATE), CODES[UPDATE], CODES[DELETE])
    )
    values = []
    for number in range(len(fields)):
        name = f"c{number}"
        held = net[name]
        values.append(held if name in key else pc.if_else(pc.equal(kind, DELETE), pa.scalar(None, held.type), held))
    names = [OPERATION, *(f"c{number}" for number in range(len(fields))), CONFLICTS]
    return pa.Table.from_arrays([code.cast(pa.int16()), *values, net[CONFLICTS]], names=names)


def wire_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """Plain rows in the form in which they are copied. Numbered as well: mapInArrow trips over dots and backticks."""
    return rows.select(
        *(wire(field.name, field.dataType).alias(f"c{number}") for number, field in enumerate(schema.fields))
    )


def copy_from_tasks(rows: DataFrame, dsn: str, table: str, load: StructType | None = None) -> Staged:
    """COPY every partition from its own task: a ``wire_net`` result into staging, a ``wire_rows`` result of the schema
    ``load`` into a table with its columns."""
    columns = None if load is None else [(field.name, target_type(field.dataType) == "jsonb") for field in load.fields]
    reports = rows.mapInArrow(_copier(dsn, table, columns), _REPORT).collect()
    return Staged(
        attempts=tuple(row["attempt"] for row in reports),
        inserts=sum(row["inserts"] for row in reports),
        updates=sum(row["updates"] for row in reports),
        deletes=sum(row["deletes"] for row in reports),
        conflicts=sum(row["conflicts"] for row in reports),
    )


def _copier(
    dsn: str, table: str, columns: list[tuple[str, bool]] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first = next(batches, None)
        if first is None:
            return
        tally = Tally(columns)
        with bulk_connection(dsn) as connection:
            copy_batches(connection, table, first, batches, tally)
        yield pa.RecordBatch.from_pylist([tally.report()])

    return copy


class Tally:
    """Prepares batches for the COPY and counts what passes.

    Without ``columns`` the batches are of a net effect; otherwise of plain rows, whose columns get these names, and are
    jsonb where it says so.
    """

    def __init__(self, columns: list[tuple[str, bool]] | None = None) -> None:
        self.attempt = uuid.uuid4().hex
        self.counts = {CODES[INSERT]: 0, CODES[UPDATE]: 0, CODES[DELETE]: 0}
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
            # The one type name by which ADBC knows that text is meant for a jsonb column
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
            "conflicts": self.conflicts,
        }

    def staged(self) -> Staged:
        report = self.report()
        return Staged((report.pop("attempt"),), **report)


def bulk_connection(dsn: str) -> Any:
    """An ADBC connection. Fails with StagingFailed: the driver's own messages quote the server's."""
    from adbc_driver_postgresql import dbapi

    try:
        return dbapi.connect(dsn)
    except dbapi.Error as error:
        failure = StagingFailed(sqlstate_of(error) or "08000")
    raise failure


def copy_batches(
    connection: Any, table: str, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], tally: Tally
) -> None:
    """COPY the batches into ``deltarelay.<table>`` and commit; on failure nothing of them stays."""
    import pyarrow as pa
    from adbc_driver_postgresql import dbapi

    head = tally.prepare(first)

    def batches() -> Iterator[pa.RecordBatch]:
        yield head
        for batch in rest:
            yield tally.prepare(batch)

    try:
        with connection.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(head.schema, batches())
            cursor.adbc_ingest(table, reader, mode="append", db_schema_name=SCHEMA)
        connection.commit()
        return
    except dbapi.Error as error:
        failure = StagingFailed(sqlstate_of(error) or "XX000")
    raise failure


def interruptible(work: Callable[[], None], *, cancel: Callable[[], None]) -> None:
    """Do the work in a thread of its own, so that Ctrl-C stays a KeyboardInterrupt.

    On the main thread ADBC takes the signal for itself, and all that is left of it is an error like a server's (57014).
    """
    with ThreadPoolExecutor(1, thread_name_prefix="copy") as thread:
        copying = thread.submit(work)
        try:
            copying.result()
        except BaseException:
            if not copying.done():
                cancel()
            raise
