"""The target table: what is there, what is needed, and everything that stands between the two."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from connectors.postgres.types import target_type, unsupported

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from cdf.sink import Source

__all__ = [
    "TargetName",
    "TargetColumn",
    "TargetTable",
    "reflect",
    "is_partitioned",
    "column_names",
    "problems_of",
    "create_table",
    "create_staging",
    "add_primary_key",
    "add_column",
    "FILLFACTOR",
    "IDENTIFIER_BYTES",
]

FILLFACTOR = 70
"""Room on each page for new row versions: updates then stay on their page and touch no index (HOT)."""
IDENTIFIER_BYTES = 63

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class TargetName:
    schema: str
    table: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    def __str__(self) -> str:
        return f"{_plain(self.schema)}.{_plain(self.table)}"


def _plain(name: str) -> str:
    simple = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    return name if simple else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class TargetColumn:
    name: str
    type: str
    required: bool
    """NOT NULL without a default: must be given in every insert."""
    generated: bool


@dataclass(frozen=True, slots=True)
class TargetTable:
    columns: tuple[TargetColumn, ...]
    unique_keys: frozenset[frozenset[str]]
    """Column sets that a non-deferrable, complete unique index covers."""
    empty: bool
    """Known only where ``can_write``."""
    can_write: bool
    owned: bool
    """The role may add columns."""
    is_table: bool
    """Not a view or anything else that only has a table's name."""


def reflect(connection: Connection, name: TargetName) -> TargetTable | None:
    """The target as it stands, or None where there is no such table."""
    found = connection.execute(
        """
        select c.oid, has_schema_privilege(n.oid, 'usage'), pg_has_role(c.relowner, 'usage'), c.relkind in ('r', 'p'),
               has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                   and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = %s and c.relname = %s
        """,
        [name.schema, name.table],
    ).fetchone()
    if found is None:
        return None
    oid, may_use, owned, is_table, may_write = found
    can_write = may_use and may_write
    empty = False
    if can_write:
        rows = connection.execute(sql.SQL("select exists (select 1 from {})").format(name.identifier)).fetchone()
        empty = rows == (False,)
    return TargetTable(
        _columns(connection, name, oid), _unique_keys(connection, oid), empty, can_write, owned, is_table
    )


def _columns(connection: Connection, name: TargetName, oid: int) -> tuple[TargetColumn, ...]:
    import sqlalchemy as sa

    # The connection stays ours: a pool that hands it out once and never closes it
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: connection, poolclass=sa.pool.StaticPool, pool_reset_on_return=None
    )
    try:
        with warnings.catch_warnings():
            # Columns beyond the source's may have any type, also those that SQLAlchemy has no class for
            warnings.simplefilter("ignore", sa.exc.SAWarning)
            columns = sa.inspect(engine).get_columns(name.table, schema=name.schema)
    except sa.exc.NoSuchTableError:
        return ()
    except sa.exc.DBAPIError as error:
        if not isinstance(error.orig, psycopg.Error):
            raise
        failure = error.orig  # not wrapped: whoever catches psycopg's errors knows what to do with it
    else:
        # As PostgreSQL itself spells them, with everything that belongs to a type: timestamp(3) is not timestamp
        spelled = dict(
            connection.execute(
                "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s and attnum > 0",
                [oid],
            )
        )
        return tuple(
            TargetColumn(
                name=str(column["name"]),
                type=str(spelled.get(column["name"])),
                required=not column["nullable"] and column["default"] is None and "identity" not in column,
                generated="computed" in column or bool(dict(column.get("identity") or {}).get("always")),
            )
            for column in columns
        )
    raise failure


def is_partitioned(connection: Connection, name: TargetName) -> bool:
    found = connection.execute(
        "select from pg_class where oid = to_regclass(%s) and relkind = 'p'", [name.identifier.as_string(connection)]
    ).fetchone()
    return found is not None


def column_names(connection: Connection, name: TargetName) -> frozenset[str]:
    """The target's columns as the running transaction sees them; none where there is no such table."""
    rows = connection.execute(
        "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped",
        [name.identifier.as_string(connection)],
    )
    return frozenset(row[0] for row in rows)


def _unique_keys(connection: Connection, oid: int) -> frozenset[frozenset[str]]:
    rows = connection.execute(
        """
        select array_agg(a.attname::text)
          from pg_index i
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])
         where i.indrelid = %s
           and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null
         group by i.indexrelid
        """,
        [oid],
    ).fetchall()
    return frozenset(frozenset(row[0]) for row in rows)


def problems_of(source: Source, name: TargetName, target: TargetTable | None) -> list[str]:
    """Everything about types, names and columns that stands against writing this source into this target."""
    problems = unsupported(source.schema)
    for column in source.schema.fieldNames():
        if len(column.encode()) > IDENTIFIER_BYTES:
            problems.append(f"column {column!r} is longer than PostgreSQL's {IDENTIFIER_BYTES} bytes")
        if "\0" in column:
            problems.append("a column name holds a NUL character")
    if target is None:
        return problems
    if not target.is_table:
        return [*problems, f"{name} is there, but it is not a table"]
    there = {column.name: column for column in target.columns}
    for field in source.schema.fields:
        wanted, found = target_type(field.dataType), there.pop(field.name, None)
        if found is not None and wanted is not None and found.type != wanted:
            problems.append(f"{name}.{_plain(field.name)} is {found.type}, the source needs {wanted}")
        if found is not None and found.generated:
            problems.append(f"{name}.{_plain(field.name)} is generated by the database and cannot be filled")
    problems += [
        f"{name}.{_plain(column.name)} is NOT NULL without a default, and the source has no such column"
        for column in there.values()
        if column.required and not column.generated
    ]
    if frozenset(source.key) not in target.unique_keys:
        problems.append(
            f"{name} has no primary key or immediate unique index on exactly the key ({', '.join(source.key)})"
        )
    if not target.can_write:
        problems.append(f"the role may not select, insert, update and delete in {name}")
    return problems


def create_table(name: sql.Identifier, schema: StructType, *, logged: bool = True) -> str:
    """CREATE TABLE with the types of this package; the key is added once the rows are in."""
    return _create(name, [(field.name, str(target_type(field.dataType))) for field in schema.fields], logged=logged)


def _create(name: sql.Identifier, columns: Iterable[tuple[str, str]], *, logged: bool) -> str:
    body = sql.SQL(", ").join(sql.SQL("{} ").format(sql.Identifier(column)) + sql.SQL(kind) for column, kind in columns)
    statement = (
        sql.SQL("create {} {} ({})").format(sql.SQL("table" if logged else "unlogged table"), name, body).as_string()
    )
    return statement + (f" with (fillfactor = {FILLFACTOR})" if logged else "")


def create_staging(name: sql.Identifier, columns: Sequence[tuple[str, str]]) -> str:
    """UNLOGGED: half the WAL; emptied by a server crash, which the recount before applying finds out."""
    return _create(name, columns, logged=False)


def add_primary_key(name: sql.Identifier, key: Sequence[str]) -> str:
    columns = sql.SQL(", ").join(map(sql.Identifier, key))
    return sql.SQL("alter table {} add primary key ({})").format(name, columns).as_string()


def add_column(name: sql.Identifier, field: StructField) -> str:
    return sql.SQL("alter table {} add column {} ").format(name, sql.Identifier(field.name)).as_string() + str(
        target_type(field.dataType)
    )
