"""A sample sink for deltarelay: keeps a SQLite table equal to a Delta table. Needs SQLite 3.37 or newer."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import math
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

import deltarelay
from cdf.changes.columns import CHANGE_TYPE, CONFLICTS, DELETE
from cdf.changes.keys import check_key
from deltarelay import Applied, Capabilities, Conflicts, Inspection, Position, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from deltarelay import Snapshot, Window

__all__ = ["SQLITE", "Connection", "Options", "SqliteSink"]

# SQLite has no types for decimals and dates: they are stored as text.
TYPES = {"byte": "integer", "short": "integer", "integer": "integer", "long": "integer", "boolean": "integer"}
TYPES |= {"float": "real", "double": "real", "string": "text", "decimal": "text", "date": "text"}
POSITIONS = """create table if not exists _deltarelay_position (
    target text primary key, table_id text, version integer,
    epoch integer not null, owner text, lease_until real not null) strict"""
NOW = "julianday('now') * 86400"  # seconds on the target's clock, so that the clocks of runners need not agree


class Connection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    table: str


class SqliteKind:
    name = "sqlite"
    connection = Connection
    options = Options

    def build(self, connection: Connection, options: Options, *, pipeline: str) -> SqliteSink:  # noqa: ARG002
        return SqliteSink(connection.path, options.table)


SQLITE = SqliteKind()


class SqliteSink(Sink):
    """Holds state. The table, and its position beside it in ``_deltarelay_position``, change in one transaction."""

    capabilities = Capabilities("state", transactional=True, schema_changes=frozenset({"add_column"}))

    def __init__(self, path: str, table: str, *, lease_seconds: float = 30.0) -> None:
        self._path, self._name, self._table = path, table, _quoted(table)
        self._lease_seconds = lease_seconds
        self._owner, self._epoch = uuid.uuid4().hex, 0
        self._db: sqlite3.Connection | None = None
        self._closed = threading.Event()

    # ── inspecting and opening ─────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        if not Path(self._path).exists():
            return Inspection(problems=tuple(_problems(source, {})))
        with self._errors(), contextlib.closing(self._connect()) as db:
            known = db.execute("select 1 from sqlite_schema where name = '_deltarelay_position'").fetchone()
            position = self._position(db) if known else Position()
            columns = self._columns(db)
            problems = list(_problems(source, columns))
            if columns and position.version is None and db.execute(f"select 1 from {self._table}").fetchone():
                problems.append(f"table {self._name} holds rows of another writer: empty it, or name another table")
        return Inspection(position, tuple(problems), tuple(self._added(columns, source) if not problems else ()))

    def open(self, source: Source) -> Position:
        if problems := self.inspect(source).problems:
            raise deltarelay.TargetNotReady("the target is not ready: " + "; ".join(problems), problems=list(problems))
        self.close()
        with self._errors():
            self._db = self._connect()
            self._db.execute(POSITIONS)
            if not self._acquire_lease(self._db):
                raise deltarelay.LeaseHeld(
                    f"another runner holds the lease of table {self._name}", hint="wait until it ends"
                )
            self._closed = threading.Event()
            threading.Thread(target=self._renew, args=(self._closed, self._epoch), daemon=True).start()
            not_null = dict.fromkeys(source.key, "not null")
            columns = [f"{_quoted(f.name)} {_type(f)} {not_null.get(f.name, '')}" for f in source.schema.fields]
            columns.append(f"primary key ({_list(source.key)})")
            self._db.execute(f"create table if not exists {self._table} ({', '.join(columns)}) strict")
            return self._position(self._db)

    def _acquire_lease(self, db: sqlite3.Connection) -> bool:
        """The new epoch fences the previous runner, whose transactions check for their own epoch."""
        row = db.execute(
            f"""insert into _deltarelay_position values (?1, null, null, 1, ?2, {NOW} + ?3)
                on conflict (target) do update set epoch = epoch + 1, owner = ?2, lease_until = {NOW} + ?3
                where owner is null or lease_until <= {NOW} returning epoch""",
            (self._name, self._owner, self._lease_seconds),
        ).fetchone()
        self._epoch = row[0] if row else 0
        return row is not None

    def _renew(self, closed: threading.Event, epoch: int) -> None:
        while not closed.wait(self._lease_seconds / 3):
            # A failed renewal does no harm: if the lease expires, the epoch protects the data.
            with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as db:
                renewed = f"update _deltarelay_position set lease_until = {NOW} + ? where target = ? and epoch = ?"
                db.execute(renewed, (self._lease_seconds, self._name, epoch))

    def close(self) -> None:
        self._closed.set()
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):  # the lease then expires
                release = "update _deltarelay_position set owner = null where target = ? and epoch = ?"
                self._db.execute(release, (self._name, self._epoch))
            self._db.close()
        self._db = None

    # ── the durable steps ────────────────────────────────────────────────────────────────────────────────────────

    def load(self, snapshot: Snapshot) -> Applied:
        with self._step(Position(snapshot.version, snapshot.table_id)) as (db, position):
            if position.version is not None:
                raise deltarelay.WindowOutOfOrder(f"table {self._name} is already loaded", position=position.version)
            with _reading(snapshot):
                faults = dataclasses.asdict(snapshot.key_faults())
            if any(faults.values()):
                raise deltarelay.KeyViolation(f"{snapshot.table} is not keyed by {snapshot.key}: {faults}", **faults)
            count = self._stage(db, snapshot.iterate(), snapshot)
            db.execute("begin immediate")
            self._insert(db, snapshot.schema, "true")
            return Applied(snapshot.version, inserts=count)

    def apply(self, window: Window) -> Applied:
        with self._step(Position(window.last, window.table_id)) as (db, position):
            if self._is_replay(position, window):
                return Applied(position.version or 0, replayed=True)
            self._stage(db, window.iterate_net(), window)
            window.confirm()
            db.execute("begin immediate")
            ddl = self._added(self._columns(db), window)
            for statement in ddl:
                db.execute(statement)
            key = _list(window.key)
            inserts, updates, deletes, *conflicts = db.execute(
                f"""select count(*) filter (where type = 'insert'), count(*) filter (where type = 'update'),
                    count(*) filter (where type = 'delete'), count(*) filter (where type = 'insert' and met),
                    count(*) filter (where type = 'update' and not met),
                    count(*) filter (where type = 'delete' and not met), coalesce(sum(within), 0)
                from (select {CHANGE_TYPE} as type, {CONFLICTS} as within,
                    ({key}) in (select {key} from {self._table}) as met from temp.stage)"""
            ).fetchone()
            db.execute(f"delete from {self._table} where ({key}) in (select {key} from temp.stage)")
            self._insert(db, window.schema, f"{CHANGE_TYPE} <> '{DELETE}'")
            return Applied(window.last, inserts, updates, deletes, Conflicts(*conflicts), ddl=tuple(ddl))

    @contextmanager
    def _step(self, reached: Position) -> Iterator[tuple[sqlite3.Connection, Position]]:
        """Yield the present position. If the block began a transaction, store the new position in it and commit."""
        if (db := self._db) is None:
            raise deltarelay.Fenced(f"this runner holds no lease of table {self._name}", hint="open the sink first")
        with self._errors():
            try:
                self._check_fence(db)
                yield db, self._position(db)
                if db.in_transaction:
                    # Again, now that no other runner can write: only this check is decisive.
                    self._check_fence(db)
                    moved = "update _deltarelay_position set version = ?, table_id = ? where target = ?"
                    db.execute(moved, (reached.version, reached.table_id, self._name))
                    db.execute("commit")
            finally:
                if db.in_transaction:
                    db.execute("rollback")

    def _check_fence(self, db: sqlite3.Connection) -> None:
        mine = "select 1 from _deltarelay_position where target = ? and epoch = ?"
        if not db.execute(mine, (self._name, self._epoch)).fetchone():
            raise deltarelay.Fenced(f"another runner has taken over table {self._name}")

    def _is_replay(self, position: Position, window: Window) -> bool:
        if position.version is not None and position.table_id != window.table_id:
            raise deltarelay.TableReplaced(f"{window.table} is not the table that {self._name} was filled from")
        if position.version is not None and window.last <= position.version:
            return True
        if position.version is None or window.first != position.version + 1:
            raise deltarelay.WindowOutOfOrder(
                f"{window.first}..{window.last} does not follow position {position.version}"
            )
        return False

    def _stage(self, db: sqlite3.Connection, rows: Iterator[dict[str, Any]], of: Window | Snapshot) -> int:
        """Write the rows into a temporary table: an error while they are read leaves the target unchanged."""
        names = [*of.schema.names, CHANGE_TYPE, CONFLICTS]
        db.execute("drop table if exists temp.stage")
        db.execute(f"create temp table stage ({_list(names)})")
        stored = ([_stored(row.get(name, 0)) for name in names] for row in rows)
        return db.executemany(f"insert into temp.stage values ({', '.join('?' * len(names))})", stored).rowcount

    def _insert(self, db: sqlite3.Connection, schema: StructType, where: str) -> None:
        columns = _list(schema.names)
        db.execute(f"insert into {self._table} ({columns}) select {columns} from temp.stage where {where}")

    def _columns(self, db: sqlite3.Connection) -> dict[str, str]:
        return dict(db.execute("select name, lower(type) from pragma_table_info(?)", (self._name,)).fetchall())

    def _added(self, columns: dict[str, str], of: Source | Window) -> list[str]:
        added = [f"{_quoted(f.name)} {_type(f)}" for f in of.schema.fields if columns and f.name not in columns]
        return [f"alter table {self._table} add column {column}" for column in added]

    def _position(self, db: sqlite3.Connection) -> Position:
        found = db.execute("select version, table_id from _deltarelay_position where target = ?", (self._name,))
        return Position(*(found.fetchone() or ()))

    def _connect(self) -> sqlite3.Connection:
        # Autocommit: a transaction begins only with an explicit `begin`.
        return sqlite3.connect(self._path, timeout=self._lease_seconds, isolation_level=None, check_same_thread=False)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's own messages may quote values: they are kept as the cause only."""
        try:
            yield
        except sqlite3.Error as error:
            raise deltarelay.SinkUnavailable(f"SQLite could not carry out a step on table {self._name}") from error


@contextmanager
def _reading(of: Window | Snapshot) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error:
        raise
    except Exception as error:  # Spark's: `failure` translates it, without the rows' values
        raise of.failure(error) from error


def _problems(source: Source, columns: dict[str, str]) -> Iterator[str]:
    try:
        check_key(source.schema, source.key, source.table)
    except deltarelay.TypeNotSupported as error:
        yield error.message
    for field in source.schema.fields:
        found, needed = columns.get(field.name), TYPES.get(field.dataType.typeName())
        if needed is None or (found or needed) != needed:
            yield f"column {field.name!r}: {field.dataType.simpleString()} does not fit {found or 'any SQLite type'}"


def _type(field: StructField) -> str:
    if (kind := TYPES.get(field.dataType.typeName())) is None:
        raise deltarelay.TypeNotSupported(
            f"column {field.name!r}: no faithful type for {field.dataType.simpleString()}"
        )
    return kind


def _stored(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        raise deltarelay.RowRejected("a column holds NaN, which SQLite would store as NULL")
    return str(value) if isinstance(value, (Decimal, dt.date)) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))
