"""The target table as it is in the database: columns, keys, rights, and conditions that make it unsafe to write."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from cdf.errors import TargetNotReady
from connectors.postgres.conversions import ColumnType
from connectors.postgres.sql_parts import TargetName, quote_plainly

__all__ = [
    "TargetColumn",
    "TargetTable",
    "find_delete_action",
    "has_values",
    "is_partitioned",
    "read_column_types",
    "read_deferrable_unique",
    "read_further_columns",
    "reflect",
    "refuse_unsafe",
    "suppresses_writes",
]

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class TargetColumn:
    name: str
    type: ColumnType
    required: bool
    """NOT NULL without a default: every insert must give a value."""
    nullable: bool
    generated: bool
    """By an expression: it cannot be written."""
    always: bool
    """An identity that is GENERATED ALWAYS: an insert can give a value explicitly, an update cannot."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    columns: tuple[TargetColumn, ...]
    unique_keys: frozenset[frozenset[str]]
    """Column sets that a non-deferrable, complete unique index covers."""
    empty: bool | None
    """Known only if ``can_write``. None: not read, because it is ``unsafe`` or no table."""
    can_write: bool
    owned: bool
    """The role may add columns."""
    is_table: bool
    """False for a view or any other object that shares the namespace of tables."""
    hides_rows: bool
    """Row security policies apply to the role."""
    unsafe: tuple[str, ...] = ()
    """Why written rows may be lost."""
    strays: tuple[str, ...] = ()
    """Rows in tables that inherit from it; a merging reload sees them."""
    rules: tuple[str, ...] = ()
    """Rules that prevent applying a window; a merging reload works with them, and counts what it writes."""


@dataclass(frozen=True, slots=True)
class _TableRow:
    oid: int
    may_use: bool
    owned: bool
    is_table: bool
    may_write: bool
    hides_rows: bool


def reflect(connection: Connection, name: TargetName) -> TargetTable | None:
    """The present target, or None if no such table exists."""
    found = (
        connection.cursor(row_factory=class_row(_TableRow))
        .execute(
            """
        select c.oid, has_schema_privilege(n.oid, 'usage') as may_use, pg_has_role(c.relowner, 'usage') as owned,
               c.relkind in ('r', 'p') as is_table,
               has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                   and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete') as may_write,
               row_security_active(c.oid) as hides_rows
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = %s and c.relname = %s
        """,
            [name.schema, name.table],
        )
        .fetchone()
    )
    if found is None:
        return None
    can_write = found.may_use and found.may_write
    unsafe = tuple(_durability_problems(connection, found.oid)) if found.is_table else ()
    is_readable = found.is_table and not unsafe  # a foreign server may not answer
    empty = False if is_readable else None
    if can_write and is_readable:
        rows = connection.execute(sql.SQL("select exists (select 1 from {})").format(name.identifier)).fetchone()
        empty = rows == (False,)
    return TargetTable(
        _read_columns(connection, name),
        _read_unique_keys(connection, found.oid),
        empty,
        can_write,
        found.owned,
        found.is_table,
        found.hides_rows,
        unsafe,
        tuple(_inheritance_problems(connection, found.oid)) if can_write and is_readable else (),
        tuple(_rule_problems(connection, name, found.oid)) if found.is_table else (),
    )


# ── conditions that make it unsafe to write ──────────────────────────────────────────────────────────────────────────

_PARTS = (
    "with recursive part as (select %(oid)s::oid as oid "
    "union all select h.inhrelid from pg_inherits h join part p on h.inhparent = p.oid) "
)
"""A table with its partitions, and the tables that inherit from it."""


