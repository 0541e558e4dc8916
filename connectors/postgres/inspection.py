"""Everything that stands between a source and its target, and the DDL that would run. Reads only."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.sink import Inspection, Position, Source
from connectors.postgres import position as positions
from connectors.postgres.schema import (
    TargetName,
    add_column,
    add_primary_key,
    create_table,
    problems_of,
    reflect,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["inspected", "additions", "database_problems", "position_of", "foreign_rows"]

Connection = psycopg.Connection[Any]


def inspected(
    connection: Connection, name: TargetName, source: Source, *, standing: Position | None = None
) -> Inspection:
    """``standing``: look at the target as if its position were this one."""
    problems = database_problems(connection, name)
    position = standing or position_of(connection, name)
    target = reflect(connection, name)
    problems += problems_of(source, name, target)
    ddl = list(positions.missing(connection))
    if target is None:
        if position.version is not None:
            problems.append(
                f"{name} is gone, but its position ({position.version}) is still recorded: `run --reload` makes it anew"
            )
        ddl += [create_table(name.identifier, source.schema), add_primary_key(name.identifier, source.key)]
    else:
        if position.version is None and target.can_write and not target.empty:
            problems.append(foreign_rows(name))
        added = additions(name, {column.name for column in target.columns}, source.schema)
        if added and not target.owned:
            problems.append(f"the role does not own {name}, so it cannot add what is missing: " + "; ".join(added))
        ddl += added
    return Inspection(position=position, problems=tuple(problems), ddl=tuple(ddl))


def position_of(connection: Connection, name: TargetName) -> Position:
    try:
        return positions.read_position(connection, str(name))
    except psycopg.errors.InsufficientPrivilege:
        return Position()  # the missing right is among the problems


def foreign_rows(name: TargetName) -> str:
    return (
        f"{name} holds rows that did not come from this source (it has no position): empty it, name another table, "
        "or take it over with `deltarelay position adopt`"
    )


def additions(name: TargetName, there: Collection[str], schema: StructType) -> list[str]:
    """The statements that add the columns which ``schema`` has and the target has not."""
    return [add_column(name.identifier, field) for field in schema.fields if field.name not in there]


def database_problems(connection: Connection, name: TargetName) -> list[str]:
    row = connection.execute(
        """
        select current_setting('server_encoding'), current_setting('server_version_num')::int,
               s.oid is not null, has_schema_privilege(s.oid, 'usage'), has_schema_privilege(s.oid, 'create'),
               t.oid is not null,
               o.oid is not null, has_schema_privilege(o.oid, 'usage') and has_schema_privilege(o.oid, 'create'),
               has_database_privilege(current_database(), 'create'),
               p.oid is not null,
               has_table_privilege(p.oid, 'select') and has_table_privilege(p.oid, 'insert')
                   and has_table_privilege(p.oid, 'update')
          from (select 1) one
          left join pg_namespace s on s.nspname = %(schema)s
          left join pg_class t on t.relnamespace = s.oid and t.relname = %(table)s
          left join pg_namespace o on o.nspname = 'deltarelay'
          left join pg_class p on p.relnamespace = o.oid and p.relname = 'position'
        """,
        {"schema": name.schema, "table": name.table},
    ).fetchone()
    assert row is not None
    encoding, version, schema_there, may_use, may_create, target_there = row[:6]
    ours_there, may_use_ours, may_create_schema, position_there, may_write_position = row[6:]
    problems = []
    if encoding != "UTF8":
        problems.append(f"the database is encoded in {encoding}: only UTF8 can hold every text")
    if version < 140000:
        problems.append("the server is older than PostgreSQL 14")
    if not schema_there:
        problems.append(f"there is no schema {name.schema!r}: create it, or name another one in the table")
    elif not may_use:
        problems.append(f"the role may not use schema {name.schema!r}: grant usage on it")
    elif not target_there and not may_create:
        problems.append(f"the role may not create tables in schema {name.schema!r}")
    if not ours_there and not may_create_schema:
        problems.append(
            "the role may not create the schema deltarelay: grant create on the database, "
            "or let its owner run: create schema deltarelay authorization <role>"
        )
    if ours_there and not may_use_ours:
        problems.append("the role may not use and create in schema deltarelay: grant usage, create on it")
    if position_there and not may_write_position:
        problems.append("the role may not write deltarelay.position: grant select, insert, update on it")
    return problems
