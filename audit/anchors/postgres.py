"""An anchor in an append-only table of PostgreSQL, ideally under another owner."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from audit.anchors.base import LARGEST_NOTE, check_stored, larger_checkpoint_exists, parse_note
from audit.errors import AnchorUnavailable, raise_without_context
from cdf.errors import CdfError, ConfigError

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["SCHEMA", "PostgresAnchor", "statements"]

SCHEMA = "deltarelay_anchor"
CONNECT_SECONDS = 5
LOCK_SECONDS = 5
STATEMENT_SECONDS = 15
ANSWER_SECONDS = 60
"""Timeout of one answer, measured by the client: a suspended server does not enforce its own timeouts."""

_SHRINKS = "DR001"
_DEFINITION = """\
create schema if not exists {schema};

create table {table} (
    origin text collate "C" not null,
    size bigint not null check (size >= 0),
    note text not null check (starts_with(note, origin || chr(10) || size::text || chr(10))),
    published_at timestamptz not null,
    published_by text not null,
    primary key (origin, size)
);

create function {schema}.only_grows() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'checkpoints are taken in read committed transactions, which see what others have committed'
            using errcode = 'feature_not_supported';
    end if;
    -- One at a time for each origin: the next one waits here, and then sees what this one has kept
    perform pg_advisory_xact_lock(hashtextextended(new.origin, tg_relid::bigint));
    if exists (select from {table} where origin = new.origin and size > new.size)
        and not exists (select from {table} where origin = new.origin and size = new.size) then
        raise exception 'there is a larger checkpoint already, and none of this size' using errcode = 'DR001';
    end if;
    new.published_at := clock_timestamp();
    new.published_by := session_user;
    return new;
end
$$;

create function {schema}.never_changes() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'checkpoints are neither altered nor removed';
end
$$;

create trigger only_grows before insert on {table} for each row execute function {schema}.only_grows();
create trigger never_changes before update or delete or truncate on {table}
    for each statement execute function {schema}.never_changes();
