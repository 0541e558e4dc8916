"""The target made anew from a snapshot, from wherever it stands.

    swap     COPY into a fresh table beside it, give it everything that the old one has, then one short transaction:
             drop the old, move the new to its place, position. For a table that nothing hangs on
    merge    COPY into staging, then one transaction that deletes, updates and inserts what differs, position. For a
             table whose views, foreign keys, policies, publications, … a swap would lose: ``Shape.dependents``

Killed at any point it leaves the old rows and the old position, or the new ones and the new one. What lies beside it is
dropped by the next ``open``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import SinkUnavailable
from cdf.sink import Position
from connectors.postgres import merge
from connectors.postgres import position as positions
from connectors.postgres.dress import Dressing
from connectors.postgres.errors import raise_alone
from connectors.postgres.inspection import additions, database_problems, foreign_rows, position_of
from connectors.postgres.load import copy_snapshot, key_violation, move_to_its_place, refuse_rows
from connectors.postgres.schema import add_primary_key, create_table, problems_of, reflect
from connectors.postgres.shape import Shape, create_shaped, read_shape

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.sink import Source
    from cdf.window import Snapshot
    from connectors.postgres.schema import TargetName
    from connectors.postgres.session import Session

__all__ = ["reload_problems", "log_problems", "reload"]

log = logging.getLogger("deltarelay.postgres")

PATIENCE_SECONDS = 60.0
LOCK_TIMEOUT = "1s"
"""Whoever waits for the lock that a swap needs makes everybody behind it wait as well: not for long, then again."""

Connection = psycopg.Connection[Any]


def reload_problems(connection: Connection, name: TargetName, source: Source) -> list[str]:
    """Everything that would stop a reload. Other than for a run, what the target holds now hardly counts."""
    problems = database_problems(connection, name) + log_problems(connection)
    target, shape = reflect(connection, name), read_shape(connection, name)
    merged = shape is not None and _merges(shape, source.schema)
    problems += problems_of(source, name, target if merged or (target and not target.is_table) else None)
    if target is None or shape is None or not target.is_table:
        return problems
    if not target.empty and position_of(connection, name).version is None:
        problems.append(foreign_rows(name))
    if not merged:
        gone = {column.name for column in shape.left_over(source.schema)}
        problems += [
            f"{name} has a column {column!r} with values in it that the source has never had: "
            "drop it, or give it a default if it is your own"
            for column in sorted(gone - source.former)
            if _holds_values(connection, name, column)
        ]
        return problems + [
            f"{name}.{column.name} is generated from columns that the source no longer has: drop it"
            for column in shape.kept(source.schema)
            if column.generated_from & gone
        ]
    why = ", ".join(_reasons(shape, source.schema))
    problems += [
        f"the source no longer has a column {column.name!r}, and {name} cannot be replaced by a new table ({why}): "
        "drop the column there, or give it a default if it is your own"
        for column in shape.left_over(source.schema)
    ]
    added = additions(name, {column.name for column in target.columns}, source.schema)
    if added and not target.owned:
        problems.append(f"the role does not own {name}, so it cannot add what is missing: " + "; ".join(added))
    return problems


def reload(
    session: Session, snapshot: Snapshot, *, before: Position, seconds: dict[str, float]
) -> tuple[int, tuple[str, ...]]:
    """→ rows, the statements that were run"""
    with session.errors("looking at the target"):
        shape = read_shape(session.main(), session.target)
    merging = shape is not None and _merges(shape, snapshot.schema)
    if shape is not None and merging:
        why = list(_reasons(shape, snapshot.schema))
        log.info("merging, because a new table would lose", extra={"target": str(session.target), "dependents": why})
    began = time.monotonic()
    create = None
    if merging:
        create = create_table(session.own_table("load"), snapshot.schema, logged=False)
    elif shape is not None:
        create = create_shaped(session.own_table("load"), shape, snapshot.schema)
    rows = copy_snapshot(session, snapshot, create=create).rows
    seconds["copy"] = round(time.monotonic() - began, 4)
    began = time.monotonic()
    if merging:
        merge.add_key(session, snapshot)
        ddl = patiently(session, lambda: merge.merge(session, snapshot, rows, before=before))
        seconds["merge"] = round(time.monotonic() - began, 4)
        return rows, ddl
    dressing = None if shape is None else Dressing(session, shape, snapshot)
    made = _dressed(session, snapshot, dressing)
    seconds["build"] = round(time.monotonic() - began, 4)
    began = time.monotonic()
    await_readers(session)
    swapped = patiently(session, lambda: _swap(session, snapshot, shape, dressing, before))
    seconds["swap"] = round(time.monotonic() - began, 4)
    return rows, (*([create] if create is not None else []), *made, *swapped)


def _holds_values(connection: Connection, name: TargetName, column: str) -> bool:
    statement = sql.SQL("select exists (select from {} where {} is not null)")
    found = connection.execute(statement.format(name.identifier, sql.Identifier(column))).fetchone()
    return found == (True,)


def _merges(shape: Shape, schema: StructType) -> bool:
    return bool(_reasons(shape, schema))


def _reasons(shape: Shape, schema: StructType) -> tuple[str, ...]:
    own = tuple(f"column {column.name!r} of its own" for column in shape.own(schema))
    ownership = () if shape.owned_by_us else (f"it belongs to {shape.owner}",)
    return (*shape.dependents, *own, *ownership)


def log_problems(connection: Connection) -> list[str]:
    row = connection.execute(
        """
        select has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'deltarelay' and c.relname = 'position_log'
        """
    ).fetchone()
    if row is None or row[0]:
        return []
    return ["the role may not write deltarelay.position_log: grant select, insert on it"]


# ── the swap ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _dressed(session: Session, snapshot: Snapshot, dressing: Dressing | None) -> tuple[str, ...]:
    """Make the copied rows a table that can take the old one's place. → the statements that were run"""
    done: list[str] = []
    loaded = session.own_table("load")
    keyed = True
    with session.errors("building the key of the new table"):
        connection = session.main()
        try:
            if dressing is None:
                connection.execute(add_primary_key(loaded, snapshot.key))
            else:
                for statement in dressing.key():
                    connection.execute(statement)
                    done.append(statement.as_string(connection))
                keyed = connection.execute(dressing.null_keys()).fetchone() == (False,)
        except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
            keyed = False
    if not keyed:
        session.drop("load")
        raise_alone(key_violation(snapshot))
    for about, statement in dressing.rest() if dressing is not None else ():
        with session.errors(f"giving the new table {about} of the old one"):
            session.main().execute(statement)
            done.append(statement.as_string(session.main()))
    with session.errors("giving the new table the rights of the old one"):
        connection = session.main()
        if dressing is not None:
            row = connection.execute("select %s::regclass::oid", [loaded.as_string(connection)]).fetchone()
            assert row is not None
            done += [statement.as_string(connection) for statement in dressing.rights(connection, row[0])]
        connection.execute(sql.SQL("analyze {}").format(loaded))
    return tuple(done)


