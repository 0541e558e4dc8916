"""The initial copy: COPY from the tasks into a fresh table of ours, add the key, move it to its place.

    deltarelay.load_<target>_<epoch>   ─▶   <schema>.<table>, with the position, in one transaction

An existing (empty) target is not replaced: the rows are inserted into it, so that it keeps its grants, indexes and
columns of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import CdfError, KeyViolation, SinkUnavailable, TargetNotReady
from connectors.postgres import position as positions
from connectors.postgres import staging
from connectors.postgres.errors import raise_alone
from connectors.postgres.inspection import additions
from connectors.postgres.schema import IDENTIFIER_BYTES, add_primary_key, column_names, create_table, reflect
from connectors.postgres.sql import insert_all
from connectors.postgres.staging import Staged
from connectors.postgres.types import check_types

if TYPE_CHECKING:
    from cdf.window import Snapshot
    from connectors.postgres.session import Session

__all__ = ["copy_snapshot", "put_in_place", "move_to_its_place", "refuse_rows", "key_violation", "analyze"]

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
            rows = staging.wire_rows(snapshot.read(), snapshot.schema)
            staged = staging.copy_from_tasks(rows, session.dsn, session.own_name("load"), snapshot.schema)
        except Exception as error:
            session.drop("load")
            raise_alone(session.copy_failure(error, snapshot, snapshot.read))
        if recount(session, staged):
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


def put_in_place(session: Session, snapshot: Snapshot) -> tuple[str, ...]:
    """Make the copied rows the target, and record the position, in one transaction. → the DDL that was run"""
    lease, name, loaded = session.held(), session.target, session.own_table("load")
    ddl: tuple[str, ...] = ()
    keyed = True
    with session.errors("loading the target"):
        connection = session.main()
        existing = reflect(connection, name) is not None
        with session.committed(snapshot.version), connection.transaction() as transaction:
            positions.lock_position(connection, lease, expected=None, first=None)
            try:
                connection.execute(add_primary_key(loaded, snapshot.key))
            except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
                keyed = False
                raise psycopg.Rollback(transaction) from None
            if existing:
                ddl = _insert_into_existing(connection, session, snapshot)
            else:
                move_to_its_place(session, connection.execute, name_key=True)
                ddl = (create_table(name.identifier, snapshot.schema), add_primary_key(name.identifier, snapshot.key))
            positions.move_position(
                connection, lease, expected=None, version=snapshot.version, table_id=snapshot.table_id
            )
    if not keyed:
        session.drop("load")
        raise_alone(key_violation(snapshot))  # not before the transaction has ended: it reads the source again
    return ddl


def analyze(session: Session) -> None:
    """Statistics are a kindness to the first queries, never a reason to fail."""
    with suppress(psycopg.Error):
        session.main().execute(sql.SQL("analyze {}").format(session.target.identifier))


def _insert_into_existing(connection: Connection, session: Session, snapshot: Snapshot) -> tuple[str, ...]:
    name, target, loaded = session.target, session.target.identifier, session.own_table("load")
    connection.execute(sql.SQL("lock table {} in share row exclusive mode").format(target))
    refuse_rows(connection, session)
    ddl = tuple(additions(name, column_names(connection, name), snapshot.schema))
    for statement in ddl:
        connection.execute(statement)
    connection.execute(insert_all(target, loaded, snapshot.schema))
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


def move_to_its_place(session: Session, run: Callable[[sql.Composed], object], *, name_key: bool) -> None:
    """Inside the transaction: the loaded table becomes the target. ``name_key``: its primary key is named after it."""
    schema, table = session.target.schema, session.target.table
    name = session.own_name("load")
    run(sql.SQL("alter table {} set schema {}").format(session.own_table("load"), sql.Identifier(schema)))
    run(sql.SQL("alter table {} rename to {}").format(sql.Identifier(schema, name), sql.Identifier(table)))
    if not name_key:
        return
    wanted = f"{table.encode()[: IDENTIFIER_BYTES - 5].decode(errors='ignore')}_pkey"
    taken = (
        session.main()
        .execute(
            "select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s",
            [schema, wanted],
        )
        .fetchone()
    )
    if taken is None:
        index = sql.Identifier(schema, f"{name}_pkey")
        run(sql.SQL("alter index {} rename to {}").format(index, sql.Identifier(wanted)))


def key_violation(snapshot: Snapshot) -> CdfError:
    try:
        faults = snapshot.key_faults()
    except Exception as error:
        return snapshot.failure(error)
    parts = []
    if faults.duplicate_keys:
        parts.append(f"{faults.duplicate_keys} keys occur more than once")
    if faults.null_rows:
        parts.append(f"{faults.null_rows} rows have a null in the key")
    if not parts:
        return SinkUnavailable(
            f"the copy of {snapshot.table} holds rows twice that the source holds once: a task was run twice",
            hint="nothing was loaded: run again, with spark.speculation off",
        )
    return KeyViolation(
        f"version {snapshot.version} of {snapshot.table} cannot be keyed by ({', '.join(snapshot.key)}): "
        + " and ".join(parts),
        hint="name the columns that identify a row, or repair the source and start at a later version",
        table=snapshot.table,
        version=snapshot.version,
        duplicate_keys=faults.duplicate_keys,
        null_rows=faults.null_rows,
    )
