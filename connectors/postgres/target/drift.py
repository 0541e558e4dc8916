"""The target's columns go along with the source's: the statements, run in the transaction of the window's rows.

What would lose or bend a value cannot be followed, and is refused before anything is written (``why_not``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import sql
from pyspark.sql import types as T

from cdf.changes.canonical import is_nested
from cdf.changes.schema_diff import ChangeKind, SchemaChange, pairs, printed_alike, same_shape
from cdf.errors import TargetNotReady
from connectors.postgres.conversions import Found, cast
from connectors.postgres.target.ddl import add_column
from connectors.postgres.types import NativeArray, target_type

if TYPE_CHECKING:
    from connectors.postgres.target.ddl import TargetName

__all__ = ["why_not", "evolution", "alters_type", "dependents"]

Connection = psycopg.Connection[Any]


def why_not(change: SchemaChange) -> str | None:
    """Why the target cannot have the new column, or rows written with the old type not become rows of the new one. None:
    they can."""
    if change.after is not None and target_type(change.after.dataType) is None:
        return "its type has no faithful image in PostgreSQL"
    if change.kind is not ChangeKind.CHANGE_TYPE or change.before is None or change.after is None:
        return None
    before, after = change.before.dataType, change.after.dataType
    if is_nested(before) or is_nested(after):
        try:
            _reshaped(sql.SQL("v"), before, after)
        except _NotFollowed as error:
            return str(error)
        return None
    if isinstance(before, T.DateType) and isinstance(after, T.TimestampNTZType):
        return None  # beyond its last day Spark has no such time either
    old, new = target_type(before), target_type(after)
    widened = None if old is None or new is None else cast(old, Found(new, new))
    # One with a note says the same in another way: an instant is no local time
    if widened is not None and widened.faithful is None and widened.note is None:
        return None
    return "not every value of the old type is one of the new"


def evolution(name: TargetName, drift: Sequence[SchemaChange], found: Mapping[str, Found]) -> list[str]:
    """The statements. What is done already, by hand or for a window before, is left out."""
    table, there = name.identifier, dict(found)
    statements: list[str] = []

    def run(statement: sql.Composed) -> None:
        statements.append(statement.as_string())

    for change in drift:
        if change.after is None and change.before is not None and there.pop(change.before.name, None) is not None:
            run(sql.SQL("alter table {} drop column {}").format(table, sql.Identifier(change.before.name)))
    for old, new in _renames(drift, there):
        run(sql.SQL("alter table {} rename column {} to {}").format(table, sql.Identifier(old), sql.Identifier(new)))
        there[new] = there.pop(old)
    for change in drift:
        if change.kind is ChangeKind.CHANGE_TYPE:
            statements += _retyped(name, change, there)
    for change in drift:
        if change.before is None and change.after is not None and change.after.name not in there:
            statements.append(add_column(table, change.after.name, str(target_type(change.after.dataType))))
    return statements


def _renames(drift: Sequence[SchemaChange], there: Mapping[str, Found]) -> Iterator[tuple[str, str]]:
    """Names may go round in a circle: then by way of names that nobody has."""
    wanted = [
        (change.before.name, change.after.name)
        for change in drift
        if change.kind is ChangeKind.RENAME_COLUMN and change.before is not None and change.after is not None
    ]
    wanted = [(old, new) for old, new in wanted if old != new and old in there]
    taken = {old for old, _ in wanted}
    for number, (old, new) in enumerate(wanted):
        yield old, f"deltarelay rename {number}" if new in taken else new
    for number, (_, new) in enumerate(wanted):
        if new in taken:
            yield f"deltarelay rename {number}", new


def alters_type(change: SchemaChange, held: Found) -> bool:
    """Whether the target's column gets another type; one that somebody else chose is left to them."""
    if change.before is None or change.after is None:
        return False
    return held.type == target_type(change.before.dataType) != target_type(change.after.dataType)


