"""The position of each target: one row in ``deltarelay.position``. Moves by hand are recorded in
``deltarelay.position_log``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import psycopg
from psycopg import sql

from cdf.errors import WindowOutOfOrder
from cdf.os_user import os_user
from cdf.sink import Position, PositionRecord, Standing
from connectors.postgres.sql_parts import Name, TargetName
from connectors.postgres.state import lease as leases
from connectors.postgres.state.lease import Lease, fenced_error, position_of_row
from connectors.postgres.state.migrations import find_state_tables

__all__ = [
    "LOCK_SECONDS",
    "find_lost_rows",
    "lock_position",
    "move_and_record",
    "move_position",
    "position_log_problems",
    "read_highest_former_version",
    "read_position",
    "read_standing",
    "record_rows",
]

LOCK_SECONDS = 60.0

Connection = psycopg.Connection[Any]


def read_position(connection: Connection, target: str) -> Position:
    """The committed position; empty where none was ever recorded."""
    if "position" not in find_state_tables(connection):
        return Position()
    row = connection.execute(
        "select version, source_table_id from deltarelay.position where target = %s", [target]
    ).fetchone()
    return Position() if row is None else position_of_row(*row)


# ── inside the applying transaction ──────────────────────────────────────────────────────────────────────────────────


def lock_position(connection: Connection, lease: Lease, *, expected: int | None, first: int | None) -> None:
    """Lock the row, and check that this runner may continue from ``expected``. Raises Fenced or WindowOutOfOrder."""
    # If this process freezes or loses its host the server must release the row after one lease, not after TCP's timeout.
    # Another session's lock on the target is waited for, but not for ever; a limit of the role or the dsn has precedence
    connection.execute(
        """
        select set_config('idle_in_transaction_session_timeout', '15s', true),
               case when current_setting('lock_timeout') = '0' then set_config('lock_timeout', %s, true) end,
               pg_try_advisory_xact_lock(hashtextextended(%s, 0))
        """,
        [f"{LOCK_SECONDS * 1000:.0f}ms", _advisory_name(lease.target)],
    )
    row = connection.execute(
        "select epoch, version from deltarelay.position where target = %s for update", [lease.target]
    ).fetchone()
    if row is None or row[0] != lease.epoch:
        raise fenced_error(lease.target)
    if row[1] != expected:
        state = "is empty" if row[1] is None else f"is at version {row[1]}"
        step = "a load" if first is None else f"a window from version {first}"
        raise WindowOutOfOrder(
            f"{step} does not follow the position of {lease.target}, which {state}",
            hint="run again: the run continues from the position",
            position=row[1],
        )


def move_position(connection: Connection, lease: Lease, *, expected: int | None, version: int, table_id: str) -> None:
    """Compare and swap the position, and extend the lease. Raises Fenced."""
    moved = connection.execute(
        """
        update deltarelay.position
           set version = %s, source_table_id = %s, updated_at = clock_timestamp(),
               lease_until = clock_timestamp() + make_interval(secs => %s)
         where target = %s and epoch = %s and version is not distinct from %s
        """,
        [version, table_id, leases.LEASE_SECONDS, lease.target, lease.epoch, expected],
    )
    if moved.rowcount != 1:
        raise fenced_error(lease.target)


def move_and_record(
    connection: Connection,
    lease: Lease,
    *,
    before: Position,
    to: Position,
    action: str | None,
    reason: str | None = None,
) -> None:
    """Move the position, and record who moved it and why. Without ``action`` nothing is recorded, as for a window."""
    assert to.version is not None
    assert to.table_id is not None
    move_position(connection, lease, expected=before.version, version=to.version, table_id=to.table_id)
    if action is None:
        return
    connection.execute(
        """
        insert into deltarelay.position_log (target, pipeline, action, from_version, to_version, os_user, reason)
        select target, pipeline, %s, %s, %s, %s, %s from deltarelay.position where target = %s
        """,
        [action, before.version, to.version, os_user(), reason, lease.target],
    )


def record_rows(connection: Connection, target: TargetName) -> None:
    """Record whether the target holds any row; part of every transaction that writes rows."""
    connection.execute(
        sql.SQL(
            "update deltarelay.position p set holds_rows = f.filled from (select exists (select from {}) as filled) f "
            "where p.target = %s and p.holds_rows is distinct from f.filled"
        ).format(Name(target.schema, target.table)),
        [str(target)],
    )


def find_lost_rows(connection: Connection, target: TargetName) -> bool:
    """Whether the target is empty although our last transaction left rows in it, or did not record whether it did."""
    found = connection.execute(
        sql.SQL(
            "select from deltarelay.position where target = %s and version is not null and holds_rows is not false "
            "and not exists (select from {})"
        ).format(Name(target.schema, target.table)),
        [str(target)],
    ).fetchone()
    return found is not None


# ── the log of moves by hand ─────────────────────────────────────────────────────────────────────────────────────────


def read_highest_former_version(connection: Connection, target: str) -> int | None:
    """The latest version from which the position was moved back by hand since the target was last loaded. Up to this
    version the target may already hold the rows of a window. None also where the role may not read the log."""
    row = connection.execute(
        "select has_table_privilege(c.oid, 'select') from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'deltarelay' and c.relname = 'position_log'"
    ).fetchone()
    if row != (True,):
        return None
    row = connection.execute(
        "select max(from_version) from deltarelay.position_log where target = %(target)s and from_version > to_version "
        "and id > coalesce((select max(id) from deltarelay.position_log where target = %(target)s "
        "and action in ('reload', 'adopt')), 0)",
        {"target": target},
    ).fetchone()
    return None if row is None else row[0]


def position_log_problems(connection: Connection) -> list[str]:
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


# ── what `status` and `position show` read ───────────────────────────────────────────────────────────────────────────


def _advisory_name(target: str) -> str:
    """Names the advisory lock of a transaction that has locked the position's row. No session waits for this lock. It shows
    that the runner is at work: while the row is locked its lease cannot be renewed, and other sessions see the old row."""
    return f"deltarelay.position {target}"


def read_standing(connection: Connection, target: str, tables: Collection[str], *, most_records: int) -> Standing:
    """Empty where no position is recorded. ``tables``: from ``find_state_tables``, which raises StateTooNew."""
    if "position" not in tables:
        return Standing()
    row = connection.execute(
        """
        with at_work as (
            select exists (
                select from pg_locks l join pg_database d on d.oid = l.database
                 where d.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
                   and (l.classid::bigint << 32) | l.objid::bigint = hashtextextended(%s, 0)
            ) as applying
        )
        select version, source_table_id, source, epoch, updated_at,
               case when applying or lease_until > clock_timestamp() then owner end,
               case when applying then greatest(lease_until, clock_timestamp())
                    when lease_until > clock_timestamp() then lease_until end
          from deltarelay.position, at_work where target = %s
        """,
        [_advisory_name(target), target],
    ).fetchone()
    if row is None:
        return Standing()
    version, table_id, source, epoch, updated_at, lease_holder, lease_until = row
    records: list[PositionRecord] = []
    if "position_log" in tables and most_records > 0:
        found = connection.execute(
            """
            select at, action, from_version, to_version, os_user || ' as ' || database_user, reason
              from deltarelay.position_log where target = %s order by id desc limit %s
            """,
            [target, most_records],
        )
        records = [PositionRecord(*record) for record in found]
    return Standing(
        position=position_of_row(version, table_id),
        source=source,
        epoch=epoch,
        updated_at=updated_at,
        lease_holder=lease_holder,
        lease_until=lease_until,
        records=tuple(records),
    )
