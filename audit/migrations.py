"""Versions of our schemas in PostgreSQL, and the forward-only migrations between them.

Each schema has a table ``schema_version`` with one row per applied migration. A state of release 0.1 has no such table:
its tables are those of migration 1, which creates only the tables that are missing. A state that was migrated by a newer
release is refused by name, because an older release could overwrite what it does not know.

A released migration is never edited, moved or removed: a change of a table is a new migration at the end of the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Migration", "Migrations", "StateTooNew"]

_VERSIONS = """\
create table {schema}.schema_version (
    version    integer primary key,
    summary    text not null,
    applied_at timestamptz not null default clock_timestamp()
)"""
_TABLES = """
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %s and c.relkind in ('r', 'p')
"""


class StateTooNew(CdfError):
    """The state in a schema was migrated by a newer release."""

    code = "state_too_new"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step. In the SQL ``{schema}`` is the schema and ``{NAME}`` the table NAME of it, both quoted."""

    summary: str
    """What it changes, in a few words: ``deltarelay upgrade`` shows it."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """SQL by table name, in order: runs only if the table is missing."""
    statements: Sequence[str] = ()
    """SQL that always runs. It must tolerate a state in which it ran before (``add column if not exists``)."""


@dataclass(frozen=True, slots=True)
class Migrations:
    """All migrations of one schema. The version of a state is the number of migrations that it has."""

    what: str
    """What the schema holds, for messages: ``the erasure register``."""
    schema: str
    migrations: Sequence[Migration]

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table that some migration creates."""
        return tuple(dict.fromkeys(table for one in self.migrations for table in one.tables))

    def version(self, connection: psycopg.Connection[Any]) -> int:
        """The version of the state; 0 if nothing is there, and for a state of release 0.1.

        Raises StateTooNew if this release does not know the version.
        """
        from psycopg import sql

        if "schema_version" not in self._present(connection):
            return 0
        read = sql.SQL("select coalesce(max(version), 0) from {}").format(sql.Identifier(self.schema, "schema_version"))
        found = connection.execute(read).fetchone()
        version: int = found[0] if found else 0
        if version > len(self.migrations):
            raise StateTooNew(
                f"{self.what} in schema {self.schema} has version {version}, and this release knows versions up to "
                f"{len(self.migrations)}: a newer release has migrated it",
                hint="upgrade deltarelay here to the release that is used elsewhere; nothing was changed",
                version=version,
                known=len(self.migrations),
            )
        return version

    def pending(self, connection: psycopg.Connection[Any]) -> tuple[str, ...]:
        """The SQL statements that bring the state to this release's version; empty if it is there already."""
        from psycopg import sql

        version, present = self.version(connection), self._present(connection)
        if version == len(self.migrations):
            return ()
        statements = [] if present or self._schema_exists(connection) else ["create schema {schema}"]
        # Even `if not exists` asks for the right to create tables
        statements += [] if "schema_version" in present else [_VERSIONS]
        for number, migration in enumerate(self.migrations[version:], version + 1):
            statements += [definition for table, definition in migration.tables.items() if table not in present]
            statements += migration.statements
            summary = migration.summary.replace("'", "''")
            statements.append(
                f"insert into {{schema}}.schema_version (version, summary) values ({number}, '{summary}')"
            )
        names = {table: sql.Identifier(self.schema, table) for table in self.tables}
        quoted = {"schema": sql.Identifier(self.schema), **names}
        return tuple(sql.SQL(statement).format(**quoted).as_string(connection) for statement in statements)

    def apply(self, connection: psycopg.Connection[Any]) -> tuple[str, ...]:
        """Run what is pending, in the caller's transaction. → the statements that were run."""
        if not self.pending(connection):
            return ()
        # Another session may migrate at this moment: wait for it, then read again what is still pending
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"deltarelay {self.schema}"])
        statements = self.pending(connection)
        for statement in statements:
            connection.execute(statement)
        return statements

    def _present(self, connection: psycopg.Connection[Any]) -> set[str]:
        return {name for (name,) in connection.execute(_TABLES, [self.schema])}

    def _schema_exists(self, connection: psycopg.Connection[Any]) -> bool:
        return connection.execute("select from pg_namespace where nspname = %s", [self.schema]).fetchone() is not None
