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

from cdf.changes.canonical import is_nested, plain_decimals
from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    TRANSIENT,
    UPDATE,
    UPDATE_POSTIMAGE,
    quoted,
)
from cdf.changes.few_rows import few_rows
from cdf.changes.in_memory import InMemorySnapshot, InMemoryWindow
from cdf.changes.keys import key_violation
from cdf.changes.net_arrow import KeyRefused, net_of_sorted, net_on_driver
from connectors.postgres.errors import UNFAITHFUL, StagingFailed, from_task, sqlstate_of
from connectors.postgres.types import staging_type, target_type, wire
from connectors.postgres.write import in_memory
from connectors.postgres.write import storability as marking

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot, Window

__all__ = [
    "Staged",
    "Tally",
    "SCHEMA",
    "ATTEMPT",
    "OPERATION",
    "VERSION",
    "TIMESTAMP",
    "REJECT",
    "REJECT_KEY",
    "REJECT_DIGEST",
    "REJECT_ROW",
    "Wanted",
    "CODES",
    "UNEXPECTED",
    "COPY_ROWS",
    "columns_of",
    "wire_net",
    "copy_net",
    "wire_net_on_driver",
    "wire_rows",
    "copy_from_tasks",
    "copy_snapshot_rows",
    "copy_window",
    "planned_copy",
    "copy_batches",
    "bulk_connection",
    "interruptible",
]

log = logging.getLogger("deltarelay.postgres")

Batches = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]

SCHEMA = "deltarelay"
ATTEMPT, OPERATION = "_attempt", "_operation"
VERSION, TIMESTAMP = "_version", "_timestamp"
"""Of the commit that a change came with; only where somebody wants to know."""
REJECT, REJECT_KEY, REJECT_DIGEST, REJECT_ROW = "_reject", "_reject_key", "_reject_digest", "_reject_row"
"""Why a row cannot be stored, and what is known of it; only where such rows are set aside."""
_WANTED = (VERSION, TIMESTAMP, REJECT, REJECT_KEY, REJECT_DIGEST, REJECT_ROW)
CODES = {INSERT: 1, UPDATE: 2, DELETE: 3, TRANSIENT: 4}
UNEXPECTED = 5
"""A transient key whose row the target holds: the row is deleted, and counted as one that an insert met."""
COPY_ROWS = 10_000
"""Rows per Arrow batch: ADBC encodes a batch whole before it sends it, and larger ones stop the two overlapping."""

_REPORT = "attempt string, inserts bigint, updates bigint, deletes bigint, transients bigint, conflicts bigint"


@dataclass(frozen=True, slots=True)
class Staged:
    """What the tasks reported."""

    attempts: tuple[str, ...] = ()
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    transients: int = 0
    conflicts: int = 0

    @property
    def rows(self) -> int:
        return self.inserts + self.updates + self.deletes + self.transients


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is staged besides a change's kind and its columns."""

    commit: bool = False
    """Version and time of its commit."""
    rejects: bool = False
    """What PostgreSQL's text cannot hold is marked, and travels as null, instead of stopping the COPY."""
    reject_rows: bool = False
    """With ``rejects``: the whole row as JSON."""
    transients: bool = False
    """The keys that the window inserts first and deletes last: the target must hold no row under them."""


def columns_of(schema: StructType, wanted: Wanted) -> list[tuple[str, str]]:
    """The staging table's columns. The source's are numbered, so that no name of theirs can meet one of ours."""
    own = [(ATTEMPT, "text"), (OPERATION, "smallint")]
    if wanted.commit:
        own += [(VERSION, "bigint"), (TIMESTAMP, "timestamp with time zone")]
    if wanted.rejects:
        own += [(REJECT, "text"), (REJECT_KEY, "text"), (REJECT_DIGEST, "text"), (REJECT_ROW, "text")]
    return own + [(f"c{number}", str(staging_type(field.dataType))) for number, field in enumerate(schema.fields)]


def wire_net(net: DataFrame, schema: StructType, key: tuple[str, ...], wanted: Wanted) -> DataFrame:
    """A net effect in the form in which it is copied. Of a delete only the key travels, of a marked change nothing. A
    transient key that PostgreSQL cannot hold is in no target."""
    from pyspark.sql import functions as F

    kind = F.col(CHANGE_TYPE)
    code = F.when(kind == INSERT, CODES[INSERT]).when(kind == UPDATE, CODES[UPDATE]).when(kind == DELETE, CODES[DELETE])
    code = code.when(kind == TRANSIENT, CODES[TRANSIENT])
    if wanted.transients and not wanted.rejects:
        net = net.where((kind != TRANSIENT) | marking.reason(schema, key).isNull())
    reason = marking.reason(schema, key) if wanted.rejects else None
    columns = []
    for number, field in enumerate(schema.fields):
        value = wire(field.name, field.dataType)
        if reason is not None:
            value = F.when(reason.isNull(), value)
        columns.append((value if field.name in key else F.when(kind.isin(INSERT, UPDATE), value)).alias(f"c{number}"))
    own = _wanted_columns(schema, key, wanted, reason)
    with plain_decimals(net.sparkSession):
        return net.select(code.cast("smallint").alias(OPERATION), *own, *columns, quoted(CONFLICTS))


