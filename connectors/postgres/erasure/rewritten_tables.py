"""Whose rows were written away from a table's pages: a short identifier cannot be looked for in there.

``deltarelay.written_anew`` has a row for each table and request, from the purge that wrote the table anew until the request
is erased once more. Of a request that still had rows at that time it has none: they may die yet.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from connectors.postgres.sql_parts import TargetName

__all__ = ["forget_written", "note_written", "written_of"]

Connection = psycopg.Connection[Any]

CREATE = """\
create table if not exists deltarelay.written_anew (
    relation   text not null,
    request    text not null,
    written_at timestamptz not null default clock_timestamp(),
    primary key (relation, request)
)"""


def written_of(connection: Connection, table: TargetName) -> frozenset[str]:
    """The requests that have nothing in the table's pages."""
    if not _may_use(connection):
        return frozenset()
    rows = connection.execute("select request from deltarelay.written_anew where relation = %s", [str(table)])
    return frozenset(request for (request,) in rows)


def note_written(connection: Connection, table: TargetName, requests: Collection[str]) -> None:
    """A role that may not keep this down has its pages told as unseen."""
    if not requests:
        return
    with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName):
        connection.execute(CREATE)
        connection.execute(
            "insert into deltarelay.written_anew (relation, request) select %s, unnest(%s::text[]) "
            "on conflict (relation, request) do update set written_at = excluded.written_at",
            [str(table), sorted(requests)],
        )


def forget_written(connection: Connection, requests: Collection[str]) -> None:
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
