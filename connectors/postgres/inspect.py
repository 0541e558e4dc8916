"""Every problem that prevents writing a source into its target, and the DDL that a run would execute. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import class_row

from cdf.changes.schema_diff import ChangeKind, SchemaChange, compare
from cdf.errors import TargetNotReady
from cdf.sink import Inspection, Position, Source
from connectors.postgres.column_mapping import Columns
from connectors.postgres.conversions import ColumnType, find_cast
from connectors.postgres.options import Modes
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.state import migrations
from connectors.postgres.state.position import find_lost_rows, read_position
from connectors.postgres.target.ddl import add_missing_columns, create_target
from connectors.postgres.target.drift import alters_type, drift_ddl, read_dependents, why_not_followed
from connectors.postgres.target.problems import target_problems
from connectors.postgres.target.reflection import TargetTable, has_values, reflect
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

__all__ = [
    "database_problems",
    "describe_foreign_rows",
    "describe_lost_rows",
    "inspect_target",
    "read_visible_position",
]

Connection = psycopg.Connection[Any]


def inspect_target(
    connection: Connection,
    name: TargetName,
    source: Source,
    columns: Columns,
    modes: Modes,
    own: Sequence[str],
    *,
    position: Position | None = None,
) -> Inspection:
    """``own``: metadata columns that the target has, or will get. ``position``: inspect the target as if this were its
    position."""
    found = _inspect_mapped(
        connection,
        name,
        columns.map_source(source),
        own,
        modes,
        position=position or read_visible_position(connection, name),
    )
    # A column that the target was loaded without must not be included later by mistake: earlier rows would lack its values.
    # Before the first load any column may be excluded, also one that the source will only get later in the run
    former = source.schema.fieldNames() if found.position.version is None else None
    problems = columns.find_problems(source.standing or source.schema, source.key, own, former=former)
    return replace(found, problems=(*problems, *found.problems))


def _inspect_mapped(
    connection: Connection,
    name: TargetName,
    source: Source,
    own: Sequence[str],
    modes: Modes,
    *,
    position: Position,
) -> Inspection:
    """``source`` has the target's column names."""
    ddl = list(migrations.missing_ddl(connection, dead_letters=modes.writes_dead_letters))
    problems = database_problems(connection, name, ddl)
    target = reflect(connection, name)
    problems += target_problems(source, name, target, own)
    schema = source.standing or source.schema
    # A change that cannot be followed at all is refused, with its version, by the pipeline that reads the log
    drift = [change for change in compare(schema, source.schema) if why_not_followed(change) is None]
    if target is None:
        if position.version is not None:
            problems.append(
                f"{name} does not exist, but its position ({position.version}) is still recorded: "
                "`run --reload` rebuilds it"
            )
        types = {field.name: ColumnType(kind, kind) for field in schema.fields if (kind := target_type(field.dataType))}
        ddl += [*create_target(name, schema, source.key, own), *drift_ddl(name, drift, types)]
    elif target.is_table:
        problems += _row_problems(connection, name, target, position)
        types = {column.name: column.type for column in target.columns}
        missing = [column for column in schema.fieldNames() if column not in types]
        if position.version is not None and missing:
            problems.append(
                f"{name} has no column {', '.join(map(repr, missing))}, and its rows would lack the earlier values: "
                "`run --reload` rebuilds it"
            )
            added = []
        else:
            added = add_missing_columns(name, types, schema, own)
        if added and modes.schema_changes == "refuse":
            problems.append(
                f"{name} lacks columns, and deltarelay may not add them because of `schema_changes: refuse`"
            )
        try:
            added += drift_ddl(name, drift, types)
        except TargetNotReady as error:
            problems.append(f"{error.message} ({error.hint})")
        if drift and target.can_write:
            was_ahead = _was_ahead(connection, name, position)
            problems += _drift_problems(connection, name, drift, types, was_ahead=was_ahead)
        if added and not target.owned:
            problems.append(f"the role does not own {name}, so it cannot alter it: " + "; ".join(added))
        ddl += added
    return Inspection(position=position, problems=tuple(problems), ddl=tuple(ddl))


