"""What PostgreSQL's storage still has of erased rows, removed for good.

Plain VACUUM makes room and leaves the bytes on their pages, and old statistics are rows of a catalog that die like others.
So a table is written anew (VACUUM FULL) where its pages still hold somebody, or where nobody can look at them; once also for
each request with a short or numeric identifier, which nobody would find there. It needs the table for itself, and gives up
soon when others are using it. VACUUM takes no rows away that an older transaction still sees:
it is waited for, and not for long either.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.erasure.sink_contract import Purged
from audit.postgres_session import PinnedConnection
from connectors.postgres.erasure.page_reader import pages_of, relations_of
from connectors.postgres.erasure.rewritten_tables import note_written, written_of
from connectors.postgres.erasure.scan import LETTERS, STATISTICS, found_in_pages, living
from connectors.postgres.target.reflection import read_column_types

if TYPE_CHECKING:
    from audit.erasure.scan.search_terms import Needles
    from connectors.postgres.client import Session
    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.options import Deletes
    from connectors.postgres.sql_parts import TargetName

__all__ = ["purge", "OUT_OF_REACH"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

LOCK_TIMEOUT = "5s"
PATIENCE_SECONDS = 15.0
"""Longer than the ten seconds after which a standby tells what it sees."""
_TRY_AGAIN = dt.timedelta(hours=1)
_TRANSACTION = (
    "the end of a transaction that is older than the erasure (pg_stat_activity, pg_replication_slots or pg_prepared_xacts "
    "shows it)"
)
OUT_OF_REACH = (
    "write-ahead log and its archive: until they are recycled",
    "base backups and dumps: until they are rotated",
    "standbys' own backups, logical subscribers and change streams of the target",
    "the server's log, where it logs statements or failing rows",
)


def purge(session: Session, columns: Columns, deletes: Deletes, needles: Needles, *, now: dt.datetime) -> Purged:
    """Takes no lease: beside a runner VACUUM does no harm. What others hold up is for the next call."""
    waits: list[str] = []
    out: list[str] = []
    written: list[TargetName] = []
    vacuumed = anew = 0
    with session.errors("purging the target"), session.connect() as connection:
        tables = [table for table in (session.target, LETTERS) if read_column_types(connection, table)]
        _await_older(connection, waits)
        # A row that goes while the table is written anew may be in it still
        left = living(connection, session.target, columns, deletes, needles) if needles.short_requests else set()
        for table in tables:
            if not _vacuumed(connection, sql.SQL("vacuum (analyze, index_cleanup on) {}").format(table.identifier)):
                out.append(f"dead rows of {table}: its owner has to VACUUM FULL it")
                continue
            vacuumed += 1
            if _holds(connection, table, needles) and _anew(connection, table, waits):
                anew += 1
                written.append(table)
            _refresh_statistics(connection, table)
        for table in STATISTICS:
            if _holds(connection, table, needles):
                if not _superuser(connection):
                    out.append(f"dead rows of {table} (old statistics): a superuser has to VACUUM FULL it")
                elif _anew(connection, table, waits):
                    anew += 1
                    written.append(table)
        if written and needles.short_requests and _TRANSACTION not in waits:  # VACUUM FULL takes along what that sees
            gone = needles.short_requests - left - living(connection, session.target, columns, deletes, needles)
            for table in written:
                note_written(connection, table, gone)
    waits_for = "; ".join(dict.fromkeys(waits)) or None
    log.info("purged", extra={"target": str(session.target), "tables_anew": anew, "waits_for": waits_for})
    return Purged(
        done={"tables vacuumed": vacuumed, "tables written anew": anew},
        waits_until=now + _TRY_AGAIN if waits else None,
        waits_for=waits_for,
        out_of_reach=(*out, *OUT_OF_REACH),
    )


def _await_older(connection: Connection, waits: list[str]) -> None:
    """Whoever began before the rows were deleted may still see them, and they stay for it."""
    row = connection.execute("select pg_current_xact_id()::text").fetchone()
    assert row is not None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = connection.execute(_OLDER, {"now": row[0]}).fetchone()
        if found == (0,):
            return
        if time.monotonic() > deadline:
            waits.append(_TRANSACTION)
            return
        time.sleep(0.2)


_OLDER = """
with horizon (xmin) as (
    select backend_xmin from pg_stat_activity
     where pid <> pg_backend_pid() and (datname = current_database() or backend_type = 'walsender')
    union all select xmin from pg_replication_slots
    union all select transaction from pg_prepared_xacts where database = current_database()
)
select count(*) from horizon where xmin is not null and age(xmin) > age((%(now)s::numeric %% 4294967296)::text::xid)
"""


def _vacuumed(connection: PinnedConnection, statement: sql.Composed) -> bool:
    """Of a table that the role may not vacuum, PostgreSQL only warns."""
    try:
        with _warnings(connection) as states:
            connection.execute_alone(statement)
    except psycopg.errors.InsufficientPrivilege:  # of the schema
        return False
    return not states


@contextmanager
def _warnings(connection: Connection) -> Iterator[list[str | None]]:
    states: list[str | None] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            states.append(notice.sqlstate)

    connection.add_notice_handler(note)
    try:
        yield states
    finally:
        connection.remove_notice_handler(note)


def _anew(connection: PinnedConnection, table: TargetName, waits: list[str]) -> bool:
    if _TRANSACTION in waits:
        return False  # it would copy the dead rows along
    connection.execute_alone(sql.SQL("set lock_timeout = {}").format(sql.Literal(LOCK_TIMEOUT)))
    try:
        return _vacuumed(connection, sql.SQL("vacuum (full) {}").format(table.identifier))
    except psycopg.errors.LockNotAvailable:
        waits.append(f"a moment when nobody uses {table}: VACUUM FULL needs it alone")
        return False
    finally:
        connection.execute_alone("reset lock_timeout")


def _holds(connection: Connection, table: TargetName, needles: Needles) -> bool:
    """Whether its pages still hold somebody, as far as anyone can tell: large values are compressed there, and short
    identifiers could be anything."""
    if needles.short_requests - written_of(connection, table):
        return True
    pages = pages_of(connection)
    if isinstance(pages, str) or any(True for _ in found_in_pages(connection, pages, table, needles)):
        return True
    if table in STATISTICS:
        return False
    relations = relations_of(connection, table.schema, table.table)
    return any(relation.toast and any(pages(relation)) for relation in relations)


def _superuser(connection: Connection) -> bool:
    return connection.execute("select current_setting('is_superuser')").fetchone() == ("on",)


def _refresh_statistics(connection: Connection, table: TargetName) -> None:
    """ANALYZE leaves the old statistics of a table without rows, and of columns that it is told to leave alone."""
    oids = [one.oid for one in relations_of(connection, table.schema, table.table)]
    with connection.transaction():
        if connection.info.server_version >= 180000:
            connection.execute(
                "select pg_clear_attribute_stats(v.schemaname, v.tablename, v.attname, v.inherited) from pg_stats v "
                "join pg_class c on c.relname = v.tablename join pg_namespace n on n.oid = c.relnamespace "
                "where n.nspname = v.schemaname and c.oid = any(%s)",
                [oids],
            )
        elif _superuser(connection):
            connection.execute("delete from pg_catalog.pg_statistic where starelid = any(%s)", [oids])
        if _superuser(connection):
            connection.execute(
                "delete from pg_catalog.pg_statistic_ext_data d using pg_catalog.pg_statistic_ext e "
                "where e.oid = d.stxoid and e.stxrelid = any(%s)",
                [oids],
            )
        connection.execute(sql.SQL("analyze {}").format(table.identifier))
