"""Reads the bytes of a table's pages, including dead rows, where the role may read them.

It uses ``pageinspect`` where that is installed (managed servers allow it for administrators), otherwise the server's files
after a checkpoint, which needs a superuser. A value that PostgreSQL has compressed, in a row of more than 2 kB, is not
visible in its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

__all__ = ["Relation", "Pages", "pages_of", "relations_of"]

Connection = psycopg.Connection[Any]

_PAGE_BYTES = 8192
_AT_A_TIME = 128
"""Pages per query: 1 MiB."""
_SEGMENT = 131_072
"""Pages per file of a table."""

Pages = Callable[["Relation"], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or partition, one of its indexes, or the TOAST table with its large values."""

    oid: int
    name: str
    toast: bool


def relations_of(connection: Connection, schema: str, table: str) -> list[Relation]:
    """Return the table, its partitions and their indexes; empty where the table does not exist."""
    rows = connection.execute(
        """
        with recursive part as (
            select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = %s and c.relname = %s
            union all select h.inhrelid from pg_inherits h join part p on h.inhparent = p.oid
        ), whole as (
            select oid from part union
            select c.reltoastrelid from part p join pg_class c on c.oid = p.oid where c.reltoastrelid <> 0
        ), every as (
            select oid from whole union select i.indexrelid from whole w join pg_index i on i.indrelid = w.oid
        )
        select c.oid, format('%%I.%%I', n.nspname, c.relname), n.nspname = 'pg_toast' and c.relkind = 't'
          from every e join pg_class c on c.oid = e.oid join pg_namespace n on n.oid = c.relnamespace
         where c.relkind in ('r', 'p', 't', 'i') order by c.oid
        """,
        [schema, table],
    )
    return [Relation(*row) for row in rows]


def pages_of(connection: Connection) -> Pages | str:
    """Return a function that reads a relation's pages, or the reason why they cannot be read. Call it outside of a
    transaction, which a failure would end."""
    found = connection.execute(
        """
        select current_setting('is_superuser') = 'on',
               (select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
                 where e.extname = 'pageinspect')
        """
    ).fetchone()
    assert found is not None
    superuser, inspect = found
    if inspect is not None:
        raw = sql.SQL("{}.get_raw_page(%(name)s, 'main', p)").format(sql.Identifier(inspect))
        try:
            connection.execute(_raw_pages(raw), {"name": "pg_catalog.pg_class", "first": 0, "last": 0})
        except psycopg.errors.InsufficientPrivilege:
            return "the role may not use pageinspect"
        return lambda relation: _read(connection, relation, _raw_pages(raw))
    if not superuser:
        return "pageinspect is not installed, and the role is not a superuser"
    connection.execute("checkpoint")  # writes to the files what only the server's memory holds
    return lambda relation: _read(connection, relation, _FILES)


def _raw_pages(raw: sql.Composed) -> sql.Composed:
    return sql.SQL("select string_agg({}, ''::bytea) from generate_series(%(first)s::bigint, %(last)s) p").format(raw)


_FILES = sql.SQL(
    "select pg_read_binary_file(pg_relation_filepath(%(name)s::regclass) || case when %(segment)s = 0 then '' else "
    "'.' || %(segment)s end, %(offset)s, %(bytes)s, true)"
).format()


def _read(connection: Connection, relation: Relation, statement: sql.Composed) -> Iterator[bytes]:
    row = connection.execute(
        "select pg_relation_size(%s::oid::regclass) / current_setting('block_size')::int", [relation.oid]
    ).fetchone()
    count = 0 if row is None or row[0] is None else row[0]  # dropped meanwhile
    for first in range(0, count, _AT_A_TIME):
        last = min(first + _AT_A_TIME, count) - 1
        segment, at = divmod(first, _SEGMENT)
        found = connection.execute(
            statement,
            {
                "name": relation.name,
                "first": first,
                "last": last,
                "segment": segment,
                "offset": at * _PAGE_BYTES,
                "bytes": (last - first + 1) * _PAGE_BYTES,
            },
            binary=True,
        ).fetchone()
        if found is not None and found[0] is not None:
            yield found[0]