def _swap(
    session: Session, snapshot: Snapshot, shape: Shape | None, dressing: Dressing | None, before: Position
) -> tuple[str, ...]:
    lease, target = session.held(), session.target
    done: list[str] = []
    connection = session.main()

    def run(statement: sql.Composed) -> None:
        connection.execute(statement)
        done.append(statement.as_string(connection))

    with connection.transaction():
        positions.lock_position(connection, lease, expected=before.version, first=None)
        connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(LOCK_TIMEOUT)))
        if shape is not None:
            connection.execute(sql.SQL("lock table {} in access exclusive mode").format(target.identifier))
            if before.version is None:
                refuse_rows(connection, session)
        if read_shape(connection, target) != shape:
            raise SinkUnavailable(
                f"{target} was altered while its successor was being built",
                hint="nothing was changed: run again",
            )
        if shape is not None:
            run(sql.SQL("drop table {}").format(target.identifier))
        move_to_its_place(session, run, name_key=dressing is None)
        for statement in dressing.renames(target.identifier, target.schema) if dressing is not None else ():
            run(statement)
        after = Position(version=snapshot.version, table_id=snapshot.table_id)
        positions.move_recorded(connection, lease, before=before, to=after, action="reload")
    return tuple(done)


# ── patience ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def await_readers(session: Session) -> None:
    """Wait for every snapshot that is older than the copy: to a reader who holds one, the new table would be empty."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with session.errors("waiting for readers"):
        older = _open_snapshots(session.main())
        while older and time.monotonic() < deadline:
            time.sleep(0.1)
            older &= _open_snapshots(session.main())
    if older:
        raise _in_use(session)


def _open_snapshots(connection: Connection) -> set[str]:
    """Transactions of this database that look at it as of some moment, by their virtual ids."""
    found = connection.execute(
        """
        select l.virtualtransaction from pg_stat_activity a join pg_locks l on l.pid = a.pid
         where l.locktype = 'virtualxid' and l.granted and a.backend_xmin is not null
           and a.datname = current_database() and a.usesysid is not null and a.pid <> pg_backend_pid()
           and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
        """
    )
    return {name for (name,) in found}


def patiently(session: Session, step: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """Try again for a while where somebody else holds a lock that the step needs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with session.errors("reloading the target"):
            try:
                return step()
            except psycopg.errors.LockNotAvailable:
                log.info("waiting for others to leave the table", extra={"target": str(session.target)})
        time.sleep(0.5)
    raise _in_use(session)


def _in_use(session: Session) -> SinkUnavailable:
    return SinkUnavailable(
        f"a transaction of somebody else has been using {session.target} for {PATIENCE_SECONDS:.0f} s",
        hint="nothing was changed: run again when it has ended (pg_stat_activity shows it)",
    )
