"""Everything that stands between a source and its target, and the DDL that would run. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.changes.schema_diff import ChangeKind, SchemaChange, compare
from cdf.errors import TargetNotReady
from cdf.sink import Inspection, Position, Source
from connectors.postgres import position as positions
from connectors.postgres.column_mapping import METADATA_TYPES
from connectors.postgres.conversions import Found, cast
from connectors.postgres.target.ddl import (
    TargetName,
    add_column,
    add_comment,
    add_primary_key,
    create_table,
    holds_values,
    problems_of,
    reflect,
)
from connectors.postgres.target.drift import alters_type, dependents, evolution, why_not
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

__all__ = ["inspected", "additions", "database_problems", "position_of", "foreign_rows", "lost"]

Connection = psycopg.Connection[Any]


def inspected(
    connection: Connection,
    name: TargetName,
    source: Source,
    own: Sequence[str] = (),
    *,
    adds_columns: bool = True,
    standing: Position | None = None,
) -> Inspection:
    """``source`` has the target's names; ``own`` are the columns of ours that the target has. ``adds_columns``: whether what
    is missing may be added. ``standing``: look at the target as if its position were this one."""
    problems = database_problems(connection, name)
    position = standing or position_of(connection, name)
    target = reflect(connection, name)
    problems += problems_of(source, name, target, own)
    ddl = list(positions.missing(connection))
    begins = source.standing or source.schema
    # What cannot be followed at all is refused with the version that brought it, by whoever reads the log
    drift = [change for change in compare(begins, source.schema) if why_not(change) is None]
    if target is None:
        if position.version is not None:
            problems.append(
                f"{name} is gone, but its position ({position.version}) is still recorded: `run --reload` makes it anew"
            )
        made = {field.name: Found(kind, kind) for field in begins.fields if (kind := target_type(field.dataType))}
        ddl += [
            create_table(name.identifier, begins, own),
            add_primary_key(name.identifier, source.key),
            add_comment(name.identifier),
        ]
        ddl += evolution(name, drift, made)
    elif target.is_table:
        if position.version is None and target.can_write and target.empty is False:
            problems.append(foreign_rows(name))
        problems += [*target.rules, *(f"{name}: {stray}" for stray in target.strays)]
        if position.version is not None and target.can_write and target.empty and _lost_rows(connection, name):
            problems.append(f"{lost(name)}: `run --reload` rebuilds it")
        found = {column.name: column.found for column in target.columns}
        gone = [column for column in begins.fieldNames() if column not in found]
        if position.version is not None and gone:
            problems.append(
                f"{name} has no column {', '.join(map(repr, gone))}: its rows would lack the values from before, "
                "`run --reload` makes it anew"
            )
            added = []
        else:
            added = additions(name, found, begins, own)
        if added and not adds_columns:
            problems.append(f"{name} lacks columns, and schema_changes: refuse keeps them from being added")
        try:
            added += evolution(name, drift, found)
        except TargetNotReady as error:
            problems.append(f"{error.message} ({error.hint})")
        if drift and target.can_write:
            been_ahead = _been_ahead(connection, name, position)
            problems += _obstacles(connection, name, drift, found, been_ahead=been_ahead)
        if added and not target.owned:
            problems.append(f"the role does not own {name}, so it cannot alter it: " + "; ".join(added))
        ddl += added
    return Inspection(position=position, problems=tuple(problems), ddl=tuple(ddl))


def _obstacles(
    connection: Connection,
    name: TargetName,
    drift: Sequence[SchemaChange],
    found: Mapping[str, Found],
    *,
    been_ahead: bool,
) -> Iterator[str]:
    """What would keep the target from going along with the drift. ``been_ahead``: it has been at a later version."""
    leaving = {
        change.before.name
        for change in drift
        if change.before is not None and (change.after is None or change.after.name != change.before.name)
    }
    for change in drift:
        before, after = change.before, change.after
        if before is not None and before.name not in found:
            continue
        if before is None:
            if after is not None and after.name in found and after.name not in leaving:
                yield from _taken(connection, name, after, found[after.name], been_ahead=been_ahead)
        elif after is None:
            for dependent in dependents(connection, name, before.name, altered="dropped"):
                yield f"{name}: column {before.name!r} was dropped at the source, and {dependent} depends on it: {_HELP}"
        elif change.kind is ChangeKind.RENAME_COLUMN and after.name in found and after.name not in leaving:
            yield f"{name} has a column {after.name!r} of its own, as {before.name!r} is called from now on: drop it there"
        elif change.kind is ChangeKind.CHANGE_TYPE and alters_type(change, found[before.name]):
            kind = target_type(after.dataType)
            for dependent in dependents(connection, name, before.name, altered="retyped"):
                yield f"{name}: column {before.name!r} is to become {kind}, and {dependent} depends on it: {_HELP}"


_HELP = "drop that, run again, and create it anew"


def _taken(
    connection: Connection, name: TargetName, field: StructField, held: Found, *, been_ahead: bool
) -> Iterator[str]:
    """The target has a column already that the source has added only now."""
    wanted = target_type(field.dataType)
    if wanted is not None and cast(wanted, held) is None:
        yield f"{name}.{field.name} is {held.type}, the source needs {wanted} or a type that holds it"
    elif not been_ahead and holds_values(connection, name, field.name):
        yield (
            f"{name} has a column {field.name!r} of its own with values in it, and the source has added one of that name: "
            "drop or rename it there"
        )


def _been_ahead(connection: Connection, name: TargetName, position: Position) -> bool:
    """Whether the position was moved back: what the source has added since may be there, with its values."""
    try:
        stands = positions.read_position(connection, str(name)).version
        moved_back = stands is not None and position.version is not None and stands > position.version
        ((logged,),) = connection.execute("select to_regclass('deltarelay.position_log') is not null").fetchall()
        if moved_back or not logged:
            return moved_back
        ((found,),) = connection.execute(
            "select exists (select from deltarelay.position_log"
            " where target = %s and action in ('rewind', 'set') and from_version > %s)",
            [str(name), position.version],
        ).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        return False
    return bool(found)


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


def lost(name: TargetName) -> str:
    return (
        f"{name} is empty, and the last step left rows in it, or did not record whether it did: the table was truncated, "
        "dropped and created again, or emptied by a crash of the server"
    )


def _lost_rows(connection: Connection, name: TargetName) -> bool:
    try:
        return not positions.notes_rows(connection) or positions.lost_rows(connection, name)
    except psycopg.errors.InsufficientPrivilege:
        return False  # the missing right is among the problems


def additions(name: TargetName, there: Collection[str], schema: StructType, own: Sequence[str] = ()) -> list[str]:
    """The statements that add the columns which ``schema``, or we, have and the target has not."""
    wanted = [(field.name, str(target_type(field.dataType))) for field in schema.fields]
    wanted += [(mine, METADATA_TYPES[mine]) for mine in own]
    return [add_column(name.identifier, column, kind) for column, kind in wanted if column not in there]


def database_problems(connection: Connection, name: TargetName) -> list[str]:
    row = connection.execute(
        """
        select current_setting('server_encoding'), current_setting('server_version_num')::int,
               s.oid is not null, has_schema_privilege(s.oid, 'usage'), has_schema_privilege(s.oid, 'create'),
               t.oid is not null,
               o.oid is not null, has_schema_privilege(o.oid, 'usage') and has_schema_privilege(o.oid, 'create'),
               has_database_privilege(current_database(), 'create'),
               p.oid is not null, coalesce(pg_has_role(p.relowner, 'usage'), false),
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
    ours_there, may_use_ours, may_create_schema, position_there, owns_position, may_write_position = row[6:]
    problems = []
    if encoding != "UTF8":
        problems.append(f"the database is encoded in {encoding}: only UTF8 can hold every text")
    if version < 140000:
        problems.append("the server is older than PostgreSQL 14")
    # ADBC looks up types by printed names when it connects, before any setting can be pinned
    if connection.execute("select reset_val from pg_settings where name = 'quote_all_identifiers'").fetchone() == (
        "on",
    ):
        problems.append(
            "the role has quote_all_identifiers = on, with which rows cannot be copied: turn it off for the role"
        )
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
    if position_there and not owns_position and not positions.notes_rows(connection):
        problems.append(
            "deltarelay.position is of an earlier version, and the role does not own it: let its owner run: "
            + positions.ADD_HOLDS_ROWS
        )
    return problems
