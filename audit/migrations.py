"""Versions of our schemas in PostgreSQL, and the forward-only migrations between them.

Each schema has a table ``schema_version`` with one row per applied migration. A state of release 0.1 has no such table: its
version is the number of leading migrations whose tables and columns are all there. So a complete state needs no statement at
all, and a role without the right to create anything goes on with it. A state that was migrated by a newer release is refused
by name, because an older release could overwrite what it does not know.

A released migration is never edited, moved or removed: a change of a table is a new migration at the end of the list. The
definition of an optional table is always the current one, and migrations change such a table where it exists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cdf.errors import CdfError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Migration", "Migrations", "State", "StateTooNew"]

LOCK_SECONDS = 10
"""Other sessions use the tables: after this time fail, and let the user run again."""

_VERSIONS = "schema_version"
_CREATE_SCHEMA = "create schema if not exists {schema}"
_CREATE_VERSIONS = (
    """\
create table {schema_version} (
    version    integer primary key,
    summary    text not null,
    applied_at timestamptz not null default clock_timestamp()
)""",
    # Rights that were granted before, "on all tables", do not include a table that a later release creates
    "grant select on {schema_version} to public",
)
_OBJECTS = """
select has_schema_privilege(n.oid, 'usage'),
       array(select c.relname::text from pg_class c
              where c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v', 'f') and c.relname = any(%(tables)s)),
       array(select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
              where c.relnamespace = n.oid and c.relname = any(%(tables)s)
                and c.relname || '.' || a.attname = any(%(columns)s) and not a.attisdropped)
  from pg_namespace n where n.nspname = %(schema)s
"""
"""The second search also compares the names of tables: otherwise PostgreSQL reads the columns of every table."""


class StateTooNew(CdfError):
    """The state in a schema was migrated by a newer release."""

    code = "state_too_new"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step. In its SQL ``{schema}`` is the schema and ``{NAME}`` the table NAME of it, both quoted."""

    summary: str
    """What it changes, in a few words."""
    objects: Mapping[str, str] = field(default_factory=dict)
    """SQL by the object that it creates, ``table`` or ``table.column``, in order. It runs only if the object is missing,
    because ``if not exists`` asks for the right to create it all the same. The definition of a table includes the columns
    that the same migration lists. A column of a table that does not exist is left out: some tables are optional."""
    statements: Sequence[str] = ()
    """SQL that always runs, once. It must not drop a table of an earlier migration: that would be created again."""


class State(NamedTuple):
    has_schema: bool
    may_use: bool
    """Whether the role has USAGE on the schema. Without it a recorded version cannot be read."""
    objects: frozenset[str]
    """The tables and columns of the migrations, and the optional tables, that exist."""
    version: int


@dataclass(frozen=True, slots=True)
class Migrations:
    """All migrations of one schema. The version of a state is the number of migrations that it has."""

    what: str
    """What the schema holds, for messages: ``the erasure register``."""
    schema: str
    migrations: Sequence[Migration]
    optional: Mapping[str, str] = field(default_factory=dict)
    """SQL by table, for tables that are created only on request."""
    recreates: bool = True
    """Whether tables and columns of applied migrations are created again where they were dropped. False where an empty table
    would hide a loss."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table that a migration creates, in order."""
        names = [name for migration in self.migrations for name in migration.objects if "." not in name]
        return tuple(dict.fromkeys(names))

    def find_objects(self, connection: psycopg.Connection[Any]) -> frozenset[str]:
        """The tables and columns of the migrations, and the optional tables, that exist."""
        return self._read_objects(connection)[1]

    def read_state(self, connection: psycopg.Connection[Any]) -> State:
        """Raises StateTooNew if this release does not know the version."""
        may_use, present = self._read_objects(connection)
        # Without USAGE the statements that use the tables fail anyway; an inspection then names what is missing
        version = self._read_recorded(connection) if may_use and _VERSIONS in present else self._infer_version(present)
        if version > len(self.migrations):
            raise StateTooNew(
                f"{self.what} in schema {self.schema} has version {version}, and this release knows versions up to "
                f"{len(self.migrations)}: a newer release has migrated it",
                hint="nothing was changed: upgrade deltarelay here to the release that is used elsewhere",
                version=version,
                known=len(self.migrations),
            )
        return State(may_use is not None, bool(may_use), present, version)

    def pending(self, connection: psycopg.Connection[Any], *, optional: Collection[str] = ()) -> tuple[str, ...]:
        """The SQL that brings the state to this release's version, and creates these optional tables; empty if all is there.

        Raises StateTooNew if this release does not know the version.
        """
        has_schema, _, present, version = self.read_state(connection)
        statements: list[str] = []
        created: set[str] = set()
        for number, migration in enumerate(self.migrations, 1):
            if number <= version and not self.recreates:
                continue
            missing = [name for name in migration.objects if _is_missing(name, present, created)]
            statements += [migration.objects[name] for name in missing]
            created |= {name for name in missing if "." not in name}
            statements += migration.statements if number > version else ()
        statements += [self.optional[table] for table in optional if table not in present]
        if not statements and (version == len(self.migrations)):
            return ()
        recorded = version if _VERSIONS in present else 0
        statements += [
            _record(number, migration.summary)
            for number, migration in enumerate(self.migrations[recorded:], recorded + 1)
        ]
        begin = [] if has_schema else [_CREATE_SCHEMA]
        begin += [] if _VERSIONS in present else _CREATE_VERSIONS
        return tuple(self._quote(statement, connection) for statement in (*begin, *statements))

    def apply(self, connection: psycopg.Connection[Any], *, optional: Collection[str] = ()) -> tuple[str, ...]:
        """Run what is pending, in the caller's transaction. → the statements that were run. Raises StateTooNew."""
        if not self.pending(connection, optional=optional):
            return ()
        # Another session may migrate at this moment: wait for it, then read again what is still pending
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"deltarelay {self.schema}"])
        statements = self.pending(connection, optional=optional)
        connection.execute(f"set local lock_timeout = '{LOCK_SECONDS}s'")
        for statement in statements:
            connection.execute(statement)
        return statements

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_objects(self, connection: psycopg.Connection[Any]) -> tuple[bool | None, frozenset[str]]:
        """Whether the role may use the schema (None: it does not exist), and its objects."""
        names = [name for migration in self.migrations for name in migration.objects]
        found = connection.execute(
            _OBJECTS,
            {"schema": self.schema, "tables": self._names(), "columns": [name for name in names if "." in name]},
        ).fetchone()
        if found is None:
            return None, frozenset()
        may_use, tables, columns = found
        return may_use, frozenset((*tables, *columns))

    def _read_recorded(self, connection: psycopg.Connection[Any]) -> int:
        statement = self._quote("select coalesce(max(version), 0) from {schema_version}", connection)
        found = connection.execute(statement).fetchone()
        assert found is not None
        return int(found[0])

    def _infer_version(self, present: Collection[str]) -> int:
        for number, migration in enumerate(self.migrations):
            if migration.statements or any(_is_missing(name, present) for name in migration.objects):
                return number
        return len(self.migrations)

    def _names(self) -> list[str]:
        return [*self.tables, *self.optional, _VERSIONS]

    def _quote(self, statement: str, connection: psycopg.Connection[Any]) -> str:
        from psycopg import sql

        names = {table: sql.Identifier(self.schema, table) for table in self._names()}
        return sql.SQL(statement).format(schema=sql.Identifier(self.schema), **names).as_string(connection)


def _is_missing(name: str, present: Collection[str], created: Collection[str] = ()) -> bool:
    """``created``: the tables that earlier migrations create in the same run, without this column."""
    table, _, column = name.partition(".")
    return name not in present and (not column or table in present or table in created)


def _record(number: int, summary: str) -> str:
    text = summary.replace("'", "''").replace("{", "{{").replace("}", "}}")
    return f"insert into {{schema_version}} (version, summary) values ({number}, '{text}')"
