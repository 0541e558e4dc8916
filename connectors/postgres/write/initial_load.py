"""The initial copy: COPY from the tasks into a fresh table of ours, add the key, move it to its place.

    deltarelay.load_<target>_<epoch>   ─▶   <schema>.<table>, with the position, in one transaction

An existing (empty) target is not replaced: the rows are inserted into it, so that it keeps its grants, indexes and
columns of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import CdfError, RowRejected, SinkUnavailable, TargetNotReady
from connectors.postgres import position as positions
from connectors.postgres.column_mapping import (
    APPLIED_AT,
    COMMIT_TIMESTAMP_COLUMN,
    COMMIT_VERSION_COLUMN,
    DELETED_AT,
    METADATA_TYPES,
)
from connectors.postgres.conversions import casts_for
from connectors.postgres.errors import raise_alone, refuse_swallowed
from connectors.postgres.inspect import additions
from connectors.postgres.state.dead_letters import forget_all
from connectors.postgres.target.ddl import (
    IDENTIFIER_BYTES,
    add_comment,
    add_primary_key,
    column_types,
    create_table,
    reflect,
)
from connectors.postgres.types import check_types
from connectors.postgres.write import staging
from connectors.postgres.write.staging import Staged
from connectors.postgres.write.statements import insert_all, misfits_of_table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot
    from connectors.postgres.client import Session
    from connectors.postgres.conversions import Cast
    from connectors.postgres.target.ddl import TargetName

__all__ = [
    "copy_snapshot",
    "put_in_place",
    "begin_target",
    "add_own",
    "refuse_misfits",
    "refuse_misfits_of",
    "move_to_its_place",
    "rename_constraints",
    "refuse_rows",
    "key_violation",
    "analyze",
]

LOAD_TRIES = 3

Connection = psycopg.Connection[Any]


def copy_snapshot(session: Session, snapshot: Snapshot, *, create: str | None = None) -> Staged:
    """COPY the snapshot into a fresh table of ours. A task that ran twice shows in the count: then start over.

    ``create`` makes that table where it is to be more than the snapshot's columns; those have our types there too.
    """
    check_types(snapshot.schema)
    loaded = session.own_table("load")
    for _ in range(LOAD_TRIES):
        with session.errors("creating the table to load"):
            session.drop("load")
            session.main().execute(create or create_table(loaded, snapshot.schema))
        try:
            staged = staging.copy_snapshot_rows(snapshot, session.dsn, session.own_name("load"))
        except Exception as error:
            session.drop("load")
            raise_alone(session.copy_failure(error, snapshot))
        if recount(session, staged):
            if session.history is not None:
                session.history.copied(staged.rows)
            return staged
    session.drop("load")
    raise SinkUnavailable(
        f"the copy of {snapshot.table} holds another number of rows than were sent, {LOAD_TRIES} times",
        hint="tasks are run twice: turn spark.speculation off, and look for executors that are lost",
    )


def recount(session: Session, staged: Staged) -> bool:
    with session.errors("counting the loaded rows"):
        found = session.main().execute(sql.SQL("select count(*) from {}").format(session.own_table("load"))).fetchone()
    return found == (staged.rows,)


def put_in_place(session: Session, snapshot: Snapshot, rows: int, own: Sequence[str]) -> tuple[str, ...]:
    """Make the copied rows the target, and record the position, in one transaction. → the DDL that was run

    ``own``: the columns of ours that the target has; they tell of the snapshot what they tell of a window's commits.
    """
    lease, name, loaded = session.held(), session.target, session.own_table("load")
    ddl: tuple[str, ...] = ()
    keyed = True
    with session.errors("loading the target"):
        connection = session.main()
        existing = reflect(connection, name) is not None
        with session.committed(snapshot.version), connection.transaction() as transaction:
            positions.lock_position(connection, lease, expected=None, first=None)
            # Rows that policies hide from this role are rows of others all the same
            connection.execute("set local row_security = off")
            try:
                connection.execute(add_primary_key(loaded, snapshot.key))
            except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
                keyed = False
                raise psycopg.Rollback(transaction) from None
            add_own(connection, loaded, own, snapshot)
            if existing:
                ddl = _insert_into_existing(connection, session, snapshot, rows, own)
            else:
                forget_all(connection, str(name))
                move_to_its_place(session, connection.execute)
                rename_constraints(session, connection.execute)
                connection.execute(add_comment(name.identifier))
                ddl = made_by(name, snapshot, own)
            positions.record_rows(connection, name)
            positions.move_position(
                connection, lease, expected=None, version=snapshot.version, table_id=snapshot.table_id
            )
            session.record(connection)
    if not keyed:
        session.drop("load")
        raise_alone(key_violation(snapshot))  # not before the transaction has ended: it reads the source again
    return ddl


def refuse_misfits(target: str, counts: Mapping[str, int]) -> None:
    """``counts``: column → rows whose value does not fit into it."""
    if any(counts.values()):
        columns = ", ".join(f"{name!r} ({count} rows)" for name, count in counts.items() if count)
        raise RowRejected(
            f"values do not fit into the columns of {target}: {columns}",
            hint="alter these columns to wider types, correct the values at the source, "
            "or set rejects: dead_letter to apply the others",
        )


def refuse_misfits_of(
    connection: Connection, target: str, loaded: sql.Identifier, schema: StructType, casts: Mapping[str, Cast]
) -> None:
    statement, columns = misfits_of_table(loaded, schema, casts)
    if statement is not None:
        row = connection.execute(statement).fetchone()
        refuse_misfits(target, dict(zip(columns, row or (), strict=True)))


def analyze(session: Session) -> None:
    """Statistics are a kindness to the first queries, never a reason to fail."""
    with suppress(psycopg.Error):
        session.main().execute(sql.SQL("analyze {}").format(session.target.identifier))


def made_by(name: TargetName, snapshot: Snapshot, own: Sequence[str]) -> tuple[str, ...]:
    """The statements that make a target of ours."""
    made = create_table(name.identifier, snapshot.schema, own)
    return (made, add_primary_key(name.identifier, snapshot.key), add_comment(name.identifier))


def begin_target(connection: Connection, session: Session, snapshot: Snapshot, own: Sequence[str]) -> tuple[str, ...]:
    """Inside the transaction that fills it: the target is there, and empty. → the DDL that was run"""
    forget_all(connection, str(session.target))  # of another table that had this name
    if not column_types(connection, session.target):
        made = made_by(session.target, snapshot, own)
        for statement in made:
            connection.execute(statement)
        return made
    connection.execute(sql.SQL("lock table {} in share row exclusive mode").format(session.target.identifier))
    refuse_rows(connection, session)
    return ()


def add_own(connection: Connection, loaded: sql.Identifier, own: Sequence[str], snapshot: Snapshot) -> None:
    """The columns of ours, with one value for all rows: no row is written for that."""
    values: dict[str, sql.Composable] = {
        COMMIT_VERSION_COLUMN: sql.Literal(snapshot.version),
        COMMIT_TIMESTAMP_COLUMN: sql.Literal(snapshot.timestamp),
        APPLIED_AT: sql.SQL("now()"),
        DELETED_AT: sql.SQL("null"),
    }
    for name in own:
        column, kind = sql.Identifier(name), sql.SQL(METADATA_TYPES[name])
        statement = sql.SQL("alter table {} add column {} {} default {}")
        connection.execute(statement.format(loaded, column, kind, values[name]))
        connection.execute(sql.SQL("alter table {} alter column {} drop default").format(loaded, column))


def _insert_into_existing(
    connection: Connection, session: Session, snapshot: Snapshot, rows: int, own: Sequence[str]
) -> tuple[str, ...]:
    name, target, loaded = session.target, session.target.identifier, session.own_table("load")
    begin_target(connection, session, snapshot, own)
    ddl = tuple(additions(name, column_types(connection, name), snapshot.schema, own))
    for statement in ddl:
        connection.execute(statement)
    casts = casts_for(str(name), snapshot.schema, column_types(connection, name))
    refuse_misfits_of(connection, str(name), loaded, snapshot.schema, casts)
    inserted = connection.execute(insert_all(target, loaded, snapshot.schema, casts, own)).rowcount
    refuse_swallowed(name, "insert", wanted=rows, touched=inserted)
    connection.execute(sql.SQL("drop table {}").format(loaded))
    return ddl


def refuse_rows(connection: Connection, session: Session) -> None:
    """Under a lock that keeps writers out: a target without a position is still empty."""
    target = session.target
    found = connection.execute(sql.SQL("select exists (select 1 from {})").format(target.identifier)).fetchone()
    if found == (True,):
        raise TargetNotReady(
            f"{target} was filled by somebody else while it was being loaded",
            hint="empty it, or name another table",
        )


def move_to_its_place(session: Session, run: Callable[[sql.Composed], object]) -> None:
    """Inside the transaction: the loaded table becomes the target."""
    schema, table = session.target.schema, session.target.table
    name = session.own_name("load")
    run(sql.SQL("alter table {} set schema {}").format(session.own_table("load"), sql.Identifier(schema)))
    run(sql.SQL("alter table {} rename to {}").format(sql.Identifier(schema, name), sql.Identifier(table)))


def rename_constraints(session: Session, run: Callable[[sql.Composed], object]) -> None:
    """Inside the transaction, after the move: constraints that PostgreSQL named after a loaded table, now or in an earlier
    reload, get the names that it gives to those of the target. (NOT NULL has a name from PostgreSQL 18 on.)"""
    target, connection = session.target, session.main()
    found = connection.execute(
        "select k.conname::text, a.attname::text from pg_constraint k left join pg_attribute a "
        "on k.contype = 'n' and a.attrelid = k.conrelid and a.attnum = k.conkey[1] "
        "where k.conrelid = %s::regclass and k.contype in ('n', 'p') and k.conname ~ %s order by a.attnum",
        [target.identifier.as_string(connection), f"^{session.own_name('load').rpartition('_')[0]}_\\d+_"],
    ).fetchall()
    for given, column in found:
        label = "pkey" if column is None else "not_null"
        candidates = (generated_name(target.table, column, f"{label}{number or ''}") for number in itertools.count())
        wanted = next(name for name in candidates if not _is_taken(connection, target.schema, name))
        run(
            sql.SQL("alter table {} rename constraint {} to {}").format(
                target.identifier, sql.Identifier(given), sql.Identifier(wanted)
            )
        )


def generated_name(table: str, column: str | None, label: str) -> str:
    """The name that PostgreSQL gives to a constraint which has none: table and column are cut, the longer one first."""
    parts = [name.encode() for name in (table, column) if name is not None]
    lengths = [len(part) for part in parts]
    while sum(lengths) > IDENTIFIER_BYTES - len(label) - len(parts):
        longer = max(range(len(parts)), key=lambda number: (lengths[number], number))
        lengths[longer] -= 1
    cut = [part[:length].decode(errors="ignore") for part, length in zip(parts, lengths, strict=True)]
    return "_".join([*cut, label])


def _is_taken(connection: Connection, schema: str, name: str) -> bool:
    found = connection.execute(
        "select from pg_namespace n where n.nspname = %(schema)s and "
        "(exists (select from pg_class c where c.relnamespace = n.oid and c.relname = %(name)s) "
        "or exists (select from pg_constraint k where k.connamespace = n.oid and k.conname = %(name)s))",
        {"schema": schema, "name": name},
    )
    return found.fetchone() is not None


def key_violation(snapshot: Snapshot) -> CdfError:
    try:
        violation = snapshot.key_violation()
    except Exception as error:
        return snapshot.failure(error)
    return violation or SinkUnavailable(
        f"the copy of {snapshot.table} holds rows twice that the source holds once: a task was run twice",
        hint="nothing was loaded: run again, with spark.speculation off",
    )
