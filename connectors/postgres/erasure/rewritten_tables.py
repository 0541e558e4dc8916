"""For which requests a table was rewritten after the erasure: short identifiers cannot be searched in its pages.

``deltarelay.written_anew`` has a row for each table and request, from the purge that rewrote the table until the request
is erased again. It has none for a request that still had live rows then: these may become dead rows later.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from connectors.postgres.sql_parts import TargetName

__all__ = ["forget_rewrites", "record_rewrite", "rewritten_for"]

Connection = psycopg.Connection[Any]

CREATE = """\
create table if not exists deltarelay.written_anew (
    relation   text not null,
    request    text not null,
    written_at timestamptz not null default clock_timestamp(),
    primary key (relation, request)
)"""


def rewritten_for(connection: Connection, table: TargetName) -> frozenset[str]:
    """Return the requests that have no data in the table's pages."""
    if not _may_use(connection):
        return frozenset()
    rows = connection.execute("select request from deltarelay.written_anew where relation = %s", [str(table)])
    return frozenset(request for (request,) in rows)


def record_rewrite(connection: Connection, table: TargetName, requests: Collection[str]) -> None:
    """Record that the table was rewritten. Where the role may not, the scan reports the pages as not searched."""
    if not requests:
        return
    with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName):
        connection.execute(CREATE)
        connection.execute(
            "insert into deltarelay.written_anew (relation, request) select %s, unnest(%s::text[]) "
            "on conflict (relation, request) do update set written_at = excluded.written_at",
            [str(table), sorted(requests)],
        )


def forget_rewrites(connection: Connection, requests: Collection[str]) -> None:
    if _may_use(connection):
        connection.execute("delete from deltarelay.written_anew where request = any(%s)", [sorted(requests)])


def _may_use(connection: Connection) -> bool:
    row = connection.execute(
        "select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') "
        "and has_table_privilege(c.oid, 'insert') and has_table_privilege(c.oid, 'delete') "
        "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'deltarelay' and c.relname = 'written_anew'"
    ).fetchone()
    return row is not None and bool(row[0])