def _durability_problems(connection: Connection, oid: int) -> list[str]:
    """A server crash empties UNLOGGED tables while the position would still claim that every window was applied."""
    rows = connection.execute(
        _PARTS + "select c.oid::regclass::text, c.relkind = 'f', c.relpersistence = 't' from part "
        "join pg_class c on c.oid = part.oid "
        "where c.relkind = 'f' or c.relpersistence = 't' or (c.relpersistence = 'u' and c.relkind = 'r') order by 1",
        {"oid": oid},
    )
    return [
        f"{table} is a foreign table: its rows are not part of the transaction that moves the position"
        if is_foreign
        else f"{table} is a temporary table: its rows are lost when its session ends"
        if is_temporary
        else f"{table} is UNLOGGED, and a crash of the server would empty it, or has already emptied it: alter table "
        f"{table} set logged, "
        "then check with `deltarelay verify` whether rows are missing"
        for table, is_foreign, is_temporary in rows
    ]


def _inheritance_problems(connection: Connection, oid: int) -> list[str]:
    """Rows in tables that inherit from the target. The target's unique index does not cover them: a change of such a row
    would add a second one. (Partitions are covered.)"""
    children = connection.execute(
        _PARTS + "select n.nspname, c.relname, "
        "has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') "
        "from part join pg_class c on c.oid = part.oid join pg_namespace n on n.oid = c.relnamespace "
        "where part.oid <> %(oid)s and c.relkind = 'r' and not c.relispartition order by 1, 2",
        {"oid": oid},
    ).fetchall()
    problems = []
    for schema, table, is_readable in children:
        name = str(TargetName(schema, table))
        exists = sql.SQL("select exists (select from only {})").format(sql.Identifier(schema, table))
        if not is_readable:
            problems.append(
                f"{name} inherits from it, and the role may not read whether it holds rows: grant select on it"
            )
        elif connection.execute(exists).fetchone() == (True,):
            problems.append(
                f"{name} inherits from it and holds rows, which its unique index does not cover: move them back"
            )
    return problems


def _rule_problems(connection: Connection, name: TargetName, oid: int) -> list[str]:
    """Rules that replace a write by another statement. An upsert fails with any rule for inserts or updates."""
    rows = connection.execute(
        "select rulename::text from pg_rewrite where ev_class = %s "
        "and (ev_type in ('2', '3') or (ev_type = '4' and is_instead)) and ev_enabled in ('O', 'A') order by 1",
        [oid],
    )
    return [f"{name} has a rule {quote_plainly(rule)} that changes what is written to it: drop it" for (rule,) in rows]


def refuse_unsafe(connection: Connection, name: TargetName) -> None:
    """Check again, under a lock of the target, what ``reflect`` checked when the run began. Raises TargetNotReady."""
    oid = _read_oid(connection, name)
    unsafe = [] if oid is None else _durability_problems(connection, oid) or _inheritance_problems(connection, oid)
    if unsafe:
        raise TargetNotReady(
            f"{name} cannot be written any more: " + "; ".join(unsafe),
            hint="nothing was changed: correct this, and run again",
        )


def suppresses_writes(connection: Connection, name: TargetName) -> bool:
    """Whether the table has row triggers that run before a write, or rules: either can make a write touch fewer rows."""
    found = connection.execute(
        _PARTS + "select from part where exists (select from pg_trigger g where g.tgrelid = part.oid "
        "and not g.tgisinternal and g.tgtype & 3 = 3) or exists (select from pg_rewrite r where r.ev_class = part.oid)",
        {"oid": _read_oid(connection, name)},
    ).fetchone()
    return found is not None


# ── columns, keys, constraints ───────────────────────────────────────────────────────────────────────────────────────


def _read_oid(connection: Connection, name: TargetName) -> int | None:
    ((oid,),) = connection.execute("select to_regclass(%s)::oid", [name.identifier.as_string(connection)]).fetchall()
    return None if oid is None else int(oid)


