"""The initial copy: COPY into a fresh table of ours (from the tasks; small tables from the driver), add the key, move the
table to the target's name.

    deltarelay.load_<target>_<epoch>   ─▶   <schema>.<table>, with the position, in one transaction

An existing (empty) target is not replaced: the rows are inserted into it, so that it keeps its grants, indexes and
additional columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.errors import raise_without_context
from cdf.changes.in_memory import InMemorySnapshot
from cdf.errors import CdfError, SinkUnavailable, TargetNotReady
from cdf.source.direct_reader import read_snapshot_directly
from connectors.postgres.column_mapping import (
    APPLIED_AT,
    COMMIT_TIMESTAMP_COLUMN,
    COMMIT_VERSION_COLUMN,
    DELETED_AT,
    METADATA_TYPES,
)
from connectors.postgres.conversions import Cast, find_casts
from connectors.postgres.errors import refuse_swallowed
from connectors.postgres.load.loaded_table import move_to_target, rename_constraints
from connectors.postgres.sql_parts import fill_template
from connectors.postgres.staging import adbc_copy, file_copy, in_memory, tasks
from connectors.postgres.staging.columns import COPY_ROWS, Staged
from connectors.postgres.staging.failures import explain_copy_failure, sqlstate_of_copy
from connectors.postgres.state import position as positions
from connectors.postgres.state.dead_letters import delete_all_dead_letters
from connectors.postgres.target.ddl import (
    add_comment,
    add_missing_columns,
    add_primary_key,
    create_table,
    create_target,
)
from connectors.postgres.target.reflection import read_column_types, reflect
from connectors.postgres.types import check_types
from connectors.postgres.write.misfits import refuse_misfits_of_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot
    from connectors.postgres.client import Session

__all__ = [
    "add_metadata_columns",
    "analyze",
    "copy_snapshot",
    "explain_key_violation",
    "place_loaded_rows",
    "prepare_empty_target",
    "refuse_rows",
]

LOAD_TRIES = 3
NULL_KEY = psycopg.errors.NotNullViolation.sqlstate
"""Where the table has only the columns of the snapshot, its key alone is NOT NULL."""

Connection = psycopg.Connection[Any]


def copy_snapshot(session: Session, snapshot: Snapshot, *, small_bytes: int = 0, create: str | None = None) -> Staged:
    """COPY the snapshot into a fresh table of ours. If the count shows that a task ran twice, the copy is repeated.

    ``small_bytes``: files with at most this many bytes are read and copied by the driver, without a Spark job.
    ``create``: the statement that creates the table, if it has more than the snapshot's columns; those have our types.
    """
    check_types(snapshot.schema)
    loaded = session.own_table("load")
    files = file_copy.find_snapshot_files(snapshot)
    rows = read_snapshot_directly(snapshot, files) if files is not None and files.size <= small_bytes else None
    by_driver = False
    for _ in range(LOAD_TRIES + (files is not None and rows is None)):
        with session.errors("creating the table to load"):
            session.drop("load")
            session.main().execute(create or create_table(loaded, snapshot.schema, key=snapshot.key))
        try:
            if rows is not None or isinstance(snapshot, InMemorySnapshot):
                by_driver = True
                staged = _copy_in_memory(session, snapshot.schema, snapshot.collect() if rows is None else rows)
            elif files is None:
                staged = tasks.copy_snapshot_rows(snapshot, session.dsn, session.own_name("load"))
            else:
                columns = tasks.load_columns(snapshot.schema)
                staged = file_copy.copy_snapshot_files(
                    files, snapshot.schema, columns, session.dsn, session.own_name("load")
                )
        except file_copy.FilesRefused:
            files = None
            continue
        except Exception as error:
            session.drop("load")
            if create is None and sqlstate_of_copy(error) == NULL_KEY:
                raise_without_context(explain_key_violation(snapshot))
            raise_without_context(explain_copy_failure(session, error, snapshot, by_driver=by_driver))
        if recount(session, staged):
            if session.history is not None:
                session.history.record_copy(staged.rows)
            return staged
    session.drop("load")
    raise SinkUnavailable(
        f"the copy of {snapshot.table} does not have the number of rows that were sent, {LOAD_TRIES} times",
        hint="Spark runs tasks twice: turn spark.speculation off, and look for executors that are lost",
    )


def _copy_in_memory(session: Session, schema: StructType, rows: pa.Table) -> Staged:
    batches = in_memory.wire_rows(rows, schema).to_batches(max_chunksize=COPY_ROWS)
    tally = adbc_copy.Tally(tasks.load_columns(schema))
    if batches:
        with adbc_copy.bulk_connection(session.dsn) as bulk, session.cancellable(bulk.adbc_cancel):
            adbc_copy.run_interruptibly(
                lambda: adbc_copy.copy_batches(bulk, session.own_name("load"), batches[0], iter(batches[1:]), tally),
                cancel=bulk.adbc_cancel,
            )
    return tally.staged()


def recount(session: Session, staged: Staged) -> bool:
    with session.errors("counting the loaded rows"):
        found = session.main().execute(sql.SQL("select count(*) from {}").format(session.own_table("load"))).fetchone()
    return found == (staged.rows,)


def place_loaded_rows(session: Session, snapshot: Snapshot, rows: int, own: Sequence[str]) -> tuple[str, ...]:
    """Make the copied rows the target's, and record the position, in one transaction. → the DDL that was executed

    ``own``: the target's metadata columns; they get version and time of the snapshot.
    """
    lease, name, loaded = session.require_lease(), session.target, session.own_table("load")
    ddl: tuple[str, ...] = ()
    is_keyed = True
    with session.errors("loading the target"):
        connection = session.main()
        exists = reflect(connection, name) is not None
        with session.verify_commit(snapshot.version), connection.transaction() as transaction:
            positions.lock_position(connection, lease, expected=None, first=None)
            # Rows of other writers that policies hide from this role must be found as well
            connection.execute("set local row_security = off")
            try:
                connection.execute(add_primary_key(loaded, snapshot.key))
            except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
                is_keyed = False
                raise psycopg.Rollback(transaction) from None
            add_metadata_columns(connection, loaded, own, snapshot)
            if exists:
                ddl = _insert_into_existing(connection, session, snapshot, rows, own)
            else:
                delete_all_dead_letters(connection, str(name))
                move_to_target(session, connection.execute)
                rename_constraints(session, connection.execute)
                connection.execute(add_comment(name.identifier))
                ddl = create_target(name, snapshot.schema, snapshot.key, own)
            positions.record_rows(connection, name)
            positions.move_position(
                connection, lease, expected=None, version=snapshot.version, table_id=snapshot.table_id
            )
            session.record(connection)
    if not is_keyed:
        session.drop("load")
        # After the transaction, because this reads the source again
        raise_without_context(explain_key_violation(snapshot))
    return ddl


def analyze(session: Session) -> None:
    """Statistics help the first queries. Errors are ignored, and a table that another session has locked is left out."""
    with suppress(psycopg.Error):
        session.main().execute(sql.SQL("analyze (skip_locked) {}").format(session.target.identifier))


def prepare_empty_target(
    connection: Connection, session: Session, snapshot: Snapshot, own: Sequence[str]
) -> tuple[str, ...]:
    """Inside the loading transaction: create the target, or lock the existing one and check that it is empty. → the DDL"""
    delete_all_dead_letters(connection, str(session.target))  # of an earlier table of this name
    if not read_column_types(connection, session.target):
        statements = create_target(session.target, snapshot.schema, snapshot.key, own)
        for statement in statements:
            connection.execute(statement)
        return statements
    connection.execute(sql.SQL("lock table {} in share row exclusive mode").format(session.target.identifier))
    refuse_rows(connection, session)
    return ()


def add_metadata_columns(
    connection: Connection, loaded: sql.Identifier, own: Sequence[str], snapshot: Snapshot
) -> None:
    """Each column has the same value in all rows, which PostgreSQL adds without rewriting them."""
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
    prepare_empty_target(connection, session, snapshot, own)
    ddl = tuple(add_missing_columns(name, read_column_types(connection, name), snapshot.schema, own))
    for statement in ddl:
        connection.execute(statement)
    casts = find_casts(str(name), snapshot.schema, read_column_types(connection, name))
    refuse_misfits_of_table(connection, str(name), loaded, snapshot.schema, casts)
    inserted = connection.execute(_insert_all(target, loaded, snapshot.schema, casts, own)).rowcount
    refuse_swallowed(name, "insert", wanted=rows, touched=inserted)
    connection.execute(sql.SQL("drop table {}").format(loaded))
    return ddl


def _insert_all(
    target: sql.Identifier, loaded: sql.Identifier, schema: StructType, casts: Mapping[str, Cast], own: Sequence[str]
) -> sql.Composed:
    """Insert the rows of a table with our types into the target."""
    names = schema.fieldNames()
    values = [fill_template(casts[name].value, sql.Identifier(name), parameters=False) for name in names]
    return sql.SQL("insert into {} ({}) overriding system value select {} from {}").format(
        target,
        sql.SQL(", ").join(map(sql.Identifier, [*names, *own])),
        sql.SQL(", ").join([*values, *map(sql.Identifier, own)]),
        loaded,
    )


def refuse_rows(connection: Connection, session: Session) -> None:
    """Under a lock that keeps other writers out: check that a target without a position is still empty."""
    target = session.target
    found = connection.execute(sql.SQL("select exists (select 1 from {})").format(target.identifier)).fetchone()
    if found == (True,):
        raise TargetNotReady(
            f"another session filled {target} while it was being loaded",
            hint="empty it, or name another table",
        )


def explain_key_violation(snapshot: Snapshot) -> CdfError:
    try:
        violation = snapshot.key_violation()
    except Exception as error:
        return snapshot.failure(error)
    return violation or SinkUnavailable(
        f"the copy of {snapshot.table} contains some rows twice that the source has once: Spark ran a task twice",
        hint="nothing was loaded: run again, with spark.speculation off",
    )
