"""Our own state in a schema of PostgreSQL: transactions, migrations, and errors of psycopg as our own errors.

A server's messages quote rows, and those of a failed login users and addresses: only SQLSTATE and the name of the condition
are passed on. There is one transaction per connection, because PgBouncer's transaction mode allows no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from audit.errors import raise_without_context
from audit.migrations import Migrations
from cdf.errors import CdfError, ConfigError, SinkUnavailable

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["Database", "DatabaseMissing", "LoginRefused", "MissingTables", "Transaction", "jsonb"]

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 60
IDLE_SECONDS = 15
"""A process that freezes inside a transaction keeps its locks no longer than this, which is less than ``LOCK_SECONDS``."""
LOCK_SECONDS = 20

# Temporary conditions: connection, serialization, resources, shutdown, system errors
_TEMPORARY = ("08", "40", "53", "57", "58", "55P03", "25006", "25P03", "25P04")
_ABSENT = ("42P01", "3F000")
# libpq has no SQLSTATE for a failed login, only messages: its own, and those of an English server
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
    """A transaction. ``{request}`` in a statement is the table of that name in the schema; values are always
    bound."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, tables: Iterable[str]) -> None:
        self._connection, self._schema, self._tables = connection, schema, tables

    def execute(self, statement: str, values: Sequence[Any] | None = None) -> psycopg.Cursor[Any]:
        return self._connection.execute(self._text(statement), values)

    def copy_out(self, statement: str) -> Iterator[bytes]:
        """Run ``copy … to stdout``; see ``postgres_session.copy_out``."""
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


class MissingTables(NamedTuple):
    tables: list[str]
    version: int
    """The version of the schema. Every table of its migrations was there once."""


def jsonb(value: Mapping[str, Any]) -> Any:
    """A parameter for a column of type jsonb."""
    from psycopg.types.json import Jsonb

    return Jsonb(dict(value))


class Database:
    """A schema with tables of ours. ``made_by``: the command that creates the tables.

    The first transaction raises StateTooNew where a newer release has migrated the schema.
    """

    def __init__(self, dsn: str, migrations: Migrations, *, made_by: str) -> None:
        self._dsn, self._migrations, self._made_by = dsn, migrations, made_by
        self._has_known_version = False
        self.name = f"{migrations.what} {migrations.schema}"

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commit when the block ends without an error. Errors of psycopg are raised as our own errors."""
        with self._connected("READ_COMMITTED", STATEMENT_SECONDS, IDLE_SECONDS) as connection:
            yield self._begin(connection)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Read all tables in their present state, without a time limit; other sessions can write meanwhile."""
        with self._connected("REPEATABLE_READ", 0, 0) as connection:
            yield self._begin(connection)

    def _begin(self, connection: psycopg.Connection[Any]) -> Transaction:
        if not self._has_known_version:
            self._migrations.read_state(connection)
            self._has_known_version = True
        return Transaction(connection, self._migrations.schema, self._migrations.tables)

    @contextmanager
    def _connected(
        self, isolation: str, statement_seconds: int, idle_seconds: int
    ) -> Iterator[psycopg.Connection[Any]]:
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
                yield connection
                return
        except psycopg.Error as error:
            failure = self._translate(error)
        raise_without_context(failure)

    def prepare(self) -> None:
        """Run pending migrations, which create the tables. Needs the right to create only if one is pending."""
        with self._connected("READ_COMMITTED", 0, IDLE_SECONDS) as connection:
            self._migrations.apply(connection)

    def find_pending(self) -> tuple[str, ...] | None:
        """The statements that ``prepare`` would run; None where the schema has no tables yet. Raises ConfigError where the
        role may not use the schema: its version is unknown."""
        with self._connected("READ_COMMITTED", STATEMENT_SECONDS, IDLE_SECONDS) as connection:
            state = self._migrations.read_state(connection)
            if state.has_schema and not state.may_use:
                raise ConfigError(
                    f"the version of {self.name} cannot be read: the role may not use the schema",
                    hint=f"grant usage on schema {self._migrations.schema} to the role",
                )
            return self._migrations.pending(connection) if state.objects else None

    def find_missing(self) -> MissingTables:
        with self._connected("READ_COMMITTED", STATEMENT_SECONDS, IDLE_SECONDS) as connection:
            state = self._migrations.read_state(connection)
        return MissingTables([table for table in self._migrations.tables if table not in state.objects], state.version)

    def _conninfo(self) -> str:
        from audit.postgres_session import session_dsn

        # A lost server is noticed within seconds, not after the two hours of the system's defaults
        timeouts = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 15_000}
        timeouts |= {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
        return session_dsn(self._dsn, **timeouts)

    def _translate(self, error: psycopg.Error) -> CdfError:
        import psycopg

        state, name = error.sqlstate, self.name
        if state is None and isinstance(error, psycopg.DataError):
            return ConfigError(f"{name}: a text that PostgreSQL cannot store", hint="text must not contain NUL")
        if state is None and (isinstance(error, psycopg.ProgrammingError) or _MALFORMED.search(str(error))):
            return ConfigError(f"{name}: its dsn is malformed", hint="postgresql://user@host/database")
        if state is None and _NO_DATABASE.search(str(error)):
            return DatabaseMissing(
                f"{name}: the server has no database of that name", hint="check the database in its dsn"
            )
        if state is None and _REFUSED.search(str(error)):
            return LoginRefused(
                f"{name}: the server refused the login, or its certificate is not trusted",
                hint="check user, password, database and sslmode in its dsn, and pg_hba.conf on the server",
            )
        if state is None or state.startswith(_TEMPORARY):
            return SinkUnavailable(
                f"{name} cannot be reached" + (f" ({type(error).__name__})" if state else ""),
                hint="run again when the database can be reached: the command continues where it stopped",
                condition=state,
            )
        if state in _ABSENT:
            return ConfigError(
                f"{name} does not exist, or is incomplete",
                hint=f"`{self._made_by}` creates it, as a role that may create the schema",
                condition=state,
            )
        return ConfigError(
            f"{name}: the database refused the statement ({type(error).__name__})",
            hint="the role needs select, insert, update and delete on the schema's tables, and CREATE to create them",
            condition=state,
        )
