"""Give a loaded table the definition of the table that it will replace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from connectors.postgres.target.ddl import add_primary_key
from connectors.postgres.target.definition import Constraint, Grant, Index, TableDefinition, read_grants
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot
    from connectors.postgres.client import Session

__all__ = ["DefinitionCloner"]

Connection = psycopg.Connection[Any]


class DefinitionCloner:
    """The statements, in their order. Indexes and their constraints get temporary names until the swap: index names are
    unique in a schema, and two targets that are reloaded may use the same ones."""

    def __init__(self, session: Session, definition: TableDefinition, snapshot: Snapshot) -> None:
        self._definition, self._schema, self._key = definition, snapshot.schema, frozenset(snapshot.key)
        self._name, self._table = session.own_name("load"), session.own_table("load")
        self._columns = {column.name for column in definition.kept_columns(snapshot.schema)} | set(
            snapshot.schema.fieldNames()
        )
        indexes = [index for index in definition.indexes if index.columns <= self._columns]
        with_key = [index for index in indexes if index.key == self._key]
        with_key.sort(key=lambda index: index.constraint_kind != "p")
        self.key_index = with_key[0] if with_key else None
        if self.key_index is None:  # another key than before becomes the primary key
            indexes = [index for index in indexes if index.constraint_kind != "p"]
            self._add_key: str | None = add_primary_key(self._table, snapshot.key)
        else:
            self._add_key = None
        rest = [index for index in indexes if index is not self.key_index]
        self._indexes = {f"{self._name}_i{number}": index for number, index in enumerate([*with_key[:1], *rest])}

    # ── the key, which the rows may violate ──────────────────────────────────────────────────────────────────────

    def key_statements(self) -> Iterator[sql.Composed]:
        """They fail for null and duplicate keys. Named NOT NULLs come first: a primary key would give them other names."""
        for constraint in self._definition.constraints:
            if constraint.not_null and constraint.columns <= self._key:
                for _, statement in self._constraint_statements(constraint):
                    yield statement
        if self._add_key is not None:
            yield sql.SQL("{}").format(sql.SQL(self._add_key))
        for name, index in self._indexes.items():
            if index is self.key_index:
                yield self._create_index(name, index)

    def has_null_keys(self) -> sql.Composed:
        """→ (true,) if a row has a null in its key, which a unique index other than a primary key allows"""
        null = sql.SQL(" or ").join(sql.SQL("{} is null").format(sql.Identifier(name)) for name in sorted(self._key))
        return sql.SQL("select exists (select from {} where {})").format(self._table, null)

    # ── everything else ──────────────────────────────────────────────────────────────────────────────────────────

    def other_statements(self) -> Iterator[tuple[str, sql.Composed]]:
        """(name of the copied property, statement)"""
        yield from self._column_statements()
        for constraint in self._definition.constraints:
            named_with_the_key = constraint.not_null and constraint.columns <= self._key
            if constraint.columns <= self._columns and not named_with_the_key:
                yield from self._constraint_statements(constraint)
        for name, index in self._indexes.items():
            yield from self._index_statements(name, index)
        if self._definition.comment is not None:
            yield self._comment("its comment", sql.SQL("table {}").format(self._table), self._definition.comment)
        if self._definition.replica_identity in "nf":
            identity = sql.SQL({"n": "nothing", "f": "full"}[self._definition.replica_identity])
            yield "its replica identity", sql.SQL("alter table {} replica identity {}").format(self._table, identity)

    def _column_statements(self) -> Iterator[tuple[str, sql.Composed]]:
        wanted = {field.name: target_type(field.dataType) for field in self._schema.fields}
        # Checks also have columns, and before PostgreSQL 18 a NOT NULL is not a constraint
        named = {column for found in self._definition.constraints if found.not_null for column in found.columns}
        for column in self._definition.kept_columns(self._schema):
            about = f"column {column.name!r}"
            alter = sql.SQL("alter table {} alter column {} ").format(self._table, sql.Identifier(column.name))
            if column.not_null and column.name not in named:
                yield about, alter + sql.SQL("set not null")
            if column.comment is not None:
                where = sql.SQL("column {}.{}").format(self._table, sql.Identifier(column.name))
                yield self._comment(about, where, column.comment)
            if wanted.get(column.name, column.type) != column.type:
                continue  # the following properties belong to the old type
            if column.default is not None:
                yield about, alter + sql.SQL("set default " + column.default)
            if column.storage is not None:
                yield about, alter + sql.SQL("set storage {}").format(sql.SQL(column.storage))
            if column.compression is not None:
                method = {"p": "pglz", "l": "lz4"}[column.compression]
                yield about, alter + sql.SQL("set compression {}").format(sql.SQL(method))
            if column.statistics is not None:
                yield about, alter + sql.SQL("set statistics {}").format(sql.Literal(column.statistics))
            for option in column.options:
                name, _, value = option.partition("=")
                pair = sql.SQL("set ({} = {})").format(sql.Identifier(name), sql.Literal(value))
                yield about, alter + pair

    def _constraint_statements(self, constraint: Constraint) -> Iterator[tuple[str, sql.Composed]]:
        about, name = f"constraint {constraint.name!r}", sql.Identifier(constraint.name)
        yield (
            about,
            sql.SQL("alter table {} add constraint {} {}").format(
                self._table,
                name,
                sql.SQL(constraint.definition),
            ),
        )
        if constraint.comment is not None:
            where = sql.SQL("constraint {} on {}").format(name, self._table)
            yield self._comment(about, where, constraint.comment)

    def _index_statements(self, ours: str, index: Index) -> Iterator[tuple[str, sql.Composed]]:
        about, name = f"index {index.name!r}", sql.Identifier(ours)
        own_index = sql.Identifier("deltarelay", ours)
        if index is not self.key_index:
            yield about, self._create_index(ours, index)
        if index.attached:
            kind = "primary key" if index.constraint_kind == "p" else "unique"
            yield (
                about,
                sql.SQL("alter table {} add constraint {} {} using index {}{}").format(
                    self._table,
                    name,
                    sql.SQL(kind),
                    name,
                    sql.SQL(index.deferrable),
                ),
            )
        if index.tablespace is not None:
            yield about, sql.SQL("alter index {} set tablespace {}").format(own_index, sql.Identifier(index.tablespace))
        if index.clustered:
            yield about, sql.SQL("alter table {} cluster on {}").format(self._table, name)
        if index.identity:
            yield about, sql.SQL("alter table {} replica identity using index {}").format(self._table, name)
        if index.comment is not None:
            yield self._comment(about, sql.SQL("index {}").format(own_index), index.comment)
        if index.constraint_comment is not None:
            where = sql.SQL("constraint {} on {}").format(name, self._table)
            yield self._comment(about, where, index.constraint_comment)

    def _create_index(self, ours: str, index: Index) -> sql.Composed:
        if index.constraint is not None and not index.attached:
            return sql.SQL("alter table {} add constraint {} {}").format(
                self._table,
                sql.Identifier(ours),
                sql.SQL(index.constraint_definition or ""),
            )
        return sql.SQL("create {} {} on {} {}").format(
            sql.SQL("unique index" if index.unique else "index"),
            sql.Identifier(ours),
            self._table,
            sql.SQL(index.definition),
        )

    @staticmethod
    def _comment(about: str, described: sql.Composed, text: str) -> tuple[str, sql.Composed]:
        return about, sql.SQL("comment on {} is {}").format(described, sql.Literal(text))

    def grant_rights(self, connection: Connection, oid: int) -> list[sql.Composed]:
        """Execute the statements for owner and grants, last of all: the owner may be another role than ours."""
        owner = sql.SQL("alter table {} owner to {}").format(self._table, sql.Identifier(self._definition.owner))
        connection.execute(owner)
        present = read_grants(connection, oid)
        wanted = {grant for grant in self._definition.grants if grant.column is None or grant.column in self._columns}
        if present == wanted:
            return [owner]
        roles = sorted({grant.role for grant in present}, key=str)
        statements = [sql.SQL("revoke all on table {} from {}").format(self._table, _role(role)) for role in roles]
        statements += [self._grant(grant) for grant in sorted(wanted, key=repr)]
        for statement in statements:
            connection.execute(statement)
        return [owner, *statements]

    def _grant(self, grant: Grant) -> sql.Composed:
        name = sql.SQL(grant.privilege)
        privilege = (
            sql.SQL("{}").format(name)
            if grant.column is None
            else sql.SQL("{} ({})").format(name, sql.Identifier(grant.column))
        )
        further = sql.SQL(" with grant option" if grant.grantable else "")
        return sql.SQL("grant {} on table {} to {}{}").format(privilege, self._table, _role(grant.role), further)

    # ── final names ──────────────────────────────────────────────────────────────────────────────────────────────

    def renames(self, target: sql.Identifier, schema: str) -> list[sql.Composed]:
        """After the swap: the indexes and their constraints get the names of the old ones."""
        return [
            sql.SQL("alter table {} rename constraint {} to {}").format(
                target, sql.Identifier(ours), sql.Identifier(index.constraint)
            )
            if index.constraint is not None
            else sql.SQL("alter index {} rename to {}").format(sql.Identifier(schema, ours), sql.Identifier(index.name))
            for ours, index in self._indexes.items()
        ]


def _role(name: str | None) -> sql.Composable:
    return sql.SQL("public") if name is None else sql.Identifier(name)