"""
_GRANTS = """\
revoke all on schema {schema} from {role};
revoke all on {table} from {role};
grant usage on schema {schema} to {role};
grant {rights} on {table} to {role};
"""

# Temporary conditions: connection, serialization, resources, shutdown, system errors
_TEMPORARY = ("08", "40", "53", "57", "58", "55P03", "25006", "25P03", "25P04")
# libpq has no SQLSTATE for a failed login, only messages: its own, and those of an English server
_MALFORMED = re.compile(r"invalid \w+ (value|number)")
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(role|database) .* does not exist|"
    r"not permitted to log in|certificate|does not support SSL"
)

log = logging.getLogger(__name__)


def statements(schema: str = SCHEMA, *, writer: str | None = None, reader: str | None = None) -> str:
    """Return the SQL that creates an anchor. An administrator runs it once, as a role that ``writer`` cannot become.

    ``writer``: the role that publishes; it may insert and read. ``reader``: a role that may only read.
    """
    roles = {name: rights for name, rights in ((writer, "select, insert"), (reader, "select")) if name}
    grants = [_sql(_GRANTS, schema, role=role, rights=rights) for role, rights in roles.items()]
    return "\n".join(
        ["begin;", *(statement.as_string() for statement in (_sql(_DEFINITION, schema), *grants)), "commit;\n"]
    )


class PostgresAnchor:
    """A row per checkpoint in ``<schema>.checkpoint``, with the server's time and the role that published it.

    The server refuses every change that would alter or shrink a trail, by access rights and by triggers. If the table is
    missing, the first checkpoint creates it, as far as the role may: but then the role owns the table, and an owner can
    drop the triggers.
    """

    def __init__(self, dsn: str, *, schema: str = SCHEMA) -> None:
        self._dsn, self._schema = dsn, schema
        self._name = f"{schema} in PostgreSQL"

    def publish(self, origin: str, note: str) -> None:
        checkpoint = parse_note(origin, note)
        with self._connected() as (connection, _):
            if self._missing(connection):
                self._create(connection)
            try:
                statement = "insert into {table} (origin, size, note) values (%s, %s, %s) on conflict do nothing"
                connection.execute(_sql(statement, self._schema), [origin, checkpoint.size, note])
            except connection.Error as error:
                if error.sqlstate != _SHRINKS:
                    raise
                raise_without_context(larger_checkpoint_exists(self._name, checkpoint))
            query = "select {note} from {table} where origin = %s and size = %s"
            ((kept,),) = connection.execute(_sql(query, self._schema), [origin, checkpoint.size])
            check_stored(self._name, checkpoint, kept)

    def latest(self, origin: str) -> str | None:
        with self._connected() as (connection, _):
            if self._missing(connection):
                return None
            query = "select {note} from {table} where origin = %s order by size desc limit 1"
            return next((note for (note,) in connection.execute(_sql(query, self._schema), [origin])), None)

    def notes(self, origin: str, *, least: int = 0) -> Iterator[str]:
        with self._connected() as (connection, timeout), connection.cursor("notes") as cursor:
            if self._missing(connection):
                return
            query = "select {note} from {table} where origin = %s and size >= %s order by size"
            for (note,) in cursor.execute(_sql(query, self._schema), [origin, least]):
                timeout.restart()
                yield note

    @contextmanager
    def _connected(self) -> Iterator[tuple[psycopg.Connection[Any], _AnswerTimeout]]:
        """Open a transaction. Errors of psycopg are raised as our own errors."""
        import psycopg

        from audit.postgres_session import connect

        try:
            opened = connect(self._conninfo())
            with _AnswerTimeout(opened.fileno()) as timeout, opened as connection:  # covers the commit as well
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                connection.execute(
                    f"set local lock_timeout = '{LOCK_SECONDS}s';"
                    f"set local statement_timeout = '{STATEMENT_SECONDS}s';"
                    "set local synchronous_commit = on"
                )
                yield connection, timeout
                return
        except psycopg.Error as error:
            failure = self._translate(error)
        raise_without_context(failure)

    def _conninfo(self) -> str:
        from audit.postgres_session import session_dsn

        # A server that vanished is noticed soon, instead of after the two hours of the system's defaults
        timeout = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 1000 * STATEMENT_SECONDS}
        timeout |= {"keepalives_idle": STATEMENT_SECONDS, "keepalives_interval": 5, "keepalives_count": 3}
        return session_dsn(self._dsn, **timeout)

    def _missing(self, connection: psycopg.Connection[Any]) -> bool:
        # Not to_regclass: after the wait for a lock it may still say what its cache held before
        query = "select from pg_tables where schemaname = %s and tablename = 'checkpoint'"
        return connection.execute(query, [self._schema]).fetchone() is None

    def _create(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [self._schema])
        if self._missing(connection):  # again, now under the lock
            connection.execute(_sql(_DEFINITION, self._schema))
            log.warning(
                "anchor created by the publishing role, which can therefore alter it",
                extra={"anchor": self._name},
            )

    def _translate(self, error: psycopg.Error) -> CdfError:
        import psycopg

        state, anchor = error.sqlstate, f"the anchor {self._name}"
        if state is None and (isinstance(error, psycopg.ProgrammingError) or _MALFORMED.search(str(error))):
            return ConfigError(
                f"{anchor}: its dsn is malformed", hint="postgresql://user@host/database", anchor=self._name
            )
        if state is None and _REFUSED.search(str(error)):
            return ConfigError(
                f"{anchor}: the server refused the login, or its certificate is not trusted",
                hint="check user, password, database and sslmode in its dsn, and pg_hba.conf on the server",
                anchor=self._name,
            )
        if state is None or state.startswith(_TEMPORARY):
            return AnchorUnavailable(
                f"{anchor} cannot be reached now" + (f" ({type(error).__name__})" if state else ""),
                hint="publish again when the server accepts connections and writes; checkpoints stored already do no harm",
                condition=state,
                anchor=self._name,
            )
        return ConfigError(
            f"{anchor} refused the request ({type(error).__name__})",
            hint="an administrator must create it once: docs/how-to/anchor-checkpoints.md has the statements and the rights",
            condition=state,
            anchor=self._name,
        )


class _AnswerTimeout(threading.Thread):
    """Shuts down a connection that has not answered for ``ANSWER_SECONDS``, so that the waiting statement fails.

    psycopg waits without a limit, and a suspended server does not enforce its own timeouts.
    """

    def __init__(self, handle: int) -> None:
        super().__init__(daemon=True)
        self._socket, self._stopped, self._since = socket.socket(fileno=os.dup(handle)), threading.Event(), 0.0

    def restart(self) -> None:
        self._since = time.monotonic()

    def __enter__(self) -> _AnswerTimeout:
        self.restart()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        with self._socket:
            while not self._stopped.wait(1):
                if time.monotonic() - self._since > ANSWER_SECONDS:
                    with suppress(OSError):
                        self._socket.shutdown(socket.SHUT_RDWR)
                    return


def _sql(text: str, schema: str, *, role: str = "", rights: str = "") -> sql.Composed:
    from psycopg import sql

    names = {
        "schema": sql.Identifier(schema),
        "table": sql.Identifier(schema, "checkpoint"),
        "role": sql.Identifier(role),
    }
    # Of a huge value only the beginning is read
    note = sql.SQL("left(note, {})").format(sql.Literal(LARGEST_NOTE))
    return sql.SQL(text).format(**names, rights=sql.SQL(rights), note=note)
