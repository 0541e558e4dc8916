"""What a table is besides its rows, as far as another table can be given the same; and what hangs on it, which cannot."""

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

    from connectors.postgres.target.ddl import TargetName

__all__ = ["Shape", "Column", "Index", "Constraint", "Grant", "read_shape", "granted", "create_shaped"]

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
    """From USING on."""
    columns: frozenset[str]
    """Everything that it looks at."""
    key: frozenset[str] | None
    """The columns that it alone identifies a row by; None for one that does not."""
    constraint: str | None
    constraint_kind: str | None
    constraint_definition: str | None
    attached: bool
    """Its constraint can be made from the index; otherwise the constraint makes the index."""
    deferrable: str
    tablespace: str | None
    clustered: bool
    identity: bool
    comment: str | None
    constraint_comment: str | None


@dataclass(frozen=True, slots=True)
class Constraint:
    """A check, or (from PostgreSQL 18 on) a NOT NULL with a name."""

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
class Shape:
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
    """What another table in its place would lose or break, in PostgreSQL's words."""

    @property
    def made_by_us(self) -> bool:
        return self.comment == MADE_BY_US

    def kept(self, schema: StructType) -> tuple[Column, ...]:
        """The columns that a table for this schema keeps: the source's own, and generated ones."""
        names = set(schema.fieldNames())
        return tuple(column for column in self.columns if column.name in names or column.generated is not None)

    def own(self, schema: StructType) -> tuple[Column, ...]:
        """Columns that hold something which the source cannot give again: a default or an identity tells them."""
        names = set(schema.fieldNames())
        return tuple(
            column
            for column in self.columns
            if column.name not in names and column.generated is None and (column.identity or column.default is not None)
        )

    def left_over(self, schema: StructType) -> tuple[Column, ...]:
        """Columns that the source must have had once."""
        there = {column.name for column in (*self.kept(schema), *self.own(schema))}
        return tuple(column for column in self.columns if column.name not in there)


def read_shape(connection: Connection, name: TargetName) -> Shape | None:
    """The table as the running transaction sees it, or None where there is none of that name."""
    row = connection.execute(catalog.TABLE, {"schema": name.schema, "table": name.table}).fetchone()
    if row is None:
        return None
    oid = {"oid": row[0]}
    return Shape(
        oid=row[0],
        owner=row[1],
        owned_by_us=row[2],
        unlogged=row[3] == "u",
        options=tuple(row[4]),
        access_method=row[5],
        tablespace=row[6],
        replica_identity=row[7],
        comment=row[8],
        columns=tuple(_column(found) for found in connection.execute(catalog.COLUMNS, oid)),
        indexes=tuple(_index(found) for found in connection.execute(catalog.INDEXES, oid)),
        constraints=tuple(
            Constraint(found[0], found[1], found[2], frozenset(found[3]), found[4])
            for found in connection.execute(catalog.CONSTRAINTS, oid)
        ),
        grants=granted(connection, row[0]),
        dependents=tuple(
            found.removeprefix("rule _RETURN on ") for (found,) in connection.execute(catalog.DEPENDENTS, oid)
        ),
    )


def granted(connection: Connection, oid: int) -> frozenset[Grant]:
    return frozenset(Grant(*row) for row in connection.execute(catalog.GRANTS, {"oid": oid}))


def _column(row: tuple[Any, ...]) -> Column:
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


def _index(row: tuple[Any, ...]) -> Index:
    name, unique, definition, prefix, columns, key = row[:6]
    rest = definition[len(prefix) :] if definition.startswith(prefix) else definition.partition(" USING ")[2]
    rest = rest if rest.startswith("USING ") else f"USING {rest}"
    return Index(name, unique, rest, frozenset(columns), None if key is None else frozenset(key), *row[6:])


# ── what it takes to make a table of that shape ──────────────────────────────────────────────────────────────────────


def create_shaped(name: sql.Identifier, shape: Shape, schema: StructType) -> str:
    """CREATE TABLE with the old columns in their order, then those that are new, with the types of this package."""
    types = {field.name: str(target_type(field.dataType)) for field in schema.fields}
    old = shape.kept(schema)
    known = {column.name for column in old}
    columns = [_declared(column, types.get(column.name, column.type)) for column in old]
    columns += [
        sql.SQL("{} ").format(sql.Identifier(new)) + sql.SQL(kind) for new, kind in types.items() if new not in known
    ]
    parts = [
        # Also in the place of an UNLOGGED one, which a crash of the server would empty
        sql.SQL("create table {} ({}) using {}").format(
            name,
            sql.SQL(", ").join(columns),
            sql.Identifier(shape.access_method),
        )
    ]
    if shape.options:
        parts.append(sql.SQL("with ({})").format(options_of(shape.options)))
    if shape.tablespace is not None:
        parts.append(sql.SQL("tablespace {}").format(sql.Identifier(shape.tablespace)))
    return sql.SQL(" ").join(parts).as_string()


def options_of(options: Iterable[str]) -> sql.Composed:
    """``name=value`` as the catalog keeps it, in the form of a statement."""
    pairs = (option.partition("=") for option in options)
    return sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.SQL(".").join(map(sql.Identifier, name.split("."))), sql.Literal(value))
        for name, _, value in pairs
    )


def _declared(column: Column, kind: str) -> sql.Composed:
    parts: list[sql.Composable] = [sql.SQL("{} ").format(sql.Identifier(column.name)) + sql.SQL(kind)]
    if column.collation is not None and column.type == kind:
        parts.append(sql.SQL("collate " + column.collation))
    if column.generated is not None:
        stored = "virtual" if column.virtual else "stored"
        parts.append(sql.SQL(f"generated always as ({column.generated}) {stored}"))
    return sql.SQL(" ").join(parts)