def _wanted_columns(schema: StructType, key: tuple[str, ...], wanted: Wanted, reason: Column | None) -> list[Column]:
    """``reason``: of ``marking``, where rows are set aside."""
    from pyspark.sql import functions as F

    own: list[Column] = []
    if wanted.commit:
        own += [quoted(COMMIT_VERSION).alias(VERSION), quoted(COMMIT_TIMESTAMP).cast("timestamp").alias(TIMESTAMP)]
    if reason is not None:
        own.append(reason.alias(REJECT))
        found = marking.details(schema, key, row=wanted.reject_rows)
        for name, value in zip((REJECT_KEY, REJECT_DIGEST, REJECT_ROW), found, strict=True):
            own.append(F.when(reason.isNotNull(), value).alias(name))
    return own


def _wire_changes(window: Window, wanted: Wanted) -> DataFrame:
    """The feed's rows with the columns of ``wire_net``, before their net effect is taken."""
    from pyspark.sql import functions as F

    schema, key = window.schema, window.key
    put = quoted(CHANGE_TYPE).isin(INSERT, UPDATE_POSTIMAGE)
    reason = marking.reason(schema, key) if wanted.rejects else None
    columns = []
    for number, field in enumerate(schema.fields):
        value = wire(field.name, field.dataType)
        if field.name in key:
            # A key stays as it is until the net effect is taken
            value = value if reason is None else quoted(field.name)
        else:
            # Of what is removed nobody asks for more than the key: the rest need not be shuffled and sorted
            value = F.when(put if reason is None else put & reason.isNull(), value)
        columns.append(value.alias(f"c{number}"))
    own = _wanted_columns(schema, key, wanted, reason)
    feed = window.read()
    with plain_decimals(feed.sparkSession):
        return feed.select(quoted(CHANGE_TYPE), quoted(COMMIT_VERSION), *own, *columns)


def wire_net_on_driver(window: Window, wanted: Wanted) -> pa.Table | None:
    """A small window's ``wire_net``, in memory. None where its rows are not few, or one cannot be copied, which may not
    matter in the end: then the tasks see to it."""
    if isinstance(window, InMemoryWindow):
        net = window.collect_net(transients=wanted.transients)
        return in_memory.wire_net(net, window.schema, window.key, wanted, CODES)
    try:
        rows = few_rows(_wire_changes(window, wanted))
    except Exception as error:
        if from_task(error) is None:
            raise
        log.info("a small window is left to the tasks", extra={"table": window.table})
        return None
    if rows is None:
        return None
    form = _Form.of(window, wanted)
    try:
        net = net_on_driver(rows, form.key, transients=wanted.transients)
    except KeyRefused as refused:
        raise key_violation(refused.reason, refused.version, table=window.table, key=window.key) from refused
    return form.staged(net)


