"""Give the table that is to take another one's place everything that the other has besides its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from connectors.postgres.target.ddl import add_primary_key
from connectors.postgres.target.definition import Constraint, Grant, Index, Shape, granted
from connectors.postgres.types import target_type

if TYPE_CHECKING:
    from cdf.changes.window import Snapshot
    from connectors.postgres.client import Session

__all__ = ["Dressing"]

Connection = psycopg.Connection[Any]


class Dressing:
    """The statements, in their order. Indexes and their constraints get names of ours until the swap: names of indexes
    are unique in a schema, and two targets that are reloaded may call theirs alike."""

    def __init__(self, session: Session, shape: Shape, snapshot: Snapshot) -> None:
        self._shape, self._schema, self._key = shape, snapshot.schema, frozenset(snapshot.key)
        self._name, self._table = session.own_name("load"), session.own_table("load")
        self._columns = {column.name for column in shape.kept(snapshot.schema)} | set(snapshot.schema.fieldNames())
        indexes = [index for index in shape.indexes if index.columns <= self._columns]
        keyed = [index for index in indexes if index.key == self._key]
        keyed.sort(key=lambda index: index.constraint_kind != "p")
        self.key_index = keyed[0] if keyed else None
        if self.key_index is None:  # another key than before: the primary key is going to be this one
            indexes = [index for index in indexes if index.constraint_kind != "p"]
            self._add_key: str | None = add_primary_key(self._table, snapshot.key)
        else:
            self._add_key = None
        rest = [index for index in indexes if index is not self.key_index]
        self._indexes = {f"{self._name}_i{number}": index for number, index in enumerate([*keyed[:1], *rest])}

    # ── the key, which the rows may contradict ───────────────────────────────────────────────────────────────────

    def key(self) -> Iterator[sql.Composed]:
        """What finds out about null keys and keys that occur twice. A primary key would name its NOT NULLs anew."""
        for constraint in self._shape.constraints:
            if constraint.not_null and constraint.columns <= self._key:
                for _, statement in self._of_constraint(constraint):
                    yield statement
        if self._add_key is not None:
            yield sql.SQL("{}").format(sql.SQL(self._add_key))
        for name, index in self._indexes.items():
            if index is self.key_index:
                yield self._created(name, index)

    def null_keys(self) -> sql.Composed:
        """→ (true,) where a row has a null in its key: a unique index that is no primary key lets it pass."""
        null = sql.SQL(" or ").join(sql.SQL("{} is null").format(sql.Identifier(name)) for name in sorted(self._key))
        return sql.SQL("select exists (select from {} where {})").format(self._table, null)

    # ── everything else ──────────────────────────────────────────────────────────────────────────────────────────

    def rest(self) -> Iterator[tuple[str, sql.Composed]]:
        """(what it is about, statement)"""
        yield from self._of_columns()
        for constraint in self._shape.constraints:
            named_with_the_key = constraint.not_null and constraint.columns <= self._key
            if constraint.columns <= self._columns and not named_with_the_key:
                yield from self._of_constraint(constraint)
        for name, index in self._indexes.items():
            yield from self._of_index(name, index)
        if self._shape.comment is not None:
            yield self._commented("its comment", sql.SQL("table {}").format(self._table), self._shape.comment)
        if self._shape.replica_identity in "nf":
            what = sql.SQL({"n": "nothing", "f": "full"}[self._shape.replica_identity])
            yield "its replica identity", sql.SQL("alter table {} replica identity {}").format(self._table, what)

    def _of_columns(self) -> Iterator[tuple[str, sql.Composed]]:
        wanted = {field.name: target_type(field.dataType) for field in self._schema.fields}
        # A check names columns too, and before PostgreSQL 18 no NOT NULL is a constraint
        named = {column for found in self._shape.constraints if found.not_null for column in found.columns}
        for column in self._shape.kept(self._schema):
            about = f"column {column.name!r}"
            alter = sql.SQL("alter table {} alter column {} ").format(self._table, sql.Identifier(column.name))
            if column.not_null and column.name not in named:
                yield about, alter + sql.SQL("set not null")
            if column.comment is not None:
                where = sql.SQL("column {}.{}").format(self._table, sql.Identifier(column.name))
                yield self._commented(about, where, column.comment)
            if wanted.get(column.name, column.type) != column.type:
                continue  # what follows was made for another type
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

    def _of_constraint(self, constraint: Constraint) -> Iterator[tuple[str, sql.Composed]]:
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
            yield self._commented(about, where, constraint.comment)

    def _of_index(self, ours: str, index: Index) -> Iterator[tuple[str, sql.Composed]]:
        about, name = f"index {index.name!r}", sql.Identifier(ours)
        there = sql.Identifier("deltarelay", ours)
        if index is not self.key_index:
            yield about, self._created(ours, index)
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
            yield about, sql.SQL("alter index {} set tablespace {}").format(there, sql.Identifier(index.tablespace))
        if index.clustered:
            yield about, sql.SQL("alter table {} cluster on {}").format(self._table, name)
        if index.identity:
            yield about, sql.SQL("alter table {} replica identity using index {}").format(self._table, name)
        if index.comment is not None:
            yield self._commented(about, sql.SQL("index {}").format(there), index.comment)
        if index.constraint_comment is not None:
            where = sql.SQL("constraint {} on {}").format(name, self._table)
            yield self._commented(about, where, index.constraint_comment)

    def _created(self, ours: str, index: Index) -> sql.Composed:
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
    def _commented(about: str, what: sql.Composed, text: str) -> tuple[str, sql.Composed]:
        return about, sql.SQL("comment on {} is {}").format(what, sql.Literal(text))

    def rights(self, connection: Connection, oid: int) -> list[sql.Composed]:
        """Owner and grants, last of all: the owner need not be who copies the rows."""
        owner = sql.SQL("alter table {} owner to {}").format(self._table, sql.Identifier(self._shape.owner))
        connection.execute(owner)
        there = granted(connection, oid)
        wanted = {grant for grant in self._shape.grants if grant.column is None or grant.column in self._columns}
        if there == wanted:
            return [owner]
        roles = sorted({grant.role for grant in there}, key=str)
        statements = [sql.SQL("revoke all on table {} from {}").format(self._table, _role(role)) for role in roles]
        statements += [self._grant(grant) for grant in sorted(wanted, key=repr)]
        for statement in statements:
            connection.execute(statement)
        return [owner, *statements]

    def _grant(self, grant: Grant) -> sql.Composed:
        what = sql.SQL(grant.privilege)
        privilege = (
            sql.SQL("{}").format(what)
            if grant.column is None
            else sql.SQL("{} ({})").format(what, sql.Identifier(grant.column))
        )
        further = sql.SQL(" with grant option" if grant.grantable else "")
        return sql.SQL("grant {} on table {} to {}{}").format(privilege, self._table, _role(grant.role), further)

    # ── the names that are wanted in the end ─────────────────────────────────────────────────────────────────────

    def renames(self, target: sql.Identifier, schema: str) -> list[sql.Composed]:
        """Once the table stands in its place: its indexes and their constraints get the names of those before them."""
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
