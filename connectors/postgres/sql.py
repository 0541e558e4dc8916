"""The statements that apply a window, composed once per target and schema. Every identifier is quoted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from cdf.change import DELETE, INSERT, UPDATE
from connectors.postgres.staging import ATTEMPT, CODES, OPERATION, SCHEMA
from connectors.postgres.types import staging_type, target_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from connectors.postgres.schema import TargetName

__all__ = ["ApplyStatements", "apply_statements", "insert_all"]


@dataclass(frozen=True, slots=True)
class ApplyStatements:
    """Each but the last takes one parameter, ``attempts``: the list of attempt ids that count."""

    recount: sql.Composed
    """→ (operation, rows)"""
    delete: sql.Composed
    update: sql.Composed
    """→ (rows that had to be inserted, all rows)"""
    insert: sql.Composed
    """→ (rows inserted, all rows); an insert onto an existing row overwrites it"""
    clear_some: sql.Composed
    truncate: sql.Composed


class _Name(sql.Identifier):
    """An identifier in a statement with parameters: psycopg looks for its placeholders inside of names too."""

    def as_bytes(self, context: Any = None) -> bytes:
        return bytes(super().as_bytes(context)).replace(b"%", b"%%")


def apply_statements(
    target: TargetName, staging: str, schema: StructType, key: Sequence[str], *, partitioned: bool
) -> ApplyStatements:
    into, stage = _Name(target.schema, target.table), _Name(SCHEMA, staging)
    operation = _Name(OPERATION)
    counting = sql.SQL("{} = any(%(attempts)s)").format(_Name(ATTEMPT))
    numbered = {field.name: _Name(f"c{number}") for number, field in enumerate(schema.fields)}

    def only(kind: str) -> sql.Composed:
        return sql.SQL("{} and {} = {}").format(counting, operation, sql.Literal(CODES[kind]))

    matches = sql.SQL(" and ").join(sql.SQL("t.{} = s.{}").format(_Name(name), numbered[name]) for name in key)

    def upsert(kind: str) -> sql.Composed:
        statement = _upsert(into, stage, schema, key, numbered, only(kind))
        if not partitioned:
            # xmax is 0 for a row that this statement inserted, and not for one it updated
            return sql.SQL(
                "with applied as ({} returning (xmax = 0) as fresh) "
                "select count(*) filter (where fresh), count(*) from applied"
            ).format(statement)
        # A partitioned table has no xmax. All parts of a statement see the rows from before it.
        return sql.SQL(
            "with met as (select count(*) as rows from {} t join {} s on {} where s.{}), "
            "applied as ({} returning 1), total as (select count(*) as rows from applied) "
            "select total.rows - met.rows, total.rows from met, total"
        ).format(into, stage, matches, only(kind), statement)

    return ApplyStatements(
        recount=sql.SQL("select {0}, count(*) from {1} where {2} group by {0}").format(operation, stage, counting),
        # First of all: a key that leaves makes room for whatever comes after it
        delete=sql.SQL("delete from {} t using {} s where {} and s.{}").format(into, stage, matches, only(DELETE)),
        update=upsert(UPDATE),
        insert=upsert(INSERT),
        clear_some=sql.SQL("delete from {} where {}").format(stage, counting),
        truncate=sql.SQL("truncate {}").format(sql.Identifier(SCHEMA, staging)),
    )


def _upsert(
    target: _Name,
    staging: _Name,
    schema: StructType,
    key: Sequence[str],
    numbered: dict[str, _Name],
    condition: sql.Composed,
) -> sql.Composed:
    names = [field.name for field in schema.fields]
    values = [
        sql.SQL("{}::jsonb").format(numbered[field.name])
        if staging_type(field.dataType) != target_type(field.dataType)
        else sql.SQL("{}").format(numbered[field.name])
        for field in schema.fields
    ]
    others = [name for name in names if name not in key]
    # A table of nothing but its key: writing the key onto itself keeps the count of rows met
    assigned = [sql.SQL("{0} = excluded.{0}").format(_Name(name)) for name in (others or key[:1])]
    # Sorted by key: the index pages are touched one after the other (a third faster on random keys)
    return sql.SQL(
        "insert into {target} ({columns}) select {values} from {staging} where {condition} order by {order} "
        "on conflict ({key}) do update set {assigned}"
    ).format(
        target=target,
        columns=sql.SQL(", ").join(map(_Name, names)),
        values=sql.SQL(", ").join(values),
        staging=staging,
        condition=condition,
        order=sql.SQL(", ").join(numbered[name] for name in key),
        key=sql.SQL(", ").join(map(_Name, key)),
        assigned=sql.SQL(", ").join(assigned),
    )


def insert_all(target: sql.Identifier, loaded: sql.Identifier, schema: StructType) -> sql.Composed:
    columns = sql.SQL(", ").join(sql.Identifier(name) for name in schema.fieldNames())
    return sql.SQL("insert into {} ({}) select {} from {}").format(target, columns, columns, loaded)
