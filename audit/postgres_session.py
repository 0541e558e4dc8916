"""Opens every session with PostgreSQL, so that none depends on settings of a role, a database or a dsn.

The settings of a session decide how the server prints dates, numbers and bytes, reads literals and finds functions. Each
transaction of a ``PinnedConnection`` therefore begins by setting all of these for itself (``SETTINGS``). It does so for the
transaction, not for the session: PgBouncer's transaction mode would pass a session's settings on to other clients, and
refuses most of them as start-up options. The encoding is the exception: it is a parameter of the connection, which PgBouncer
knows; a binary COPY (ADBC) depends on no other setting. Transactions are READ COMMITTED, unless the caller sets another
level.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel, pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

__all__ = ["SETTINGS", "PinnedConnection", "connect", "copy_out", "session_dsn"]

SETTINGS = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "xmlbinary": "base64",
    "xmloption": "content",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "transform_null_equals": "off",
}
"""Mostly PostgreSQL's defaults, because triggers and default values of the target see these settings as well."""

# Nothing in the role's search_path may take the place of a function, type or catalog of the server, which is searched first
# where the path does not name it. The rest of the path stays: it leads to what the target's triggers use, and to extensions.
# An overload there that fits the arguments better is still chosen: keys are compared by an operator with its schema
_SEARCH_PATH = (
    "select pg_catalog.concat_ws(', ', pg_catalog.string_agg(pg_catalog.quote_ident(s::pg_catalog.text), ', ' order by n), "
    "'pg_temp') from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality as p (s, n) "
    "where s operator(pg_catalog.<>) 'pg_catalog'"
)
_PIN = "select {}, pg_catalog.set_config('search_path', ({}), true)".format(
    ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in SETTINGS.items()), _SEARCH_PATH
)


class PinnedConnection(psycopg.Connection[Any]):
    """A connection whose transactions begin with ``SETTINGS``. A statement outside a transaction gets its own."""

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[psycopg.Transaction]:
        is_outermost = self._is_idle()
        with super().transaction(savepoint_name, force_rollback) as transaction:
            if is_outermost:
                super().execute(_PIN)
            yield transaction

    def execute(self, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor[Any]:
        if not self._is_idle():
            return super().execute(query, params, **options)
        if self.autocommit:
            with self.transaction():
                return super().execute(query, params, **options)
        super().execute(_PIN)
        return super().execute(query, params, **options)

    def execute_alone(self, query: Any) -> None:
        """Run a statement that is not allowed in a transaction, such as VACUUM. ``SETTINGS`` do not matter to these."""
        super().execute(query)

    def _is_idle(self) -> bool:
        return self.info.transaction_status == pq.TransactionStatus.IDLE


def connect(dsn: str, *, autocommit: bool = False) -> PinnedConnection:
    # Prepared statements belong to a session, which PgBouncer's transaction mode does not keep
    connection = PinnedConnection.connect(session_dsn(dsn), autocommit=autocommit, prepare_threshold=None)
    # With a role's default of REPEATABLE READ, queries under a lock would read the state from before the lock
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    return connection


def copy_out(connection: psycopg.Connection[Any], query: sql.Composed) -> Iterator[bytes]:
    """Yield the parts of ``copy … to stdout``. If the caller stops early, the rest is read and dropped: a COPY that is not
    read to its end aborts its transaction."""
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        try:
            for part in copy:
                yield bytes(part)
        except GeneratorExit:
            for _ in copy:
                pass
            raise


def session_dsn(dsn: str, **defaults: str | int) -> str:
    """The dsn with these defaults, and with the encoding UTF-8."""
    parts: dict[str, Any] = {"application_name": "deltarelay", **defaults, **conninfo_to_dict(dsn)}
    return make_conninfo("", **{**parts, "client_encoding": "utf8"})