def _row_problems(connection: Connection, name: TargetName, target: TargetTable, position: Position) -> Iterator[str]:
    if position.version is None and target.can_write and target.empty is False:
        yield describe_foreign_rows(name)
    yield from target.rules
    yield from (f"{name}: {stray}" for stray in target.strays)
    if position.version is not None and target.can_write and target.empty and _has_lost_rows(connection, name):
        yield f"{describe_lost_rows(name)}: `run --reload` rebuilds it"


# ── schema drift ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _drift_problems(
    connection: Connection,
    name: TargetName,
    drift: Sequence[SchemaChange],
    types: Mapping[str, ColumnType],
    *,
    was_ahead: bool,
) -> Iterator[str]:
    """What prevents the target from following the drift. ``was_ahead``: the target was once at a later version."""
    leaving = {
        change.before.name
        for change in drift
        if change.before is not None and (change.after is None or change.after.name != change.before.name)
    }
    for change in drift:
        before, after = change.before, change.after
        if before is not None and before.name not in types:
            continue
        if before is None:
            if after is not None and after.name in types and after.name not in leaving:
                yield from _name_clash(connection, name, after, types[after.name], was_ahead=was_ahead)
        elif after is None:
            for dependent in read_dependents(connection, name, before.name, altered="dropped"):
                yield f"{name}: column {before.name!r} was dropped at the source, and {dependent} depends on it: {_HELP}"
        elif change.kind is ChangeKind.RENAME_COLUMN and after.name in types and after.name not in leaving:
            yield (
                f"{name} has another column {after.name!r}, and the source's column {before.name!r} was renamed to that "
                "name: drop it there"
            )
        elif change.kind is ChangeKind.CHANGE_TYPE and alters_type(change, types[before.name]):
            kind = target_type(after.dataType)
            for dependent in read_dependents(connection, name, before.name, altered="retyped"):
                yield f"{name}: column {before.name!r} must become {kind}, and {dependent} depends on it: {_HELP}"


_HELP = "drop that object, run again, and recreate it"


def _name_clash(
    connection: Connection, name: TargetName, field: StructField, present: ColumnType, *, was_ahead: bool
) -> Iterator[str]:
    """The target already has a column of the same name as one that the source has added only now."""
    wanted = target_type(field.dataType)
    if wanted is not None and find_cast(wanted, present) is None:
        yield f"{name}.{field.name} is {present.type}, the source needs {wanted} or a type that holds it"
    elif not was_ahead and has_values(connection, name, field.name):
        yield (
            f"{name} has another column {field.name!r} with values in it, and the source has added one of that name: "
            "drop or rename it there"
        )


def _was_ahead(connection: Connection, name: TargetName, position: Position) -> bool:
    """Whether the position was moved back: the target may then have the columns that the source added since, with values."""
    try:
        with connection.transaction():  # what it may not read fails alone
            version = read_position(connection, str(name)).version
            moved_back = version is not None and position.version is not None and version > position.version
            ((has_log,),) = connection.execute("select to_regclass('deltarelay.position_log') is not null").fetchall()
            if moved_back or not has_log:
                return moved_back
            ((found,),) = connection.execute(
                "select exists (select from deltarelay.position_log"
                " where target = %s and action in ('rewind', 'set') and from_version > %s)",
                [str(name), position.version],
            ).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        return False
    return bool(found)


# ── position and rows ────────────────────────────────────────────────────────────────────────────────────────────────


def read_visible_position(connection: Connection, name: TargetName) -> Position:
    """The position; empty if the role may not read it."""
    try:
        with connection.transaction():
            return read_position(connection, str(name))
    except psycopg.errors.InsufficientPrivilege:
        return Position()  # the missing right is among the problems


def describe_foreign_rows(name: TargetName) -> str:
    return (
        f"{name} holds rows that did not come from this source (it has no position): empty it, name another table, "
        "or take it over with `deltarelay position adopt`"
    )


def describe_lost_rows(name: TargetName) -> str:
    return (
        f"{name} is empty, although the last step left rows in it or did not record whether it did: the table was "
        "truncated, "
        "dropped and created again, or emptied by a crash of the server"
    )


