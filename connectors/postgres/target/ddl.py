"""The target table: what is there, what is needed, and everything that stands between the two."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import TargetNotReady
from connectors.postgres.column_mapping import DELETED_AT, METADATA_TYPES
from connectors.postgres.conversions import Found, cast
from connectors.postgres.types import target_type, unsupported

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.sink import Source

__all__ = [
    "TargetName",
    "TargetColumn",
    "TargetTable",
    "reflect",
    "is_partitioned",
    "column_types",
    "further_columns",
    "holds_values",
    "reached_by_deletes",
    "suppresses_writes",
    "refuse_unsafe",
    "problems_of",
    "create_table",
    "create_staging",
    "add_primary_key",
    "add_comment",
    "add_column",
    "MADE_BY_US",
    "FILLFACTOR",
    "IDENTIFIER_BYTES",
]

FILLFACTOR = 70
"""Room on each page for new row versions: updates then stay on their page and touch no index (HOT)."""
IDENTIFIER_BYTES = 63
MADE_BY_US = "made and kept by deltarelay"
"""The comment on tables that we made: such a one may be replaced without being asked for. Whoever wants to keep a table as
it is writes another comment."""

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
    found: Found
    required: bool
    """NOT NULL without a default: must be given in every insert."""
    nullable: bool
    generated: bool
    """By an expression; nothing can be written into it."""
    always: bool
    """An identity that is GENERATED ALWAYS: can be given in an insert that says so, and never be updated."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    columns: tuple[TargetColumn, ...]
    unique_keys: frozenset[frozenset[str]]
    """Column sets that a non-deferrable, complete unique index covers."""
    empty: bool | None
    """Known only where ``can_write``. None: it was not looked at, for it is ``unsafe`` or no table."""
    can_write: bool
    owned: bool
    """The role may add columns."""
    is_table: bool
    """Not a view or anything else that only has a table's name."""
    hides_rows: bool
    """Policies hold for the role."""
    unsafe: tuple[str, ...] = ()
    """Why what is written into it may not stay."""
    strays: tuple[str, ...] = ()
    """Rows in tables that inherit from it; a merging reload sees them."""
    rules: tuple[str, ...] = ()
    """Rules that stand against a window; a merging reload works with them, and counts what it writes."""


def reflect(connection: Connection, name: TargetName) -> TargetTable | None:
    """The target as it stands, or None where there is no such table."""
    found = connection.execute(
        """
        select c.oid, has_schema_privilege(n.oid, 'usage'), pg_has_role(c.relowner, 'usage'), c.relkind in ('r', 'p'),
               has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                   and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'),
               row_security_active(c.oid)
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = %s and c.relname = %s
        """,
        [name.schema, name.table],
    ).fetchone()
    if found is None:
        return None
    oid, may_use, owned, is_table, may_write, hides_rows = found
    can_write = may_use and may_write
    unsafe = tuple(_not_durable(connection, oid)) if is_table else ()
    looks = is_table and not unsafe  # what is stored elsewhere may not answer
    empty = False if looks else None
    if can_write and looks:
        rows = connection.execute(sql.SQL("select exists (select 1 from {})").format(name.identifier)).fetchone()
        empty = rows == (False,)
    return TargetTable(
        _columns(connection, name),
        _unique_keys(connection, oid),
        empty,
        can_write,
        owned,
        is_table,
        hides_rows,
        unsafe,
        tuple(_strays(connection, oid)) if can_write and looks else (),
        tuple(_rewritten(connection, name, oid)) if is_table else (),
    )


_PARTS = (
    "with recursive part as (select %(oid)s::oid as oid "
    "union all select h.inhrelid from pg_inherits h join part p on h.inhparent = p.oid) "
)
"""A table with its partitions, and the tables that inherit from it."""


def _not_durable(connection: Connection, oid: int) -> list[str]:
    """A server crash empties UNLOGGED tables, and the position would go on saying that everything was applied."""
    rows = connection.execute(
        _PARTS + "select c.oid::regclass::text, c.relkind = 'f', c.relpersistence = 't' from part "
        "join pg_class c on c.oid = part.oid "
        "where c.relkind = 'f' or c.relpersistence = 't' or (c.relpersistence = 'u' and c.relkind = 'r') order by 1",
        {"oid": oid},
    )
    return [
        f"{table} is a foreign table: its rows are not part of the transaction that moves the position"
        if foreign
        else f"{table} is a temporary table: its rows are lost when its session ends"
        if temporary
        else f"{table} is UNLOGGED, and a crash of the server would empty it, or has: alter table {table} set logged, "
        "then look with `deltarelay verify` whether rows are missing"
        for table, foreign, temporary in rows
    ]


