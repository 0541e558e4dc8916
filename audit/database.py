"""State in a schema of PostgreSQL: one transaction at a time, and whatever goes wrong told in our words.

A server's messages quote rows, and those of a failed login users and addresses: of both only SQLSTATE and the name of the
condition are kept. One transaction per connection, which is all that PgBouncer's transaction mode allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from audit.errors import raise_without_context
from cdf.errors import CdfError, ConfigError, SinkUnavailable

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["Database", "DatabaseMissing", "LoginRefused", "Transaction", "jsonb"]

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 60
IDLE_SECONDS = 15
"""A process that freezes inside a transaction holds its rows no longer than this; whoever waits for them waits longer."""
LOCK_SECONDS = 20

# Nothing has to be changed, and a later try may succeed: connection, serialization, resources, shutdown, the system's files
_PASSES = ("08", "40", "53", "57", "58", "55P03", "25006", "25P03", "25P04")
_ABSENT = ("42P01", "3F000")
# A login that fails has no SQLSTATE in libpq, only words: its own, and an English server's
_MALFORMED = re.compile(r"invalid \w+ (value|number)")
_NO_DATABASE = re.compile(r"database .* does not exist")
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist|"
    r"not permitted to log in|certificate|does not support SSL"
)


class LoginRefused(ConfigError):
    code = "login_refused"


class DatabaseMissing(ConfigError):
    code = "database_missing"


class Transaction:
    """``{request}`` in a statement stands for that table of the schema. Values are bound, never part of the text."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, tables: Iterable[str]) -> None:
        self._connection, self._schema, self._tables = connection, schema, tables

    def execute(self, statement: str, values: Sequence[Any] | None = None) -> psycopg.Cursor[Any]:
        return self._connection.execute(self._text(statement), values)

    def copy_out(self, statement: str) -> Iterator[bytes]:
        """``copy … to stdout``, see ``copy_out``."""
        from audit.postgres_session import copy_out

        return copy_out(self._connection, self._text(statement))

    def _text(self, statement: str) -> sql.Composed:
        from psycopg import sql

        names = {table: sql.Identifier(self._schema, table) for table in self._tables}
        return sql.SQL(statement).format(schema=sql.Identifier(self._schema), **names)

    def row(self, statement: str, values: Sequence[Any] | None = None) -> tuple[Any, ...] | None:
        return self.execute(statement, values).fetchone()

    def rows(self, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return self.execute(statement, values).fetchall()

    def count(self, statement: str, values: Sequence[Any] | None = None) -> int:
        return self.execute(statement, values).rowcount


def jsonb(value: Mapping[str, Any]) -> Any:
    """A parameter for a column of that type."""
    from psycopg.types.json import Jsonb

    return Jsonb(dict(value))


class Database:
    """``what``: what the schema keeps, in words. ``definitions``: by table, in the order in which they are made, with
    ``{schema}`` and ``{<table>}`` for the names. ``made_by``: the command that makes them."""

    def __init__(self, dsn: str, schema: str, *, what: str, definitions: Mapping[str, str], made_by: str) -> None:
        self._dsn, self._schema = dsn, schema
        self._definitions, self._made_by = definitions, made_by
        self.name = f"{what} {schema}"

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Committed where the block ends well. Whatever psycopg raises inside comes out in our words."""
        with self._transaction("READ_COMMITTED", STATEMENT_SECONDS, IDLE_SECONDS) as work:
            yield work

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """All tables as they are now, to read for as long as it takes; others go on writing meanwhile."""
        with self._transaction("REPEATABLE_READ", 0, 0) as work:
            yield work

    @contextmanager
    def _transaction(self, isolation: str, statement_seconds: int, idle_seconds: int) -> Iterator[Transaction]:
        import psycopg

        from audit.postgres_session import connect

        try:
            with connect(self._conninfo()) as connection:
                connection.isolation_level = psycopg.IsolationLevel[isolation]
                connection.execute(
                    f"set local lock_timeout = '{LOCK_SECONDS}s';"
                    f"set local statement_timeout = '{statement_seconds}s';"
                    f"set local idle_in_transaction_session_timeout = '{idle_seconds}s';"
                    "set local synchronous_commit = on"
                )
                yield Transaction(connection, self._schema, self._definitions)
                return
        except psycopg.Error as error:
            failure = self._in_words(error)
        raise_without_context(failure)

    def prepare(self) -> None:
        """Make what is missing. Asks for the right to create only where something is."""
        with self.transaction() as work:
            if not self._missing(work):
                return
            work.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [self.name])
            if work.row("select from pg_namespace where nspname = %s", [self._schema]) is None:
                work.execute("create schema {schema}")
            for table in self._missing(work):  # still, now that nobody else is at it
                work.execute(self._definitions[table])

    def missing(self) -> list[str]:
        """The tables that are not there."""
        with self.transaction() as work:
            return self._missing(work)

    def _missing(self, work: Transaction) -> list[str]:
        there = work.rows("select tablename from pg_tables where schemaname = %s", [self._schema])
        return [table for table in self._definitions if (table,) not in there]

    def _conninfo(self) -> str:
        from audit.postgres_session import session_dsn

        # A server that vanished is noticed soon, instead of after the two hours of the system's defaults
        patience = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 15_000}
        patience |= {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
        return session_dsn(self._dsn, **patience)

    def _in_words(self, error: psycopg.Error) -> CdfError:
        import psycopg

        state, what = error.sqlstate, self.name
        if state is None and isinstance(error, psycopg.DataError):
            return ConfigError(f"{what}: a text that PostgreSQL cannot hold", hint="no text holds the character NUL")
        if state is None and (isinstance(error, psycopg.ProgrammingError) or _MALFORMED.search(str(error))):
            return ConfigError(f"{what}: its dsn cannot be read", hint="postgresql://user@host/database")
        if state is None and _NO_DATABASE.search(str(error)):
            return DatabaseMissing(
                f"{what}: the server has no database of that name", hint="check the database in its dsn"
            )
        if state is None and _REFUSED.search(str(error)):
            return LoginRefused(
                f"{what}: the server refuses the login, or is not the one that the dsn trusts",
                hint="check user, password, database and sslmode in its dsn, and pg_hba.conf on the server",
            )
        if state is None or state.startswith(_PASSES):
            return SinkUnavailable(
                f"{what} cannot be reached now" + (f" ({type(error).__name__})" if state else ""),
                hint="run again when the database can be reached: it goes on where it stood",
                condition=state,
            )
        if state in _ABSENT:
            return ConfigError(
                f"{what} is not there, or not all of it",
                hint=f"`{self._made_by}` makes it, under a role that may create the schema",
                condition=state,
            )
        return ConfigError(
            f"{what}: the database refuses ({type(error).__name__})",
            hint="its role needs select, insert, update and delete on the schema's tables, and CREATE to make them",
            condition=state,
        )
