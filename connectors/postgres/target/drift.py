"""ALTER TABLE for schema drift, so that the target's columns follow the source's.

The statements are executed in the transaction of the window's rows. A change that would lose or alter a value cannot be
followed, and is refused before anything is written (``why_not_followed``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import psycopg
from psycopg import sql
from pyspark.sql import types as T

from cdf.changes.canonical import is_nested
from cdf.changes.schema_diff import ChangeKind, SchemaChange, pairs, printed_alike, same_shape
from cdf.errors import TargetNotReady
from connectors.postgres.conversions import ColumnType, find_cast
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.target.ddl import add_column
from connectors.postgres.types import NativeArray, target_type

__all__ = ["alters_type", "drift_ddl", "read_dependents", "why_not_followed"]

Connection = psycopg.Connection[Any]


def why_not_followed(change: SchemaChange) -> str | None:
    """Why the target cannot have the new column, or cannot convert its rows to the new type. None: it can."""
    if change.after is not None and target_type(change.after.dataType) is None:
        return "its type has no faithful image in PostgreSQL"
    if change.kind is not ChangeKind.CHANGE_TYPE or change.before is None or change.after is None:
        return None
    before, after = change.before.dataType, change.after.dataType
    if is_nested(before) or is_nested(after):
        try:
            _reshape_json(sql.SQL("v"), before, after)
        except _NotFollowed as error:
            return str(error)
        return None
    if isinstance(before, T.DateType) and isinstance(after, T.TimestampNTZType):
        return None  # both types of Spark end on the same day
    old, new = target_type(before), target_type(after)
    widened = None if old is None or new is None else find_cast(old, ColumnType(new, new))
    # A cast with a note changes the meaning: an instant is no local time
    if widened is not None and widened.faithful is None and widened.note is None:
        return None
    return "the new type cannot hold every value of the old type"


def drift_ddl(name: TargetName, drift: Sequence[SchemaChange], types: Mapping[str, ColumnType]) -> list[str]:
    """The statements, without those that a user or an earlier window has executed already. ``types``: of the target's
    columns. Raises TargetNotReady if a column's type cannot hold the source's."""
    table, columns = name.identifier, dict(types)
    statements: list[str] = []

    def run(statement: sql.Composed) -> None:
        statements.append(statement.as_string())

    for change in drift:
        if change.after is None and change.before is not None and columns.pop(change.before.name, None) is not None:
            run(sql.SQL("alter table {} drop column {}").format(table, sql.Identifier(change.before.name)))
    for old, new in _renames(drift, columns):
        run(sql.SQL("alter table {} rename column {} to {}").format(table, sql.Identifier(old), sql.Identifier(new)))
        columns[new] = columns.pop(old)
    for change in drift:
        if change.kind is ChangeKind.CHANGE_TYPE:
            statements += _retype_column(name, change, columns)
    for change in drift:
        if change.before is None and change.after is not None and change.after.name not in columns:
            statements.append(add_column(table, change.after.name, str(target_type(change.after.dataType))))
    return statements


def _renames(drift: Sequence[SchemaChange], columns: Mapping[str, ColumnType]) -> Iterator[tuple[str, str]]:
    """Old and new name of each step. Columns that swap names get temporary names in between."""
    wanted = [
        (change.before.name, change.after.name)
        for change in drift
        if change.kind is ChangeKind.RENAME_COLUMN and change.before is not None and change.after is not None
    ]
    wanted = [(old, new) for old, new in wanted if old != new and old in columns]
    taken = {old for old, _ in wanted}
    for number, (old, new) in enumerate(wanted):
        yield old, f"deltarelay rename {number}" if new in taken else new
    for number, (_, new) in enumerate(wanted):
        if new in taken:
            yield f"deltarelay rename {number}", new


def alters_type(change: SchemaChange, present: ColumnType) -> bool:
    """Whether the target's column gets another type. A type that a user chose is not altered."""
    if change.before is None or change.after is None:
        return False
    return present.type == target_type(change.before.dataType) != target_type(change.after.dataType)


def _retype_column(name: TargetName, change: SchemaChange, columns: Mapping[str, ColumnType]) -> Iterator[str]:
    assert change.before is not None
    assert change.after is not None
    column, present = change.after.name, columns.get(change.after.name)
    if present is None:
        return
    new = target_type(change.after.dataType)
    assert new is not None  # otherwise ``why_not_followed`` has refused the change
    if is_nested(change.after.dataType) and not isinstance(change.after.dataType, NativeArray):
        value = sql.SQL("{}::jsonb").format(sql.Identifier(column))
        converted = _reshape_json(value, change.before.dataType, change.after.dataType)
        if converted is not value:
            yield (
                sql.SQL("update {} set {} = ({})::{}")
                .format(name.identifier, sql.Identifier(column), converted, sql.SQL(present.type))
                .as_string()
            )
        return
    if alters_type(change, present):
        statement = sql.SQL("alter table {} alter column {} type {} using {}::{}")
        kind, identifier = sql.SQL(new), sql.Identifier(column)
        yield statement.format(name.identifier, identifier, kind, identifier, kind).as_string()
    elif find_cast(new, present) is None:
        raise TargetNotReady(
            f"{name}: column {column!r} is {present.type}, and the source's is {new} from now on",
            hint="alter the target's column to a type that holds it, and run again",
        )