def _strays(connection: Connection, oid: int) -> list[str]:
    """Rows in tables that inherit from the target. The unique index of the target does not hold for them: a change of such a
    row would put a second one. (Not so in partitions.)"""
    heirs = connection.execute(
        _PARTS + "select n.nspname, c.relname, "
        "has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') "
        "from part join pg_class c on c.oid = part.oid join pg_namespace n on n.oid = c.relnamespace "
        "where part.oid <> %(oid)s and c.relkind = 'r' and not c.relispartition order by 1, 2",
        {"oid": oid},
    ).fetchall()
    found = []
    for schema, table, readable in heirs:
        name = str(TargetName(schema, table))
        exists = sql.SQL("select exists (select from only {})").format(sql.Identifier(schema, table))
        if not readable:
            found.append(f"{name} inherits from it, and whether it holds rows is not known: grant select on {name}")
        elif connection.execute(exists).fetchone() == (True,):
            found.append(f"{name} inherits from it and holds rows, which its unique index does not see: move them back")
    return found


def refuse_unsafe(connection: Connection, name: TargetName) -> None:
    """Under a lock of the target: what ``reflect`` has refused when the run began may have come since."""
    oid = _oid(connection, name)
    unsafe = [] if oid is None else _not_durable(connection, oid) or _strays(connection, oid)
    if unsafe:
        raise TargetNotReady(
            f"{name} cannot be written any more: " + "; ".join(unsafe),
            hint="nothing was changed: mend this, and run again",
        )


def _rewritten(connection: Connection, name: TargetName, oid: int) -> list[str]:
    """Rules under which a write is another one. An upsert works with no rule for inserts or updates at all."""
    rows = connection.execute(
        "select rulename::text from pg_rewrite where ev_class = %s "
        "and (ev_type in ('2', '3') or (ev_type = '4' and is_instead)) and ev_enabled in ('O', 'A') order by 1",
        [oid],
    )
    return [f"{name} has a rule {_plain(rule)} that changes what is written to it: drop it" for (rule,) in rows]


def suppresses_writes(connection: Connection, name: TargetName) -> bool:
    """Whether the table has row triggers that run before a write, or rules: either can make a write touch fewer rows."""
    found = connection.execute(
        _PARTS + "select from part where exists (select from pg_trigger g where g.tgrelid = part.oid "
        "and not g.tgisinternal and g.tgtype & 3 = 3) or exists (select from pg_rewrite r where r.ev_class = part.oid)",
        {"oid": _oid(connection, name)},
    ).fetchone()
    return found is not None


def _oid(connection: Connection, name: TargetName) -> int | None:
    row = connection.execute("select to_regclass(%s)::oid", [name.identifier.as_string(connection)]).fetchone()
    assert row is not None
    return None if row[0] is None else int(row[0])


def _columns(connection: Connection, name: TargetName) -> tuple[TargetColumn, ...]:
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
        found = column_types(connection, name)
        return tuple(
            TargetColumn(
                name=str(column["name"]),
                found=found[column["name"]],
                required=not column["nullable"] and column["default"] is None and "identity" not in column,
                nullable=bool(column["nullable"]),
                generated="computed" in column,
                always=bool(dict(column.get("identity") or {}).get("always")),
            )
            for column in columns
            if column["name"] in found
        )
    raise failure


def is_partitioned(connection: Connection, name: TargetName) -> bool:
    found = connection.execute(
        "select from pg_class where oid = to_regclass(%s) and relkind = 'p'", [name.identifier.as_string(connection)]
    ).fetchone()
    return found is not None


def column_types(connection: Connection, name: TargetName) -> dict[str, Found]:
    """The target's columns as the running transaction sees them; none where there is no such table.

    Types as PostgreSQL itself spells them, with everything that belongs to them: timestamp(3) is not timestamp.
    """
    rows = connection.execute(
        """
        select a.attname, format_type(a.atttypid, a.atttypmod),
               case when t.typtype = 'd' then format_type(t.typbasetype, t.typtypmod)
                    else format_type(a.atttypid, a.atttypmod) end,
               coalesce(b.typtype, t.typtype) = 'e',
               coalesce(b.typname, t.typname) = 'citext' or not coalesce(l.collisdeterministic, true)
          from pg_attribute a
          join pg_type t on t.oid = a.atttypid
          left join pg_type b on b.oid = t.typbasetype
          left join pg_collation l on l.oid = a.attcollation
          join pg_class c on c.oid = a.attrelid
          join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped
        """,
        [name.schema, name.table],  # not to_regclass, which a role without rights in the schema may not ask
    )
    return {column: Found(*found) for column, *found in rows}


def further_columns(connection: Connection, name: TargetName, ours: Collection[str]) -> tuple[str, ...]:
    """The target's columns that are none of ``ours`` and hold values of their own."""
    rows = connection.execute(
        "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped "
        "and attgenerated = '' order by attnum",
        [name.identifier.as_string(connection)],
    )
    return tuple(column for (column,) in rows if column not in ours)


def holds_values(connection: Connection, name: TargetName, column: str) -> bool:
    statement = sql.SQL("select exists (select from {} where {} is not null)")
    found = connection.execute(statement.format(name.identifier, sql.Identifier(column))).fetchone()
    return found == (True,)


