"""A loaded table takes the target's name, and its constraints the names that PostgreSQL would have given them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from connectors.postgres.table_name import MAX_NAME_BYTES

if TYPE_CHECKING:
    from connectors.postgres.client import Session

__all__ = ["move_to_target", "rename_constraints"]

Connection = psycopg.Connection[Any]


def move_to_target(session: Session, execute: Callable[[sql.Composed], object]) -> None:
    """Inside the transaction: the loaded table becomes the target."""
    schema, table = session.target.schema, session.target.table
    name = session.own_name("load")
    execute(sql.SQL("alter table {} set schema {}").format(session.own_table("load"), sql.Identifier(schema)))
    execute(sql.SQL("alter table {} rename to {}").format(sql.Identifier(schema, name), sql.Identifier(table)))


def rename_constraints(session: Session, execute: Callable[[sql.Composed], object]) -> None:
    """Inside the transaction, after the move: constraints that PostgreSQL named after a loaded table, now or in an earlier
    reload, get the names that it would give to those of the target. (NOT NULL has a name from PostgreSQL 18 on.)"""
    target, connection = session.target, session.main()
    found = connection.execute(
        "select k.conname::text, a.attname::text from pg_constraint k left join pg_attribute a "
        "on k.contype = 'n' and a.attrelid = k.conrelid and a.attnum = k.conkey[1] "
        "where k.conrelid = %s::regclass and k.contype in ('n', 'p') and k.conname ~ %s order by a.attnum",
        [target.identifier.as_string(connection), f"^{session.own_name('load').rpartition('_')[0]}_\\d+_"],
    ).fetchall()
    for present, column in found:
        label = "pkey" if column is None else "not_null"
        candidates = (generated_name(target.table, column, f"{label}{number or ''}") for number in itertools.count())
        wanted = next(name for name in candidates if not _is_used(connection, target.schema, name))
        execute(
            sql.SQL("alter table {} rename constraint {} to {}").format(
                target.identifier, sql.Identifier(present), sql.Identifier(wanted)
            )
        )


def generated_name(table: str, column: str | None, label: str) -> str:
    """The name that PostgreSQL gives to an unnamed constraint: table and column are truncated, the longer one first."""
    parts = [name.encode() for name in (table, column) if name is not None]
    lengths = [len(part) for part in parts]
    while sum(lengths) > MAX_NAME_BYTES - len(label) - len(parts):
        longer = max(range(len(parts)), key=lambda number: (lengths[number], number))
        lengths[longer] -= 1
    truncated = [part[:length].decode(errors="ignore") for part, length in zip(parts, lengths, strict=True)]
    return "_".join([*truncated, label])


def _is_used(connection: Connection, schema: str, name: str) -> bool:
    found = connection.execute(
        "select from pg_namespace n where n.nspname = %(schema)s and "
        "(exists (select from pg_class c where c.relnamespace = n.oid and c.relname = %(name)s) "
        "or exists (select from pg_constraint k where k.connamespace = n.oid and k.conname = %(name)s))",
        {"schema": schema, "name": name},
    )
    return found.fetchone() is not None
