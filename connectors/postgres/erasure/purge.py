"""Removes erased rows from PostgreSQL's storage for good.

Plain VACUUM frees the space of dead rows and leaves their bytes on the pages; old planner statistics are dead rows of a
catalog. So a table is rewritten (VACUUM FULL) where its pages still contain a person's data or cannot be read, and once for
each request with a short or numeric identifier, which cannot be found in pages. VACUUM FULL needs an exclusive lock and
gives up soon when the table is in use. VACUUM removes no rows that an older transaction still sees: the purge waits a short
time for it.
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

from audit.erasure.sink_contract import PurgeResult
from audit.postgres_session import PinnedConnection
from connectors.postgres.erasure.page_reader import pages_of, relations_of
from connectors.postgres.erasure.rewritten_tables import record_rewrite, rewritten_for
from connectors.postgres.erasure.scan import LETTERS, STATISTICS, find_in_pages, find_in_rows
from connectors.postgres.state.migrations import refuse_newer_state
from connectors.postgres.target.reflection import read_column_types

if TYPE_CHECKING:
    from audit.erasure.scan.search_terms import SearchTerms
    from connectors.postgres.erasure.target import ErasureTarget
    from connectors.postgres.sql_parts import TargetName

__all__ = ["purge", "OUT_OF_REACH"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

LOCK_TIMEOUT = "5s"
PATIENCE_SECONDS = 15.0
"""Longer than the ten seconds after which a standby reports its oldest transaction."""
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


def purge(target: ErasureTarget, terms: SearchTerms, *, now: dt.datetime) -> PurgeResult:
    """Needs no lease: VACUUM is safe beside a runner. What other sessions block is left to the next call."""
    session, name = target.session, target.name
    waits: list[str] = []
    out: list[str] = []
    rewritten: list[TargetName] = []
    vacuumed = 0
    with session.errors("purging the target"), session.connect() as connection:
        refuse_newer_state(connection)
        tables = [table for table in (name, LETTERS) if read_column_types(connection, table)]
        _await_older_transactions(connection, waits)
        # A row that is deleted while its table is rewritten may still be in the new files
        before = find_in_rows(connection, target, terms) if terms.short_requests else set()
        for table in tables:
            if not _vacuum(connection, sql.SQL("vacuum (analyze, index_cleanup on) {}").format(table.identifier)):
                out.append(f"dead rows of {table}: its owner must run VACUUM FULL on it")
                continue
            vacuumed += 1
            if _may_hold_data(connection, table, terms) and _rewrite(connection, table, waits):
                rewritten.append(table)
            _refresh_statistics(connection, table)
        for table in STATISTICS:
            if _may_hold_data(connection, table, terms):
                if not _is_superuser(connection):
                    out.append(f"dead rows of {table} (old statistics): a superuser must run VACUUM FULL on it")
                elif _rewrite(connection, table, waits):
                    rewritten.append(table)
        # VACUUM FULL copies the dead rows that an older transaction sees
        if rewritten and terms.short_requests and _TRANSACTION not in waits:
            gone = terms.short_requests - before - find_in_rows(connection, target, terms)
            for table in rewritten:
                record_rewrite(connection, table, gone)
    waits_for = "; ".join(dict.fromkeys(waits)) or None
    log.info("purged", extra={"target": str(name), "tables_anew": len(rewritten), "waits_for": waits_for})
    return PurgeResult(
        done={"tables vacuumed": vacuumed, "tables written anew": len(rewritten)},
        waits_until=now + _TRY_AGAIN if waits else None,
        waits_for=waits_for,
        out_of_reach=(*out, *OUT_OF_REACH),
    )


def _await_older_transactions(connection: Connection, waits: list[str]) -> None:
    """Wait until no transaction is left that began before the rows were deleted: it may see them, and keeps them alive."""
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


def _vacuum(connection: PinnedConnection, statement: sql.Composed) -> bool:
    """Return whether the table was vacuumed: for a table that the role may not vacuum, PostgreSQL only issues a warning."""
    try:
        with _warnings_of(connection) as states:
            connection.execute_alone(statement)
    except psycopg.errors.InsufficientPrivilege:  # of the schema
        return False
    return not states


@contextmanager
def _warnings_of(connection: Connection) -> Iterator[list[str | None]]:
    states: list[str | None] = []

    def collect(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            states.append(notice.sqlstate)

    connection.add_notice_handler(collect)
    try:
        yield states
    finally:
        connection.remove_notice_handler(collect)


def _rewrite(connection: PinnedConnection, table: TargetName, waits: list[str]) -> bool:
    if _TRANSACTION in waits:
        return False  # VACUUM FULL would copy the dead rows
    connection.execute_alone(sql.SQL("set lock_timeout = {}").format(sql.Literal(LOCK_TIMEOUT)))
    try:
        return _vacuum(connection, sql.SQL("vacuum (full) {}").format(table.identifier))
    except psycopg.errors.LockNotAvailable:
        waits.append(f"a moment when no session uses {table}: VACUUM FULL needs an exclusive lock")
        return False
    finally:
        connection.execute_alone("reset lock_timeout")


def _may_hold_data(connection: Connection, table: TargetName, terms: SearchTerms) -> bool:
    """Return whether the table's pages may still contain data of the requests. Compressed large values and short identifiers
    cannot be searched in pages, so they count as present."""
    if terms.short_requests - rewritten_for(connection, table):
        return True
    pages = pages_of(connection)
    if isinstance(pages, str) or any(True for _ in find_in_pages(connection, pages, table, terms)):
        return True
    if table in STATISTICS:
        return False
    relations = relations_of(connection, table.schema, table.table)
    return any(relation.toast and any(pages(relation)) for relation in relations)


def _is_superuser(connection: Connection) -> bool:
    return connection.execute("select current_setting('is_superuser')").fetchone() == ("on",)


def _refresh_statistics(connection: Connection, table: TargetName) -> None:
    """Remove old statistics: ANALYZE keeps those of a table without rows, and of columns with a statistics target of 0."""
    oids = [one.oid for one in relations_of(connection, table.schema, table.table)]
    with connection.transaction():
        if connection.info.server_version >= 180000:
            connection.execute(
                "select pg_clear_attribute_stats(v.schemaname, v.tablename, v.attname, v.inherited) from pg_stats v "
                "join pg_class c on c.relname = v.tablename join pg_namespace n on n.oid = c.relnamespace "
                "where n.nspname = v.schemaname and c.oid = any(%s)",
                [oids],
            )
        elif _is_superuser(connection):
            connection.execute("delete from pg_catalog.pg_statistic where starelid = any(%s)", [oids])
        if _is_superuser(connection):
            connection.execute(
                "delete from pg_catalog.pg_statistic_ext_data d using pg_catalog.pg_statistic_ext e "
                "where e.oid = d.stxoid and e.stxrelid = any(%s)",
                [oids],
            )
        connection.execute(sql.SQL("analyze {}").format(table.identifier))
