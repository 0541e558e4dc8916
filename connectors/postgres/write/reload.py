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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from cdf.errors import SinkUnavailable
from cdf.sink import Position
from connectors.postgres import position as positions
from connectors.postgres.column_mapping import with_own
from connectors.postgres.conversions import Found, chosen_by_somebody
from connectors.postgres.errors import raise_alone
from connectors.postgres.inspect import additions, database_problems, foreign_rows, position_of
from connectors.postgres.state.dead_letters import forget_all
from connectors.postgres.target.ddl import (
    add_comment,
    add_primary_key,
    column_types,
    create_table,
    holds_values,
    problems_of,
    reflect,
)
from connectors.postgres.target.definition import Shape, create_shaped, read_shape
from connectors.postgres.types import target_type
from connectors.postgres.write import merge
from connectors.postgres.write.clone_definition import Dressing
from connectors.postgres.write.initial_load import (
    add_own,
    copy_snapshot,
    key_violation,
    move_to_its_place,
    refuse_rows,
    rename_constraints,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.window import Snapshot
    from cdf.sink import Source
    from connectors.postgres.client import Session
    from connectors.postgres.options import Deletes
    from connectors.postgres.target.ddl import TargetName

__all__ = ["reload_problems", "log_problems", "reasons_to_merge", "InUse", "reload"]

log = logging.getLogger("deltarelay.postgres")

PATIENCE_SECONDS = 60.0
LOCK_TIMEOUT = "1s"
"""Whoever waits for the lock that a swap needs makes everybody behind it wait as well: not for long, then again."""

Connection = psycopg.Connection[Any]


def reload_problems(
    connection: Connection, name: TargetName, source: Source, own: Sequence[str], deletes: Deletes
) -> list[str]:
    """Everything that would stop a reload. Other than for a run, what the target holds now hardly counts."""
    problems = database_problems(connection, name) + log_problems(connection)
    target, shape = reflect(connection, name), read_shape(connection, name)
    found = column_types(connection, name)
    reasons = () if shape is None else reasons_to_merge(shape, source.schema, own, found, deletes)
    merged = bool(reasons)
    problems += problems_of(source, name, target if merged or (target and not target.is_table) else None, own)
    whole = with_own(source.schema, own)
    if target is None or shape is None or not target.is_table:
        return problems
    if target.empty is False and position_of(connection, name).version is None:
        problems.append(foreign_rows(name))
    if not merged:
        gone = {column.name for column in shape.left_over(whole)}
        problems += [
            f"{name} has a column {column!r} with values in it that the source has never had: "
            "drop it, or give it a default if it is your own"
            for column in sorted(gone - source.former)
            if holds_values(connection, name, column)
        ]
        return problems + [
            f"{name}.{column.name} is generated from columns that the source no longer has: drop it"
            for column in shape.kept(whole)
            if column.generated_from & gone
        ]
    why = ", ".join(reasons)
    problems += [
        f"the source no longer has a column {column.name!r}, and {name} cannot be replaced by a new table ({why}): "
        "drop the column there, or give it a default if it is your own"
        for column in shape.left_over(whole)
    ]
    added = additions(name, found, source.schema, own)
    if added and not target.owned:
        problems.append(f"the role does not own {name}, so it cannot add what is missing: " + "; ".join(added))
    return problems


def reload(
    session: Session,
    snapshot: Snapshot,
    own: Sequence[str],
    deletes: Deletes,
    *,
    before: Position,
    seconds: dict[str, float],
    action: str | None = "reload",
    must_merge: bool = False,
    confirm: Callable[[], None] = lambda: None,
    counts: Mapping[str, int] | None = None,
) -> tuple[int, tuple[str, ...]]:
    """→ rows, the statements that were run. ``action``: what the record of the position says, if there is to be one.
    ``must_merge``: the table stays, also where another could take its place. ``confirm`` is called between reading the rows
    and making them durable. ``counts``: what the history is to say of a window that is applied so; None: what is written."""
    with session.errors("looking at the target"):
        shape = read_shape(session.main(), session.target)
        found = column_types(session.main(), session.target)
    why = () if shape is None else reasons_to_merge(shape, snapshot.schema, own, found, deletes)
    merging = must_merge or bool(why)
    if merging:
        told = {"target": str(session.target), "dependents": list(why)}
        log.info("merging, because a new table would lose", extra=told)
    began = time.monotonic()
    create = None
    if merging:
        create = create_table(session.own_table("load"), snapshot.schema, logged=False)
    elif shape is not None:
        create = create_shaped(session.own_table("load"), shape, snapshot.schema)
        look_for_readers(session)
    rows = copy_snapshot(session, snapshot, create=create).rows
    confirm()
    seconds["copy"] = round(time.monotonic() - began, 4)
    # To copy again would take as long
    patience = max(PATIENCE_SECONDS, seconds["copy"])
    began = time.monotonic()
    if merging:
        merge.add_key(session, snapshot)
        ddl = patiently(
            session,
            lambda: merge.merge(session, snapshot, rows, own, deletes, before=before, action=action, counts=counts),
            patience,
        )
        seconds["merge"] = round(time.monotonic() - began, 4)
        return rows, ddl
    with session.errors("adding the columns of ours"):
        add_own(session.main(), session.own_table("load"), own, snapshot)
    whole = replace(snapshot, schema=with_own(snapshot.schema, own))
    dressing = None if shape is None else Dressing(session, shape, whole)
    made = _dressed(session, snapshot, dressing)
    seconds["build"] = round(time.monotonic() - began, 4)
    began = time.monotonic()
    if shape is not None:
        await_readers(session, patience)
    swapped = patiently(session, lambda: _swap(session, snapshot, shape, dressing, before, action, counts), patience)
    seconds["swap"] = round(time.monotonic() - began, 4)
    return rows, (*([create] if create is not None else []), *made, *swapped)


def reasons_to_merge(
    shape: Shape, schema: StructType, own: Sequence[str], found: Mapping[str, Found], deletes: Deletes
) -> tuple[str, ...]:
    """Why the table cannot be replaced by another one; none: it can."""
    theirs = [f"column {column.name!r} of its own" for column in shape.own(with_own(schema, own))]
    if not shape.owned_by_us:
        theirs.append(f"it belongs to {shape.owner}")
    if deletes != "hard":
        theirs.append("it keeps rows that the source has deleted")
    for field in schema.fields:
        wanted, held = target_type(field.dataType), found.get(field.name)
        if wanted is None or held is None:
            continue
        if chosen_by_somebody(wanted, held, made_by_us=shape.made_by_us):
            theirs.append(f"column {field.name!r} is {held.type} by somebody's choice")
    return (*shape.dependents, *theirs)


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
    session: Session,
    snapshot: Snapshot,
    shape: Shape | None,
    dressing: Dressing | None,
    before: Position,
    action: str | None,
    counts: Mapping[str, int] | None,
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
        move_to_its_place(session, run)
        for statement in dressing.renames(target.identifier, target.schema) if dressing is not None else ():
            run(statement)
        rename_constraints(session, run)
        if shape is None:
            run(sql.SQL("{}").format(sql.SQL(add_comment(target.identifier))))
        after = Position(version=snapshot.version, table_id=snapshot.table_id)
        forget_all(connection, str(target))  # each row of the source is stored now
        positions.record_rows(connection, target)
        positions.move_recorded(connection, lease, before=before, to=after, action=action)
        session.record(connection, **(counts or {}))
    return tuple(done)


# ── patience ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def look_for_readers(session: Session) -> None:
    """Before anything is copied: a transaction that has a snapshot now may still have it when the copy is complete."""
    _await_end(session, PATIENCE_SECONDS, "nothing was copied: end it (pg_stat_activity shows it), or run again later")


def await_readers(session: Session, patience: float) -> None:
    """Wait for every snapshot that is older than the copy: to a reader who holds one, the new table would be empty.

    A copy that waited in vain is dropped, not kept for the next try: it would have to be of the source, schema, settings and
    shape of that day, and free of persons who were erased since. The next try looks before it copies, so it does not copy as
    long as this reader stays."""
    so = "the target was not changed, the copy is dropped: end that transaction first (pg_stat_activity shows it), then run "
    _await_end(session, patience, so + "again, which copies the table again")


def _await_end(session: Session, patience: float, so: str) -> None:
    began = told = time.monotonic()
    with session.errors("waiting for readers"):
        older = _open_snapshots(session.main(), session.target)
        while older and time.monotonic() - began < patience:
            if time.monotonic() - told > 10:
                told = time.monotonic()
                log.info("waiting for older transactions", extra={"target": str(session.target), "pids": sorted(older)})
            time.sleep(0.1)
            still = _open_snapshots(session.main(), session.target)
            older = {process: snapshot for process, snapshot in older.items() if still.get(process) == snapshot}
    if older:
        processes = ", ".join(map(str, sorted(older)))
        raise InUse(
            f"a transaction that began before the copy was complete could still read {session.target}, and would find the "
            f"new table empty (server process {processes}): waited {patience:.0f} s for its end",
            hint=so,
        )


def _open_snapshots(connection: Connection, target: TargetName) -> dict[int, tuple[str, str]]:
    """Process → transaction and xmin, for each that has a snapshot of this database and a role that may read the target, or
    may become one that may. A transaction whose xmin changes takes a new snapshot for each statement, and sees the copy."""
    found = connection.execute(
        """
        select a.pid, l.virtualtransaction, a.backend_xmin::text
          from pg_stat_activity a join pg_locks l on l.pid = a.pid
         where l.locktype = 'virtualxid' and l.granted and a.backend_xmin is not null
           and a.datname = current_database() and a.usesysid is not null and a.pid <> pg_backend_pid()
           and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
           and exists (
               select from pg_roles r, pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = %s and c.relname = %s and pg_has_role(a.usesysid, r.oid, 'member')
                  and has_any_column_privilege(r.oid, c.oid, 'select'))
        """,
        [target.schema, target.table],
    )
    return {pid: (transaction, xmin) for pid, transaction, xmin in found}


def patiently(session: Session, step: Callable[[], tuple[str, ...]], patience: float) -> tuple[str, ...]:
    """Try again for a while where another session holds a lock that the step needs."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with session.errors("reloading the target"):
            try:
                return step()
            except psycopg.errors.LockNotAvailable:
                log.info("waiting for others to leave the table", extra={"target": str(session.target)})
        time.sleep(0.5)
    raise InUse(
        f"transactions of other sessions have kept {session.target} locked for {patience:.0f} s",
        hint="nothing was changed: run again when they have ended (pg_locks and pg_stat_activity show them)",
    )


class InUse(SinkUnavailable):
    """Readers or writers are in the way of it."""