def _read_columns(connection: Connection, name: TargetName) -> tuple[TargetColumn, ...]:
    rows = connection.execute(
        """
        select a.attname, a.attnotnull or (t.typtype = 'd' and t.typnotnull),
               a.attgenerated = '' and (a.atthasdef or (t.typtype = 'd' and t.typdefault is not null)),
               a.attgenerated != '', a.attidentity::text
          from pg_attribute a
          join pg_type t on t.oid = a.atttypid
          join pg_class c on c.oid = a.attrelid
          join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped
         order by a.attnum
        """,
        [name.schema, name.table],
    ).fetchall()
    types = read_column_types(connection, name)
    return tuple(
        TargetColumn(
            name=column,
            type=types[column],
            required=not_null and not has_default and not identity,
            nullable=not not_null,
            generated=generated,
            always=identity == "a",
        )
        for column, not_null, has_default, generated, identity in rows
        if column in types
    )


def is_partitioned(connection: Connection, name: TargetName) -> bool:
    found = connection.execute(
        "select from pg_class where oid = to_regclass(%s) and relkind = 'p'", [name.identifier.as_string(connection)]
    ).fetchone()
    return found is not None


def read_column_types(connection: Connection, name: TargetName) -> dict[str, ColumnType]:
    """The target's columns as the running transaction sees them; empty if no such table exists.

    Types are spelled as PostgreSQL prints them, with their modifiers: timestamp(3) is not timestamp.
    """
    rows = connection.execute(
        """
        select a.attname, format_type(a.atttypid, a.atttypmod),
               case when t.typtype = 'd' then format_type(t.typbasetype, t.typtypmod)
                    else format_type(a.atttypid, a.atttypmod) end,
               coalesce(b.typtype, t.typtype) = 'e',
               coalesce(b.typname, t.typname) = 'citext' or not coalesce(l.collisdeterministic, true)
          from pg_attribute a
          join pg_type t on t.oid = a.atttypid
          left join pg_type b on b.oid = t.typbasetype
          left join pg_collation l on l.oid = a.attcollation
          join pg_class c on c.oid = a.attrelid
          join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped
        """,
        [name.schema, name.table],  # not to_regclass, which a role without rights in the schema may not call
    )
    return {column: ColumnType(*properties) for column, *properties in rows}


def read_further_columns(connection: Connection, name: TargetName, ours: Collection[str]) -> tuple[str, ...]:
    """The target's columns, without generated ones, that are not among ``ours``."""
    rows = connection.execute(
        "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped "
        "and attgenerated = '' order by attnum",
        [name.identifier.as_string(connection)],
    )
    return tuple(column for (column,) in rows if column not in ours)


def has_values(connection: Connection, name: TargetName, column: str) -> bool:
    statement = sql.SQL("select exists (select from {} where {} is not null)")
    found = connection.execute(statement.format(name.identifier, sql.Identifier(column))).fetchone()
    return found == (True,)


def find_delete_action(connection: Connection, name: TargetName) -> str | None:
    """A table whose foreign key has an ON DELETE action: deleting a row of the target would change its rows as well."""
    row = connection.execute(
        "select conrelid::regclass::text from pg_constraint "
        "where confrelid = to_regclass(%s) and contype = 'f' and confdeltype in ('c', 'n', 'd') limit 1",
        [name.identifier.as_string(connection)],
    ).fetchone()
    return None if row is None else str(row[0])


def read_deferrable_unique(connection: Connection, name: TargetName) -> list[sql.Identifier]:
    """The deferrable unique and exclusion constraints."""
    rows = connection.execute(
        "select n.nspname, k.conname from pg_constraint k join pg_namespace n on n.oid = k.connamespace "
        "where k.conrelid = to_regclass(%s) and k.contype in ('p', 'u', 'x') and k.condeferrable",
        [name.identifier.as_string(connection)],
    )
    return [sql.Identifier(schema, constraint) for schema, constraint in rows]


def _read_unique_keys(connection: Connection, oid: int) -> frozenset[frozenset[str]]:
    rows = connection.execute(
        """
        select array_agg(a.attname::text)
          from pg_index i
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])
         where i.indrelid = %s
           and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null
           and not exists (select from unnest(i.indcollation) c join pg_collation l on l.oid = c
                            where not l.collisdeterministic)
         group by i.indexrelid
        """,
        [oid],
    ).fetchall()
    return frozenset(frozenset(row[0]) for row in rows)
