"""Removes from the target what the replicated delete of a person leaves behind.

Under the erased keys (``erased_keys``) these are removed:

    any `deletes`     rows whose key the source does not have at the target's position: the source itself is read. A target
                      keeps such rows with ``deletes: ignore``, and where it has refused a delete (``rejects: dead_letter``)
    deletes: soft     rows that are marked as deleted. A row that was inserted again has lost its mark and stays
    dead letters      those up to the erasing commit, and those of keys that the source does not have. A later dead letter is
                      of a key that was inserted again
    nullify           the personal values of the rows, also of rows that have none in the source, where the target may have
                      refused the update. Dead letters lose the stored row and stay: without them, nothing would show that
                      the target lacks a row

Other rows are current, and replication has updated them. If such a row has a dead letter, it is not known whether the row is
from before the erasure: then nothing is changed until an operator has resolved it. Everything happens under the target's
lease, in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from audit.errors import raise_without_context
from cdf.errors import RowRejected, SinkUnavailable, WindowOutOfOrder
from cdf.sink import Position
from connectors.postgres.erasure.erased_keys import stage_keys
from connectors.postgres.erasure.removal import (
    DELETE_LETTERS,
    NULLIFY_LETTERS,
    TargetRows,
    match_keys,
    remove_rows,
)
from connectors.postgres.erasure.rewritten_tables import forget_rewrites
from connectors.postgres.sql_parts import SCHEMA, TargetName
from connectors.postgres.state import dead_letters, migrations
from connectors.postgres.state import lease as leases
from connectors.postgres.state import position as positions
from connectors.postgres.target.reflection import read_column_types
from connectors.postgres.write.record_writer import fetch_count

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from audit.erasure.sink_contract import ErasureTask
    from connectors.postgres.client import Session
    from connectors.postgres.conversions import ColumnType
    from connectors.postgres.erasure.target import ErasureTarget

__all__ = ["erase"]

log = logging.getLogger("deltarelay.postgres")

Connection = psycopg.Connection[Any]

_REFUSED_HINT = (
    "nothing was changed: correct what refuses the erasure (a trigger, a foreign key or another constraint of the target; "
    "`deltarelay deadletter list` shows what it has refused before), then erase again"
)


def erase(target: ErasureTarget, task: ErasureTask) -> Mapping[str, int]:
    """Return counts by kind. Raises WindowOutOfOrder before any write where the target is behind the erasing commits."""
    session = target.session
    with session.errors("inspecting the target"):
        connection = session.main()
        _check_passed(session, positions.read_position(connection, str(target.name)), task)
        feeder = _read_feeder(connection, target.name)
    counts = {"rows": 0, "dead letters": 0, "staging tables": 0}
    if feeder is None:
        return counts  # nothing was ever written to the target
    with _lease_held(session, *feeder) as (position, dropped):
        _check_passed(session, position, task)
        with session.errors("inspecting the target"):
            found = read_column_types(session.main(), target.name)
            forget_rewrites(session.main(), task.requests)
        if found and position.version is not None:
            keys, staged = stage_keys(target, task, found, position.version)
            rows, letters = _with_refusal_hint(
                session, lambda: _erase_in_transaction(target, task, found, keys, staged, position)
            )
            counts |= {"rows": rows, "dead letters": letters}
    counts["staging tables"] = dropped
    fields = {name.replace(" ", "_"): count for name, count in counts.items()}
    log.info("erased", extra={"target": str(target.name), "run": task.run, **fields})
    return counts


def _check_passed(session: Session, position: Position, task: ErasureTask) -> None:
    last = max(task.versions, default=None)
    if last is None or (position.version is not None and position.version >= last):
        return
    state = "is empty" if position.version is None else f"is at version {position.version}"
    raise WindowOutOfOrder(
        f"{session.target} {state}, before version {last} that erased rows of {task.table}",
        hint="nothing was changed: run the pipeline, then erase again",
        position=position.version,
    )


def _read_feeder(connection: Connection, target: TargetName) -> tuple[str, str] | None:
    """Return the pipeline and source that fill the target, as recorded with its position."""
    if not read_column_types(connection, TargetName(SCHEMA, "position")):
        return None
    row = connection.execute(
        "select pipeline, source from deltarelay.position where target = %s", [str(target)]
    ).fetchone()
    return None if row is None else (row[0], row[1])


@contextmanager
def _lease_held(session: Session, pipeline: str, source: str) -> Iterator[tuple[Position, int]]:
    """Hold the target's lease. Yield the position, and how many staging tables of dead runners were dropped."""
    renewal: leases.Renewal | None = None
    try:
        with session.errors("opening the target"):
            connection = session.main()
            session.lease, position = leases.acquire_lease(
                connection, str(session.target), pipeline=pipeline, source=source
            )
            renewal = leases.Renewal(session.connect, session.lease)
            before = session.staging_tables(connection)
            session.sweep()
            remaining = session.staging_tables(connection)
        if remaining:
            raise SinkUnavailable(
                f"{len(remaining)} staging tables of dead runners of {session.target} cannot be dropped",
                hint="a COPY of theirs may still be running: erase again; or another role owns them: drop "
                + ", ".join(f"deltarelay.{name}" for name in remaining),
            )
        yield position, len(before)
    finally:
        if renewal is not None:
            renewal.stop()
        session.close()


def _with_refusal_hint(session: Session, work: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """Replace the usual hint of RowRejected, which is about replication: here the target refuses the erasure."""
    try:
        with session.errors("erasing"):
            return work()
    except RowRejected as error:
        refused = RowRejected(error.message, hint=_REFUSED_HINT, condition=error.condition)
    return raise_without_context(refused)


def _erase_in_transaction(
    target: ErasureTarget,
    task: ErasureTask,
    found: Mapping[str, ColumnType],
    keys: StructType,
    staged_keys: int,
    position: Position,
) -> tuple[int, int]:
    """Return the numbers of rows and dead letters."""
    session, name = target.session, str(target.name)
    connection, lease = session.main(), session.require_lease()
    staged = session.own_table("stage")
    parameters = {"target": name, "last": max(task.versions, default=position.version)}
    rows = letters = 0
    with connection.transaction():
        connection.execute("set local row_security = off")  # a policy that hides rows becomes an error
        positions.lock_position(connection, lease, expected=position.version, first=None)
        if fetch_count(connection, sql.SQL("select count(*) from {}").format(staged)) != staged_keys:
            raise SinkUnavailable(
                "the staging table does not have the number of keys that were copied into it: the server was restarted "
                "meanwhile",
                hint="nothing was changed: erase again",
            )
        connection.execute(sql.SQL("analyze {}").format(staged))
        has_letters = bool(dead_letters.read_key_digests(connection, name))
        emptied = target.personal_columns(task, found) if task.on_erase == "nullify" else None
        if emptied != []:
            matches = match_keys(target.name, keys, found)
            target_rows = TargetRows(target.name, staged, matches, [*map(target.columns.target_name, emptied or ())])
            marked = target.retained_condition(found) if target.deletes == "soft" else None
            rows = remove_rows(connection, target_rows, marked, has_letters, parameters)
        if has_letters:
            statement = DELETE_LETTERS if emptied is None else NULLIFY_LETTERS
            letters = connection.execute(statement.format(staged), parameters).rowcount
        if migrations.has_holds_rows(connection):
            positions.record_rows(connection, target.name)
    return rows, letters