def read_dependents(
    connection: Connection, name: TargetName, column: str, *, altered: Literal["dropped", "retyped"]
) -> list[str]:
    """Objects for which PostgreSQL would refuse to drop or retype the column, as PostgreSQL describes them."""
    rows = connection.execute(
        _DROPPED_FROM if altered == "dropped" else _TYPE_IN,
        {"schema": name.schema, "table": name.table, "column": column},
    )
    return [found.removeprefix("rule _RETURN on ") for (found,) in rows]


_COLUMN = """
with it as (
    select a.attrelid, a.attnum
      from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = %(schema)s and c.relname = %(table)s and a.attname = %(column)s
)
select pg_describe_object(d.classid, d.objid, d.objsubid)
  from it join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = it.attrelid and d.refobjsubid = it.attnum
"""
_PARTITIONED = """
union
select 'the partition key of the table'
  from it join pg_partitioned_table p on p.partrelid = it.attrelid and it.attnum = any (p.partattrs)
 order by 1
"""
# Objects that are dropped with the column, such as its indexes and checks, have another deptype
_DROPPED_FROM = f"""{_COLUMN}
 where d.deptype = 'n'
   and not exists (select from pg_depend o
                    where o.classid = d.classid and o.objid = d.objid and o.objsubid = d.objsubid
                      and o.refclassid = d.refclassid and o.refobjid = d.refobjid and o.refobjsubid = d.refobjsubid
                      and o.deptype <> 'n')
{_PARTITIONED}"""
_TYPE_IN = f"""{_COLUMN}
 where d.classid in ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass, 'pg_proc'::regclass,
                     'pg_publication_rel'::regclass)
    or d.classid = 'pg_attrdef'::regclass
       and exists (select from pg_attrdef x where x.oid = d.objid and x.adnum <> it.attnum)
{_PARTITIONED}"""


# ── JSON: earlier rows have the structure of the old type ────────────────────────────────────────────────────────────


class _NotFollowed(Exception):
    """The message is the reason."""


def _reshape_json(value: sql.Composable, before: T.DataType, after: T.DataType) -> sql.Composable:
    """Convert ``value``, a jsonb expression with the structure of the old type, to that of the new one. Returns the same
    object if nothing changes."""
    if same_shape(before, after):
        return value
    if isinstance(before, T.StructType) and isinstance(after, T.StructType):
        return _if_type(value, "object", _reshape_struct(value, before, after))
    if isinstance(before, T.ArrayType) and isinstance(after, T.ArrayType):
        element = sql.SQL("e.value")
        converted = _reshape_json(element, before.elementType, after.elementType)
        if converted is element:
            return value
        query = (
            "(select coalesce(jsonb_agg({} order by e.ordinality), '[]') "
            "from jsonb_array_elements({}) with ordinality e)"
        )
        return _if_type(value, "array", sql.SQL(query).format(converted, value))
    if isinstance(before, T.MapType) and isinstance(after, T.MapType):
        if before.keyType != after.keyType:
            raise _NotFollowed("the type of a map's keys changed")
        element = sql.SQL("e.value")
        converted = _reshape_json(element, before.valueType, after.valueType)
        if converted is element:
            return value
        query = "(select coalesce(jsonb_object_agg(e.key, {}), '{{}}') from jsonb_each({}) e)"
        return _if_type(value, "object", sql.SQL(query).format(converted, value))
    if printed_alike(before, after):
        return value
    raise _NotFollowed(f"{before.simpleString()} to {after.simpleString()} inside of a nested value")


def _reshape_struct(value: sql.Composable, before: T.StructType, after: T.StructType) -> sql.Composed:
    parts: list[sql.Composable] = []
    for former, field in pairs(before, after):
        if field is None:
            continue
        name = sql.Literal(field.name)
        if former is None:
            parts.append(sql.SQL("{}, null").format(name))
            continue
        member = sql.SQL("({} -> {})").format(value, sql.Literal(former.name))
        parts.append(sql.SQL("{}, {}").format(name, _reshape_json(member, former.dataType, field.dataType)))
    # A function takes no more than 100 arguments
    objects = [
        sql.SQL("jsonb_build_object({})").format(sql.SQL(", ").join(parts[at : at + 50]))
        for at in range(0, max(len(parts), 1), 50)
    ]
    return sql.SQL("({})").format(sql.SQL(" || ").join(objects))


def _if_type(value: sql.Composable, kind: str, converted: sql.Composable) -> sql.Composable:
    return sql.SQL("case when jsonb_typeof({}) = {} then {} else {} end").format(
        value, sql.Literal(kind), converted, value
    )