@dataclass(frozen=True, slots=True)
class _Form:
    """What the tasks need to know in order to make staged rows of a net effect."""

    key: tuple[str, ...]
    own: tuple[str, ...]
    values: tuple[str, ...]
    rejects: bool

    @classmethod
    def of(cls, window: Window, wanted: Wanted) -> _Form:
        numbered = [(f"c{number}", field.name in window.key) for number, field in enumerate(window.schema.fields)]
        return cls(
            key=tuple(name for name, is_key in numbered if is_key),
            own=tuple(name for name, _ in columns_of(window.schema, wanted) if name in _WANTED),
            values=tuple(name for name, _ in numbered),
            rejects=wanted.rejects,
        )

    def staged(self, net: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = net[CHANGE_TYPE]
        codes = pa.array(list(CODES.values()), pa.int16())
        code = pc.take(codes, pc.index_in(kind, value_set=pa.array(list(CODES), kind.type)))
        marked = pc.is_valid(net[REJECT]) if self.rejects else None
        arrays: dict[str, Any] = {OPERATION: code}
        arrays |= {name: net[name] for name in self.own}
        for name in self.values:
            held, left_out = net[name], marked if name in self.key else None
            arrays[name] = held if left_out is None else pc.if_else(left_out, pa.scalar(None, held.type), held)
        arrays[CONFLICTS] = net[CONFLICTS]
        return pa.Table.from_pydict(arrays)


def planned_copy(window: Window, wanted: Wanted, dsn: str, table: str) -> Callable[[], Staged]:
    """The COPY of a window's net effect into staging from the tasks, planned; what is returned runs it, in any thread.

    They take the net effect themselves, each of its keys: sorting and numpy are quicker than Spark's window functions. But
    where a value may stop the job that does not matter in the end (text in JSON that is no text), Spark takes it first.
    """
    if any(is_nested(field.dataType) for field in window.schema.fields):
        return copy_net(window, wanted, dsn, table)
    form = _Form.of(window, wanted)
    rows = _wire_changes(window, wanted).repartition(*form.key).sortWithinPartitions(*form.key)

    def net(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for changes in net_of_sorted(batches, form.key, transients=wanted.transients):
            yield from form.staged(changes).combine_chunks().to_batches(max_chunksize=COPY_ROWS)

    return lambda: copy_from_tasks(rows, dsn, table, None, net)


def copy_window(window: Window, wanted: Wanted, dsn: str, table: str) -> Staged:
    """``planned_copy``, at once. A value that PostgreSQL does not have may be superseded within the window, or be the key of
    a row that came and went: where one stops the tasks, the net effect is taken first."""
    try:
        return planned_copy(window, wanted, dsn, table)()
    except Exception as error:
        if from_task(error) not in UNFAITHFUL:
            raise
    log.info("the net effect is taken first", extra={"table": window.table})
    return copy_net(window, wanted, dsn, table)()


def copy_net(window: Window, wanted: Wanted, dsn: str, table: str) -> Callable[[], Staged]:
    """``planned_copy`` of the net effect that Spark takes."""
    planned = wire_net(window.net(transients=wanted.transients), window.schema, window.key, wanted)
    return lambda: copy_from_tasks(planned, dsn, table)


def wire_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """Plain rows in the form in which they are copied. Numbered as well: mapInArrow trips over dots and backticks."""
    return rows.select(
        *(wire(field.name, field.dataType).alias(f"c{number}") for number, field in enumerate(schema.fields))
    )


def copy_from_tasks(
    rows: DataFrame, dsn: str, table: str, load: StructType | None = None, first: Batches | None = None
) -> Staged:
    """COPY every partition from its own task: a ``wire_net`` result into staging, a ``wire_rows`` result of the schema
    ``load`` into a table with its columns. ``first`` is done to the rows in the task before."""
    columns = None if load is None else _load_columns(load)
    reports = rows.mapInArrow(_copier(dsn, table, columns, first), _REPORT).collect()
    return Staged(
        attempts=tuple(row["attempt"] for row in reports),
        inserts=sum(row["inserts"] for row in reports),
        updates=sum(row["updates"] for row in reports),
        deletes=sum(row["deletes"] for row in reports),
        transients=sum(row["transients"] for row in reports),
        conflicts=sum(row["conflicts"] for row in reports),
    )


def copy_snapshot_rows(snapshot: Snapshot, dsn: str, table: str) -> Staged:
    """COPY all rows of a snapshot into a table with its columns: from the tasks, or from memory where they are."""
    if not isinstance(snapshot, InMemorySnapshot):
        return copy_from_tasks(wire_rows(snapshot.read(), snapshot.schema), dsn, table, snapshot.schema)
    first, *rest = in_memory.wire_rows(snapshot.collect(), snapshot.schema).to_batches(max_chunksize=COPY_ROWS) or [
        None
    ]
    tally = Tally(_load_columns(snapshot.schema))
    if first is not None:
        with bulk_connection(dsn) as connection:
            copy_batches(connection, table, first, iter(rest), tally)
    return tally.staged()


def _load_columns(schema: StructType) -> list[tuple[str, bool]]:
    return [(field.name, target_type(field.dataType) == "jsonb") for field in schema.fields]


def _copier(dsn: str, table: str, columns: list[tuple[str, bool]] | None, prepare: Batches | None) -> Batches:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        batches = batches if prepare is None else prepare(batches)
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
            "transients": self.counts[CODES[TRANSIENT]],
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
    ours: list[Exception] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield head
        try:
            for batch in rest:
                yield tally.prepare(batch)
        except Exception as error:
            ours.append(error)
            raise

    failure: Exception
    try:
        with connection.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(head.schema, batches())
            cursor.adbc_ingest(table, reader, mode="append", db_schema_name=SCHEMA)
        connection.commit()
        return
    except dbapi.Error as error:
        # What goes wrong with the rows on their way comes back as a failure of the connection
        failure = ours[0] if ours else StagingFailed(sqlstate_of(error) or "XX000")
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
