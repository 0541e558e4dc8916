"""Connections of one runner to one target, the names of its own tables, and translated errors."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import pq, sql

from audit.errors import raise_without_context
from audit.postgres_session import PinnedConnection, connect, session_dsn
from cdf.errors import CdfError, PositionError
from connectors.postgres.errors import find_login_refusal, sqlstate_of, translate
from connectors.postgres.spare_connections import SPARE, is_broken
from connectors.postgres.sql_parts import SCHEMA, TargetName
from connectors.postgres.sqlstates import COMMIT_UNKNOWN
from connectors.postgres.state.lease import Lease, fenced_error, is_fenced, release_lease
from connectors.postgres.state.run_history import RunHistory

__all__ = ["Session"]

Connection = psycopg.Connection[Any]


class Session:
    """One target of one runner. The main connection is opened on first use, and again after it broke."""

    def __init__(self, dsn: str, target: TargetName) -> None:
        self.dsn = _with_defaults(dsn)
        self.target = target
        self.lease: Lease | None = None
        self.history: RunHistory | None = None
        self._tag = hashlib.md5(str(target).encode(), usedforsecurity=False).hexdigest()[:12]
        self._connection: PinnedConnection | None = None
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._copies: list[Callable[[], None]] = []
        self._last_used = 0.0
        self._is_cancelled = False

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> PinnedConnection:
        """A connection of the caller, who closes it or calls ``give_back``."""
        if (spare := SPARE.take(self.dsn)) is not None:
            self._connections.add(spare)
            return spare
        return self.open_new()

    def open_new(self) -> PinnedConnection:
        """As ``connect``, with a login."""
        try:
            connection = connect(self.dsn, autocommit=True)
        except psycopg.OperationalError as error:
            error.sqlstate = find_login_refusal(self.dsn, error)
            raise
        self._connections.add(connection)
        return connection

    def give_back(self, connection: PinnedConnection) -> None:
        """Close a connection of ``connect``, or keep it for another session. A second call does nothing."""
        if connection in self._connections:
            self._connections.discard(connection)
            # ``cancel`` may still be about to cancel a statement of it, which would be another pipeline's then
            if self._is_cancelled:
                connection.close()
            else:
                SPARE.give(self.dsn, connection)

    def main(self) -> Connection:
        if self._connection is not None and is_broken(self._connection, self._last_used):
            self._connection.close()
        if self._connection is None or self._connection.closed:
            self._connection = self.connect()
        self._last_used = time.monotonic()
        return self._connection

    def require_lease(self) -> Lease:
        """The lease. Raises PositionError if the sink is not open."""
        if self.lease is None:
            raise PositionError("the sink is not open", hint="call open first")
        return self.lease

    def record(self, connection: Connection, **counts: int) -> None:
        """Write the step's row of the history, inside the transaction that makes the step durable."""
        if self.history is not None:
            self.history.write(connection, **counts)

    def cancel(self) -> None:
        """Cancel every running statement of this runner. May be called from any thread."""
        self._is_cancelled = True
        for cancel in list(self._copies):
            with suppress(Exception):
                cancel()
        for connection in list(self._connections):
            if not connection.closed and connection.info.transaction_status != pq.TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    connection.cancel_safe(timeout=5)

    @contextmanager
    def cancellable(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Let ``cancel`` also cancel a COPY of ADBC, which has a separate connection."""
        self._copies.append(cancel)
        try:
            yield
        finally:
            self._copies.remove(cancel)

    def close(self) -> None:
        """Release the lease and drop this runner's tables, if the database can be reached."""
        if self.lease is not None:
            self._release(self.lease)
        self.lease = self.history = None
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                self.give_back(connection)

    def _release(self, lease: Lease) -> None:
        for _ in range(2):  # a broken connection may be noticed only when it is used: then try a new one
            try:
                connection = self.main()
            except psycopg.Error:
                return  # the lease expires by itself
            with suppress(psycopg.Error):
                with connection.transaction():
                    connection.execute("set local lock_timeout = '2s'")
                    release_lease(connection, lease)
                    left = [name for name in self.staging_tables(connection) if _epoch_of(name) == lease.epoch]
                for name in left:
                    self._drop_soon(connection, sql.Identifier(SCHEMA, name))
                return

    # ── this runner's own tables ─────────────────────────────────────────────────────────────────────────────────

    def own_name(self, kind: str) -> str:
        """The name, in schema deltarelay, of this runner's own table of a kind such as ``stage`` or ``load``."""
        return f"{kind}_{self._tag}_{self.require_lease().epoch}"

    def own_table(self, kind: str) -> sql.Identifier:
        return sql.Identifier(SCHEMA, self.own_name(kind))

    def drop(self, kind: str) -> None:
        with suppress(psycopg.Error):
            self.main().execute(sql.SQL("drop table if exists {}").format(self.own_table(kind)))

    def sweep(self) -> None:
        """Drop the tables of earlier runners: they belong to an epoch that can no longer commit."""
        connection, epoch = self.main(), self.require_lease().epoch
        for name in self.staging_tables(connection):
            if _epoch_of(name) < epoch:
                self._drop_soon(connection, sql.Identifier(SCHEMA, name))

    def staging_tables(self, connection: Connection) -> list[str]:
        """The names of the tables that runners of this target, dead or alive, have in our schema."""
        # Three patterns, each with a fixed beginning: PostgreSQL finds such names by an index
        patterns = [f"^{kind}_{self._tag}_\\d+$" for kind in ("stage", "ahead", "load")]
        rows = connection.execute(
            "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = %s and c.relkind = 'r' and (c.relname ~ %s or c.relname ~ %s or c.relname ~ %s) order by 1",
            [SCHEMA, *patterns],
        ).fetchall()
        return [name for (name,) in rows]

    @staticmethod
    def _drop_soon(connection: Connection, table: sql.Identifier) -> None:
        # A COPY of a dead runner's task may still lock it briefly, or another role may own it: a later run drops it
        left = (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege)
        with suppress(*left), connection.transaction():
            connection.execute("set local lock_timeout = '500ms'")
            connection.execute(sql.SQL("drop table if exists {}").format(table))

    # ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def errors(self, doing: str, explain: Callable[[str | None], CdfError | None] | None = None) -> Iterator[None]:
        """Translate psycopg's errors, which quote rows and keys, and raise ours without them in the chain.

        ``explain`` may return a more specific error for a SQLSTATE than the table in ``connectors.postgres.sqlstates``.
        """
        try:
            yield
            return
        except psycopg.Error as error:
            explained = explain(sqlstate_of(error)) if explain is not None else None
            failure = explained or translate(error, doing)
        raise_without_context(failure)

    @contextmanager
    def verify_commit(self, version: int) -> Iterator[None]:
        """Ignore an error during COMMIT if the position shows that the transaction was committed."""
        try:
            yield
        except psycopg.OperationalError as error:
            if not (sqlstate_of(error) or "").startswith(COMMIT_UNKNOWN) or not self._is_durable(version):
                raise

    def _is_durable(self, version: int) -> bool:
        lease = self.require_lease()
        with suppress(psycopg.Error):
            connection = self.main()
            with connection.transaction():
                connection.execute("set local lock_timeout = '20s'")
                # FOR UPDATE waits until the interrupted transaction has committed or rolled back
                row = connection.execute(
                    "select version, epoch from deltarelay.position where target = %s for update", [lease.target]
                ).fetchone()
            return row == (version, lease.epoch)
        return False

    def find_fencing(self) -> CdfError | None:
        """The error to raise if another runner has acquired the lease."""
        lease = self.require_lease()
        with suppress(psycopg.Error):
            if is_fenced(self.main(), lease):
                return fenced_error(lease.target)
        return None


def _epoch_of(staging_table: str) -> int:
    return int(staging_table.rsplit("_", 1)[1])


def _with_defaults(dsn: str) -> str:
    # A server that disappeared is noticed within a minute, instead of after the two hours of the system's defaults
    patience = {"connect_timeout": 10, "tcp_user_timeout": 60_000}
    patience |= {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
    return session_dsn(dsn, **patience)