def _retyped(name: TargetName, change: SchemaChange, there: Mapping[str, Found]) -> Iterator[str]:
    assert change.before is not None
    assert change.after is not None
    column, held = change.after.name, there.get(change.after.name)
    if held is None:
        return
    new = target_type(change.after.dataType)
    assert new is not None  # refused by ``why_not`` otherwise
    if is_nested(change.after.dataType) and not isinstance(change.after.dataType, NativeArray):
        value = sql.SQL("{}::jsonb").format(sql.Identifier(column))
        made = _reshaped(value, change.before.dataType, change.after.dataType)
        if made is not value:
            yield (
                sql.SQL("update {} set {} = ({})::{}")
                .format(name.identifier, sql.Identifier(column), made, sql.SQL(held.type))
                .as_string()
            )
        return
    if alters_type(change, held):
        statement = sql.SQL("alter table {} alter column {} type {} using {}::{}")
        kind, identifier = sql.SQL(new), sql.Identifier(column)
        yield statement.format(name.identifier, identifier, kind, identifier, kind).as_string()
    elif cast(new, held) is None:
        raise TargetNotReady(
            f"{name}: column {column!r} is {held.type}, and the source's is {new} from now on",
            hint="alter the target's column to a type that holds it, and run again",
        )


def dependents(
    connection: Connection, name: TargetName, column: str, *, altered: Literal["dropped", "retyped"]
) -> list[str]:
    """What PostgreSQL would not let a column be dropped, or be given another type for. In its own words."""
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
select 'the way in which the table is partitioned'
  from it join pg_partitioned_table p on p.partrelid = it.attrelid and it.attnum = any (p.partattrs)
 order by 1
"""
# What goes with the column, such as its indexes and checks, depends on it as well, but automatically
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


# ── JSON: rows that were written before have the shape from before ───────────────────────────────────────────────────


class _NotFollowed(Exception):
    pass


def _reshaped(value: sql.Composable, before: T.DataType, after: T.DataType) -> sql.Composable:
    """``value``, a jsonb expression of the old type's shape, in that of the new. The same object where nothing changes."""
    if same_shape(before, after):
        return value
    if isinstance(before, T.StructType) and isinstance(after, T.StructType):
        return _only(value, "object", _struct(value, before, after))
    if isinstance(before, T.ArrayType) and isinstance(after, T.ArrayType):
        element = sql.SQL("e.value")
        made = _reshaped(element, before.elementType, after.elementType)
        if made is element:
            return value
        query = (
            "(select coalesce(jsonb_agg({} order by e.ordinality), '[]') "
            "from jsonb_array_elements({}) with ordinality e)"
        )
        return _only(value, "array", sql.SQL(query).format(made, value))
    if isinstance(before, T.MapType) and isinstance(after, T.MapType):
        if before.keyType != after.keyType:
            raise _NotFollowed("the type of a map's keys changed")
        element = sql.SQL("e.value")
        made = _reshaped(element, before.valueType, after.valueType)
        if made is element:
            return value
        query = "(select coalesce(jsonb_object_agg(e.key, {}), '{{}}') from jsonb_each({}) e)"
        return _only(value, "object", sql.SQL(query).format(made, value))
    if printed_alike(before, after):
        return value
    raise _NotFollowed(f"{before.simpleString()} to {after.simpleString()} inside of a nested value")


def _struct(value: sql.Composable, before: T.StructType, after: T.StructType) -> sql.Composed:
    parts: list[sql.Composable] = []
    for former, field in pairs(before, after):
        if field is None:
            continue
        name = sql.Literal(field.name)
        if former is None:
            parts.append(sql.SQL("{}, null").format(name))
            continue
        held = sql.SQL("({} -> {})").format(value, sql.Literal(former.name))
        parts.append(sql.SQL("{}, {}").format(name, _reshaped(held, former.dataType, field.dataType)))
    # A function takes no more than 100 arguments
    objects = [
        sql.SQL("jsonb_build_object({})").format(sql.SQL(", ").join(parts[at : at + 50]))
        for at in range(0, max(len(parts), 1), 50)
    ]
    return sql.SQL("({})").format(sql.SQL(" || ").join(objects))


def _only(value: sql.Composable, kind: str, made: sql.Composable) -> sql.Composable:
    return sql.SQL("case when jsonb_typeof({}) = {} then {} else {} end").format(value, sql.Literal(kind), made, value)
