"""Statements that create tables and add columns and keys. Nothing is executed here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from connectors.postgres.column_mapping import METADATA_TYPES
from connectors.postgres.sql_parts import TargetName
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "FILLFACTOR",
    "MADE_BY_US",
    "add_column",
    "add_comment",
    "add_missing_columns",
    "add_primary_key",
    "create_staging",
    "create_table",
    "create_target",
]

FILLFACTOR = 70
"""Leaves room on each page for new row versions: updates then stay on their page and change no index (HOT)."""
MADE_BY_US = "made and kept by deltarelay"
"""The comment on tables that we created: a reload may replace such a table. Users who want to keep a table change its
comment."""


def create_target(name: TargetName, schema: StructType, key: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """The statements that create a target."""
    return (
        create_table(name.identifier, schema, own),
        add_primary_key(name.identifier, key),
        add_comment(name.identifier),
    )


def create_table(
    name: sql.Identifier, schema: StructType, own: Sequence[str] = (), *, logged: bool = True, key: Sequence[str] = ()
) -> str:
    """CREATE TABLE with the types of this package; the key is added after the rows. Columns of ``key`` are NOT NULL from the
    start: otherwise ADD PRIMARY KEY reads all rows once more for it."""
    columns = [
        (field.name, f"{target_type(field.dataType)}{' not null' if field.name in key else ''}")
        for field in schema.fields
    ]
    return _create(name, [*columns, *((column, METADATA_TYPES[column]) for column in own)], logged=logged)


def _create(name: sql.Identifier, columns: Iterable[tuple[str, str]], *, logged: bool) -> str:
    body = sql.SQL(", ").join(sql.SQL("{} ").format(sql.Identifier(column)) + sql.SQL(kind) for column, kind in columns)
    statement = (
        sql.SQL("create {} {} ({})").format(sql.SQL("table" if logged else "unlogged table"), name, body).as_string()
    )
    return statement + (f" with (fillfactor = {FILLFACTOR})" if logged else "")


def create_staging(name: sql.Identifier, columns: Sequence[tuple[str, str]]) -> str:
    """UNLOGGED saves half the WAL. A server crash empties the table; the recount before applying detects that."""
    return _create(name, columns, logged=False)


def add_primary_key(name: sql.Identifier, key: Sequence[str]) -> str:
    columns = sql.SQL(", ").join(map(sql.Identifier, key))
    return sql.SQL("alter table {} add primary key ({})").format(name, columns).as_string()


def add_comment(name: sql.Identifier) -> str:
    return sql.SQL("comment on table {} is {}").format(name, sql.Literal(MADE_BY_US)).as_string()


def add_column(name: sql.Identifier, column: str, kind: str) -> str:
    return sql.SQL("alter table {} add column {} ").format(name, sql.Identifier(column)).as_string() + kind


def add_missing_columns(
    name: TargetName, present: Collection[str], schema: StructType, own: Sequence[str] = ()
) -> list[str]:
    """The statements that add the columns of ``schema``, and ``own`` metadata columns, that are not ``present``."""
    wanted = [(field.name, str(target_type(field.dataType))) for field in schema.fields]
    wanted += [(column, METADATA_TYPES[column]) for column in own]
    return [add_column(name.identifier, column, kind) for column, kind in wanted if column not in present]