def _has_lost_rows(connection: Connection, name: TargetName) -> bool:
    try:
        with connection.transaction():
            return not migrations.has_holds_rows(connection) or find_lost_rows(connection, name)
    except psycopg.errors.InsufficientPrivilege:
        return False  # the missing right is among the problems


# ── the database ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _DatabaseRow:
    encoding: str
    version: int
    has_schema: bool
    may_use_schema: bool
    may_create_in_schema: bool
    has_target: bool
    has_own_schema: bool
    may_use_own_schema: bool
    may_create_schema: bool
    has_position_table: bool
    owns_position_table: bool
    may_write_position: bool
    may_record_migrations: bool


def database_problems(connection: Connection, name: TargetName, state_ddl: Sequence[str]) -> list[str]:
    """``state_ddl``: what the tables of the schema deltarelay lack."""
    cursor = connection.cursor(row_factory=class_row(_DatabaseRow))
    found = cursor.execute(
        """
        select current_setting('server_encoding') as encoding, current_setting('server_version_num')::int as version,
               s.oid is not null as has_schema, has_schema_privilege(s.oid, 'usage') as may_use_schema,
               has_schema_privilege(s.oid, 'create') as may_create_in_schema,
               t.oid is not null as has_target,
               o.oid is not null as has_own_schema,
               has_schema_privilege(o.oid, 'usage') and has_schema_privilege(o.oid, 'create') as may_use_own_schema,
               has_database_privilege(current_database(), 'create') as may_create_schema,
               p.oid is not null as has_position_table,
               coalesce(pg_has_role(p.relowner, 'usage'), false) as owns_position_table,
               has_table_privilege(p.oid, 'select') and has_table_privilege(p.oid, 'insert')
                   and has_table_privilege(p.oid, 'update') as may_write_position,
               v.oid is null or has_table_privilege(v.oid, 'insert') as may_record_migrations
          from (select 1) one
          left join pg_namespace s on s.nspname = %(schema)s
          left join pg_class t on t.relnamespace = s.oid and t.relname = %(table)s
          left join pg_namespace o on o.nspname = 'deltarelay'
          left join pg_class p on p.relnamespace = o.oid and p.relname = 'position'
          left join pg_class v on v.relnamespace = o.oid and v.relname = 'schema_version'
        """,
        {"schema": name.schema, "table": name.table},
    ).fetchone()
    assert found is not None
    problems = []
    if found.encoding != "UTF8":
        problems.append(f"the database is encoded in {found.encoding}: only UTF8 can hold every text")
    if found.version < 140000:
        problems.append("the server is older than PostgreSQL 14")
    # ADBC looks up types by printed names when it connects, before any setting can be pinned
    if connection.execute("select reset_val from pg_settings where name = 'quote_all_identifiers'").fetchone() == (
        "on",
    ):
        problems.append(
            "the role has quote_all_identifiers = on, with which rows cannot be copied: turn it off for the role"
        )
    if not found.has_schema:
        problems.append(f"schema {name.schema!r} does not exist: create it, or name another one in the table")
    elif not found.may_use_schema:
        problems.append(f"the role may not use schema {name.schema!r}: grant usage on it")
    elif not found.has_target and not found.may_create_in_schema:
        problems.append(f"the role may not create tables in schema {name.schema!r}")
    if not found.has_own_schema and not found.may_create_schema:
        problems.append(
            "the role may not create the schema deltarelay: grant create on the database, "
            "or let its owner run: create schema deltarelay authorization <role>"
        )
    if found.has_own_schema and not found.may_use_own_schema:
        problems.append("the role may not use and create in schema deltarelay: grant usage, create on it")
    if found.has_position_table and not found.may_write_position:
        problems.append("the role may not write deltarelay.position: grant select, insert, update on it")
    alters = any(statement.startswith("alter ") for statement in state_ddl) and not found.owns_position_table
    records = any(statement.startswith("insert ") for statement in state_ddl) and not found.may_record_migrations
    if found.has_position_table and (alters or records):
        problems.append(
            "the tables of the schema deltarelay are of an earlier version, and the role does not own them: let their owner "
            "run: " + "; ".join(" ".join(statement.split()) for statement in state_ddl)
        )
    return problems
