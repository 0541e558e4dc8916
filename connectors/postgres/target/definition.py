"""The definition of a table, as far as it can be copied to another one, and its dependents, which cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from connectors.postgres.target import catalog
from connectors.postgres.target.ddl import MADE_BY_US
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

    from connectors.postgres.sql_parts import TargetName

__all__ = ["Column", "Constraint", "Grant", "Index", "TableDefinition", "create_like", "read_definition", "read_grants"]

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    not_null: bool
    generated: str | None
    """The expression of a generated column."""
    virtual: bool
    generated_from: frozenset[str]
    identity: bool
    default: str | None
    collation: str | None
    storage: str | None
    compression: str | None
    statistics: int | None
    options: tuple[str, ...]
    comment: str | None


@dataclass(frozen=True, slots=True)
class Index:
    name: str
    unique: bool
    definition: str
    """The part of CREATE INDEX from USING on."""
    columns: frozenset[str]
    """All columns that it uses."""
    key: frozenset[str] | None
    """The columns by which it identifies a row; None if it does not."""
    constraint: str | None
    constraint_kind: str | None
    constraint_definition: str | None
    attached: bool
    """Its constraint can be added with USING INDEX; otherwise adding the constraint creates the index."""
    deferrable: str
    tablespace: str | None
    clustered: bool
    identity: bool
    comment: str | None
    constraint_comment: str | None


@dataclass(frozen=True, slots=True)
class Constraint:
    """A check, or (from PostgreSQL 18 on) a named NOT NULL."""

    name: str
    not_null: bool
    definition: str
    columns: frozenset[str]
    comment: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    column: str | None
    role: str | None
    """None: public."""
    privilege: str
    grantable: bool


@dataclass(frozen=True, slots=True)
class TableDefinition:
    oid: int
    owner: str
    owned_by_us: bool
    unlogged: bool
    options: tuple[str, ...]
    access_method: str
    tablespace: str | None
    replica_identity: str
    comment: str | None
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    constraints: tuple[Constraint, ...]
    grants: frozenset[Grant]
    dependents: tuple[str, ...]
    """Objects that would be lost or broken if another table took its place, as PostgreSQL describes them."""

    @property
    def made_by_us(self) -> bool:
        return self.comment == MADE_BY_US

    def kept_columns(self, schema: StructType) -> tuple[Column, ...]:
        """The columns that a table for this schema keeps: those of the source, and generated ones."""
        names = set(schema.fieldNames())
        return tuple(column for column in self.columns if column.name in names or column.generated is not None)

    def user_columns(self, schema: StructType) -> tuple[Column, ...]:
        """Columns of the users, whose values the source cannot supply: those with a default or an identity."""
        names = set(schema.fieldNames())
        return tuple(
            column
            for column in self.columns
            if column.name not in names and column.generated is None and (column.identity or column.default is not None)
        )

    def former_columns(self, schema: StructType) -> tuple[Column, ...]:
        """All other columns: the source must have had them once."""
        others = {column.name for column in (*self.kept_columns(schema), *self.user_columns(schema))}
        return tuple(column for column in self.columns if column.name not in others)


def read_definition(connection: Connection, name: TargetName) -> TableDefinition | None:
    """The table as the running transaction sees it, or None if no table has this name."""
    row = connection.execute(catalog.TABLE, {"schema": name.schema, "table": name.table}).fetchone()
    if row is None:
        return None
    oid = {"oid": row[0]}
    return TableDefinition(
        oid=row[0],
        owner=row[1],
        owned_by_us=row[2],
        unlogged=row[3] == "u",
        options=tuple(row[4]),
        access_method=row[5],
        tablespace=row[6],
        replica_identity=row[7],
        comment=row[8],
        columns=tuple(_column_of_row(found) for found in connection.execute(catalog.COLUMNS, oid)),
        indexes=tuple(_index_of_row(found) for found in connection.execute(catalog.INDEXES, oid)),
        constraints=tuple(
            Constraint(found[0], found[1], found[2], frozenset(found[3]), found[4])
            for found in connection.execute(catalog.CONSTRAINTS, oid)
        ),
        grants=read_grants(connection, row[0]),
        dependents=tuple(
            found.removeprefix("rule _RETURN on ") for (found,) in connection.execute(catalog.DEPENDENTS, oid)
        ),
    )


def read_grants(connection: Connection, oid: int) -> frozenset[Grant]:
    return frozenset(Grant(*row) for row in connection.execute(catalog.GRANTS, {"oid": oid}))


def _column_of_row(row: tuple[Any, ...]) -> Column:
    name, kind, not_null, generated, identity, expression, used, collation, storage, compression = row[:10]
    return Column(
        name=name,
        type=kind,
        not_null=not_null,
        generated=expression if generated else None,
        virtual=generated == "v",
        generated_from=frozenset(used) if generated else frozenset(),
        identity=bool(identity),
        default=None if generated else expression,
        collation=collation,
        storage=storage,
        compression=compression or None,
        statistics=row[10],
        options=tuple(row[11]),
        comment=row[12],
    )


def _index_of_row(row: tuple[Any, ...]) -> Index:
    name, unique, definition, prefix, columns, key = row[:6]
    rest = definition[len(prefix) :] if definition.startswith(prefix) else definition.partition(" USING ")[2]
    rest = rest if rest.startswith("USING ") else f"USING {rest}"
    return Index(name, unique, rest, frozenset(columns), None if key is None else frozenset(key), *row[6:])


# ── CREATE TABLE with the same definition ────────────────────────────────────────────────────────────────────────────


def create_like(name: sql.Identifier, definition: TableDefinition, schema: StructType) -> str:
    """CREATE TABLE with the old columns in their order, then the new ones, with the types of this package."""
    types = {field.name: str(target_type(field.dataType)) for field in schema.fields}
    old = definition.kept_columns(schema)
    known = {column.name for column in old}
    columns = [_declare_column(column, types.get(column.name, column.type)) for column in old]
    columns += [
        sql.SQL("{} ").format(sql.Identifier(new)) + sql.SQL(kind) for new, kind in types.items() if new not in known
    ]
    parts = [
        # LOGGED even if the old table was UNLOGGED, which a crash of the server would empty
        sql.SQL("create table {} ({}) using {}").format(
            name,
            sql.SQL(", ").join(columns),
            sql.Identifier(definition.access_method),
        )
    ]
    if definition.options:
        parts.append(sql.SQL("with ({})").format(format_options(definition.options)))
    if definition.tablespace is not None:
        parts.append(sql.SQL("tablespace {}").format(sql.Identifier(definition.tablespace)))
    return sql.SQL(" ").join(parts).as_string()


def format_options(options: Iterable[str]) -> sql.Composed:
    """``name=value`` pairs of the catalog in the form of a statement."""
    pairs = (option.partition("=") for option in options)
    return sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.SQL(".").join(map(sql.Identifier, name.split("."))), sql.Literal(value))
        for name, _, value in pairs
    )


def _declare_column(column: Column, kind: str) -> sql.Composed:
    parts: list[sql.Composable] = [sql.SQL("{} ").format(sql.Identifier(column.name)) + sql.SQL(kind)]
    if column.collation is not None and column.type == kind:
        parts.append(sql.SQL("collate " + column.collation))
    if column.generated is not None:
        stored = "virtual" if column.virtual else "stored"
        parts.append(sql.SQL(f"generated always as ({column.generated}) {stored}"))
    return sql.SQL(" ").join(parts)