def reached_by_deletes(connection: Connection, name: TargetName) -> str | None:
    """What deleting a row would reach into: a table whose foreign key deletes or empties with it. None: nothing."""
    row = connection.execute(
        "select conrelid::regclass::text from pg_constraint "
        "where confrelid = to_regclass(%s) and contype = 'f' and confdeltype in ('c', 'n', 'd') limit 1",
        [name.identifier.as_string(connection)],
    ).fetchone()
    return None if row is None else str(row[0])


def deferrable_unique(connection: Connection, name: TargetName) -> list[sql.Identifier]:
    """The unique and exclusion constraints that can be told when to be checked."""
    rows = connection.execute(
        "select n.nspname, k.conname from pg_constraint k join pg_namespace n on n.oid = k.connamespace "
        "where k.conrelid = to_regclass(%s) and k.contype in ('p', 'u', 'x') and k.condeferrable",
        [name.identifier.as_string(connection)],
    )
    return [sql.Identifier(schema, constraint) for schema, constraint in rows]


def _unique_keys(connection: Connection, oid: int) -> frozenset[frozenset[str]]:
    rows = connection.execute(
        """
        select array_agg(a.attname::text)
          from pg_index i
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])
         where i.indrelid = %s
           and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null
           and not exists (select from unnest(i.indcollation) c join pg_collation l on l.oid = c
                            where not l.collisdeterministic)
         group by i.indexrelid
        """,
        [oid],
    ).fetchall()
    return frozenset(frozenset(row[0]) for row in rows)


def problems_of(source: Source, name: TargetName, target: TargetTable | None, own: Sequence[str] = ()) -> list[str]:
    """Everything about types, names and columns that stands against writing this source into this target.

    ``source`` has the target's names already. ``own``: the columns of ours that the target has, or is to have.
    """
    schema = source.standing or source.schema
    problems = unsupported(source.schema)
    for column in source.schema.fieldNames():
        if len(column.encode()) > IDENTIFIER_BYTES:
            problems.append(
                f"column {column!r} is longer than PostgreSQL's {IDENTIFIER_BYTES} bytes: rename it in the sink's settings"
            )
        if "\0" in column:
            problems.append("a column name holds a NUL character: rename it in the sink's settings")
    if target is None:
        return problems
    if not target.is_table:
        return [*problems, f"{name} is there, but it is not a table"]
    there = {column.name: column for column in target.columns}
    for field in schema.fields:
        wanted, held = target_type(field.dataType), there.pop(field.name, None)
        if held is None or wanted is None:
            continue
        label = f"{name}.{_plain(field.name)}"
        if cast(wanted, held.found) is None:
            problems.append(f"{label} is {held.found.type}, the source needs {wanted} or a type that holds it")
        if held.generated:
            problems.append(f"{label} is generated by the database and cannot be filled: exclude the source's column")
        if held.always and field.name not in source.key:
            problems.append(f"{label} is an identity that is generated always, and an update could not set it")
        if held.found.folds and field.name in source.key:
            problems.append(
                f"{label} takes texts for equal that differ (citext, or its collation): two keys of the source could be "
                "one there"
            )
    for mine in own:
        held = there.pop(mine, None)
        if held is not None and held.found.type != METADATA_TYPES[mine]:
            problems.append(f"{name}.{_plain(mine)} is {held.found.type}, and has to be {METADATA_TYPES[mine]}")
        if held is not None and held.generated:
            problems.append(f"{name}.{_plain(mine)} is generated by the database and cannot be filled")
        if held is not None and mine == DELETED_AT and not held.nullable:
            problems.append(f"{name}.{_plain(mine)} is NOT NULL, and has to be null in rows that are not deleted")
    problems += [
        f"{name}.{_plain(column.name)} is NOT NULL without a default, and the source has no such column"
        for column in there.values()
        if column.required and not column.generated and column.name not in source.schema.fieldNames()
    ]
    if frozenset(source.key) not in target.unique_keys:
        problems.append(
            f"{name} has no primary key or unique index on exactly the key ({', '.join(source.key)}) that is checked "
            "at once: one that is deferrable, partial or on expressions cannot find the row of a change"
        )
    if not target.can_write:
        problems.append(f"the role may not select, insert, update and delete in {name}")
    problems += target.unsafe
    if target.hides_rows:
        problems.append(
            f"row level security of {name} holds for the role and could hide rows from it: "
            "give the role BYPASSRLS, or let it own the table"
        )
    return problems


def create_table(name: sql.Identifier, schema: StructType, own: Sequence[str] = (), *, logged: bool = True) -> str:
    """CREATE TABLE with the types of this package; the key is added once the rows are in."""
    columns = [(field.name, str(target_type(field.dataType))) for field in schema.fields]
    return _create(name, [*columns, *((mine, METADATA_TYPES[mine]) for mine in own)], logged=logged)


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


def add_comment(name: sql.Identifier) -> str:
    return sql.SQL("comment on table {} is {}").format(name, sql.Literal(MADE_BY_US)).as_string()


def add_column(name: sql.Identifier, column: str, kind: str) -> str:
    return sql.SQL("alter table {} add column {} ").format(name, sql.Identifier(column)).as_string() + kind
