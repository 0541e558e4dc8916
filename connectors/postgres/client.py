"""What every step of the sink stands on: its connections, its names in our schema, and failures in our own words."""

from __future__ import annotations

import hashlib
import select
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq, sql

from audit.postgres_session import PinnedConnection, connect, session_dsn
from cdf.errors import CdfError, PositionError, RowRejected
from connectors.postgres.errors import (
    UNFAITHFUL,
    UNREACHED,
    StagingFailed,
    from_task,
    of_refusal,
    of_state,
    raise_alone,
    sqlstate_of,
    translate,
)
from connectors.postgres.position import Lease, fenced, release_lease
from connectors.postgres.state.run_history import History
from connectors.postgres.write.rejected import unfaithful_values
from connectors.postgres.write.staging import SCHEMA

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot, Window
    from connectors.postgres.target.ddl import TargetName

__all__ = ["Session"]

Connection = psycopg.Connection[Any]

IDLE_SECONDS = 30.0


class Session:
    """One target of one runner. The main connection is made when needed, and anew after it broke."""

    def __init__(self, dsn: str, target: TargetName) -> None:
        self.dsn = _with_defaults(dsn)
        self.target = target
        self.lease: Lease | None = None
        self.history: History | None = None
        self._tag = hashlib.md5(str(target).encode(), usedforsecurity=False).hexdigest()[:12]
        self._connection: Connection | None = None
        self._made: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._copies: list[Callable[[], None]] = []
        self._used = 0.0

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> PinnedConnection:
        try:
            connection = connect(self.dsn, autocommit=True)
        except psycopg.OperationalError as error:
            error.sqlstate = of_refusal(self.dsn, error)
            raise
        self._made.add(connection)
        return connection

    def main(self) -> Connection:
        if self._connection is not None and self._lost(self._connection):
            self._connection.close()
        if self._connection is None or self._connection.closed:
            self._connection = self.connect()
        self._used = time.monotonic()
        return self._connection

    def _lost(self, connection: Connection) -> bool:
        """Whether the connection broke while it was idle: then nothing is lost with it, and a new one will do.

        An end that the server sent shows without asking. A firewall's silence does not: after a while one asks.
        """
        if connection.closed or connection.info.transaction_status != pq.TransactionStatus.IDLE:
            return False
        sent = select.poll()
        sent.register(connection.fileno(), select.POLLIN)
        if not sent.poll(0) and time.monotonic() - self._used < IDLE_SECONDS:
            return False
        try:
            connection.execute("select")
        except psycopg.OperationalError:
            return True
        return False

    def held(self) -> Lease:
        if self.lease is None:
            raise PositionError("the sink is not open", hint="call open first")
        return self.lease

    def record(self, connection: Connection, **counts: int) -> None:
        """Inside the transaction that makes a step durable: its row in the history."""
        if self.history is not None:
            self.history.write(connection, **counts)

    def cancel(self) -> None:
        """Whatever statement this runner waits for ends with an error; from any thread."""
        for cancel in list(self._copies):
            with suppress(Exception):
                cancel()
        for connection in list(self._made):
            if not connection.closed and connection.info.transaction_status != pq.TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    connection.cancel_safe(timeout=5)

    @contextmanager
    def cancellable(self, cancel: Callable[[], None]) -> Iterator[None]:
        """While a COPY of ADBC runs, which is on a connection of its own."""
        self._copies.append(cancel)
        try:
            yield
        finally:
            self._copies.remove(cancel)

    def close(self) -> None:
        """Give the lease back and drop what is ours, as far as the database can be reached."""
        if self.lease is not None:
            self._release(self.lease)
        self.lease = self.history = None
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _release(self, lease: Lease) -> None:
        for _ in range(2):  # that a connection broke shows when it is used: then once more with a new one
            try:
                connection = self.main()
            except psycopg.Error:
                return  # the lease runs out by itself
            with suppress(psycopg.Error):
                with connection.transaction():
                    connection.execute("set local lock_timeout = '2s'")
                    release_lease(connection, lease)
                for kind in ("stage", "ahead", "load"):
                    self._drop_soon(connection, self.own_table(kind))
                return

    # ── our tables ───────────────────────────────────────────────────────────────────────────────────────────────

    def own_name(self, kind: str) -> str:
        """The name, in schema deltarelay, of this runner's own ``stage`` or ``load`` table."""
        return f"{kind}_{self._tag}_{self.held().epoch}"

    def own_table(self, kind: str) -> sql.Identifier:
        return sql.Identifier(SCHEMA, self.own_name(kind))

    def drop(self, kind: str) -> None:
        with suppress(psycopg.Error):
            self.main().execute(sql.SQL("drop table if exists {}").format(self.own_table(kind)))

    def sweep(self) -> None:
        """Drop what earlier runners left: their tables belong to an epoch that can no longer commit."""
        connection, epoch = self.main(), self.held().epoch
        for name in self.staging_tables(connection):
            if int(name.rsplit("_", 1)[1]) < epoch:
                self._drop_soon(connection, sql.Identifier(SCHEMA, name))

    def staging_tables(self, connection: Connection) -> list[str]:
        """The names of what runners of this target have in our schema, dead ones and a live one."""
        rows = connection.execute(
            "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = %s and c.relkind = 'r' and c.relname ~ %s order by 1",
            [SCHEMA, f"^(stage|ahead|load)_{self._tag}_\\d+$"],
        ).fetchall()
        return [name for (name,) in rows]

    @staticmethod
    def _drop_soon(connection: Connection, table: sql.Identifier) -> None:
        # A COPY of a dead runner's task may still hold it for a moment, or another role own it: a later run drops it
        left = (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege)
        with suppress(*left), connection.transaction():
            connection.execute("set local lock_timeout = '500ms'")
            connection.execute(sql.SQL("drop table if exists {}").format(table))

    # ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def errors(self, doing: str, explain: Callable[[str | None], CdfError | None] | None = None) -> Iterator[None]:
        """psycopg's exceptions quote rows and keys: out go ours, without them in the chain.

        ``explain`` may know more about a SQLSTATE than the table in ``connectors.postgres.errors``.
        """
        try:
            yield
            return
        except psycopg.Error as error:
            explained = explain(sqlstate_of(error)) if explain is not None else None
            failure = explained or translate(error, doing)
        raise_alone(failure)

    @contextmanager
    def committed(self, version: int) -> Iterator[None]:
        """A connection that breaks during COMMIT leaves open whether it happened: the position tells."""
        try:
            yield
        except psycopg.OperationalError as error:
            if not (sqlstate_of(error) or "").startswith(("08", "57", "25P")) or not self._durable(version):
                raise

    def _durable(self, version: int) -> bool:
        lease = self.held()
        with suppress(psycopg.Error):
            connection = self.main()
            with connection.transaction():
                connection.execute("set local lock_timeout = '20s'")
                # FOR UPDATE waits until the interrupted transaction has ended, one way or the other
                row = connection.execute(
                    "select version, epoch from deltarelay.position where target = %s for update", [lease.target]
                ).fetchone()
            return row == (version, lease.epoch)
        return False

    def copy_failure(self, error: Exception, rows: Window | Snapshot, *, by_driver: bool = False) -> CdfError:
        """Why a COPY failed: fenced meanwhile, a value that cannot be stored, the database, or the rows' own reading."""
        state = error.sqlstate if isinstance(error, StagingFailed) else from_task(error)
        if state is None:
            return rows.failure(error)
        if (overtaken := self.fenced_meanwhile()) is not None:
            return overtaken
        if (rejected := self.rejected(state, rows)) is not None:
            return rejected
        if state == UNREACHED and (refused := self._refused()) is not None:
            return of_state(refused, "copying rows")
        where = "the database" if by_driver else "the database, as seen from the executors,"
        return of_state(state, "copying rows", where=where)

    def _refused(self) -> str | None:
        """With which SQLSTATE a new connection of the driver is refused: that of a task cannot tell."""
        try:
            self.connect().close()
        except psycopg.Error as error:
            return sqlstate_of(error)
        return None

    def rejected(self, state: str | None, rows: Window | Snapshot) -> CdfError | None:
        """Where PostgreSQL refused a value as unfaithful: which column, at which version."""
        if state not in UNFAITHFUL:
            return None
        with suppress(Exception):
            if found := unfaithful_values(rows):
                return RowRejected(
                    f"{rows.table}: {found}",
                    hint="PostgreSQL cannot hold it: correct the value at the source, or leave the column out",
                    condition=state,
                    table=rows.table,
                )
        return None

    def fenced_meanwhile(self) -> CdfError | None:
        lease = self.held()
        with suppress(psycopg.Error):
            row = (
                self.main()
                .execute("select epoch from deltarelay.position where target = %s", [lease.target])
                .fetchone()
            )
            if row != (lease.epoch,):
                return fenced(lease.target)
        return None


def _with_defaults(dsn: str) -> str:
    # A server that vanished is noticed within a minute, instead of after the two hours of the system's defaults
    patience = {"connect_timeout": 10, "tcp_user_timeout": 60_000}
    patience |= {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
    return session_dsn(dsn, **patience)
