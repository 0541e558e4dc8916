"""The position of each target, and the lease of whoever may move it: one row in ``deltarelay.position``. What a person
moved by hand is recorded in ``deltarelay.position_log``; ``deltarelay.progress`` has the figures of the last step of
whoever follows.

The lease lives on the server's clock. It lasts ``LEASE_SECONDS`` and is renewed by a thread with its own connection,
so that a runner that was killed keeps its successor waiting for one lease at most. Every taking of the lease raises the
epoch; a window is committed only under the epoch it was opened with, so a runner that was paused and wakes up is
fenced. Nothing here depends on the session: one transaction per call, which is all that PgBouncer's transaction mode
allows.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from cdf.errors import Fenced, LeaseHeld, WindowOutOfOrder
from cdf.os_user import os_user
from cdf.sink import Position, PositionRecord, Standing
from connectors.postgres.state import run_history as runs
from connectors.postgres.write.statements import Name

__all__ = [
    "CREATE",
    "Lease",
    "missing",
    "read_position",
    "read_progress",
    "take_lease",
    "lock_position",
    "move_position",
    "move_recorded",
    "read_standing",
    "release_lease",
    "notes_rows",
    "record_rows",
    "lost_rows",
    "been_at",
    "Renewal",
    "write_progress",
]

if TYPE_CHECKING:
    from connectors.postgres.target.ddl import TargetName

log = logging.getLogger("deltarelay.postgres")

LEASE_SECONDS = 15.0
RENEW_SECONDS = 4.0
LOCK_SECONDS = 60.0

Connection = psycopg.Connection[Any]

CREATE = (
    "create schema if not exists deltarelay",
    """\
create table if not exists deltarelay.position (
    target          text primary key,
    pipeline        text not null,
    source          text not null,
    source_table_id text,
    version         bigint,
    epoch           bigint not null default 0,
    owner           text,
    lease_until     timestamptz,
    updated_at      timestamptz,
    holds_rows      boolean
)""",
    """\
create table if not exists deltarelay.position_log (
    id            bigint generated always as identity primary key,
    target        text not null,
    pipeline      text not null,
    at            timestamptz not null default clock_timestamp(),
    action        text not null,
    from_version  bigint,
    to_version    bigint not null,
    os_user       text not null,
    database_user text not null default session_user,
    reason        text
)""",
    """\
create table if not exists deltarelay.progress (
    target   text primary key,
    at       timestamptz not null,
    figures  jsonb not null
)""",
    runs.CREATE,
)


ADD_HOLDS_ROWS = "alter table deltarelay.position add column if not exists holds_rows boolean"
"""For an installation from before that column."""


@dataclass(frozen=True, slots=True)
class Lease:
    target: str
    epoch: int
    owner: str


def missing(connection: Connection) -> tuple[str, ...]:
    """The statements of CREATE whose object is not there: even ``if not exists`` asks for the right to create it.

    An older installation lacks some of the tables.
    """
    present = _present(connection)
    added = (ADD_HOLDS_ROWS,) if present[1] and not notes_rows(connection) else ()
    return (*(statement for statement, there in zip(CREATE, present, strict=True) if not there), *added)


def _present(connection: Connection) -> tuple[bool, bool, bool, bool, bool]:
    """Whether the schema, the positions, their log, the progress and the history are there."""
    found = connection.execute(
        """
        select count(distinct n.oid) > 0, count(*) filter (where c.relname = 'position') > 0,
               count(*) filter (where c.relname = 'position_log') > 0,
               count(*) filter (where c.relname = 'progress') > 0,
               count(*) filter (where c.relname = 'runs') > 0
          from pg_namespace n left join pg_class c on c.relnamespace = n.oid
         where n.nspname = 'deltarelay'
        """
    ).fetchone()
    assert found is not None
    return (found[0], found[1], found[2], found[3], found[4])


def read_position(connection: Connection, target: str) -> Position:
    """The position as others see it; empty where nothing was ever recorded."""
    if not _present(connection)[1]:
        return Position()
    row = connection.execute(
        "select version, source_table_id from deltarelay.position where target = %s", [target]
    ).fetchone()
    return Position() if row is None or row[0] is None else Position(version=row[0], table_id=row[1])


def take_lease(connection: Connection, target: str, *, pipeline: str, source: str) -> tuple[Lease, Position]:
    """Become the target's only runner. Raises LeaseHeld as soon as the present holder is seen to be alive."""
    owner = uuid.uuid4().hex
    deadline = time.monotonic() + LEASE_SECONDS + 2
    seen: tuple[int, Any] | None = None
    with connection.transaction():
        connection.execute(
            "insert into deltarelay.position (target, pipeline, source) values (%s, %s, %s) on conflict do nothing",
            [target, pipeline, source],
        )
    while True:
        try:
            with connection.transaction():
                connection.execute("set local lock_timeout = '1s'")
                row = connection.execute(
                    """
                    update deltarelay.position
                       set epoch = epoch + 1, owner = %s, pipeline = %s, source = %s,
                           lease_until = clock_timestamp() + make_interval(secs => %s)
                     where target = %s and (lease_until is null or lease_until < clock_timestamp())
                    returning epoch, version, source_table_id
                    """,
                    [owner, pipeline, source, LEASE_SECONDS, target],
                ).fetchone()
            if row is not None:
                position = Position() if row[1] is None else Position(version=row[1], table_id=row[2])
                return Lease(target, row[0], owner), position
        except psycopg.errors.LockNotAvailable:
            pass  # a window is being applied this moment, perhaps by a runner that is already dead: ask again
        holder = connection.execute(
            "select epoch, lease_until from deltarelay.position where target = %s", [target]
        ).fetchone()
        if seen is None:
            log.info("waiting for the lease of another runner", extra={"target": target})
        if (seen is not None and holder != seen) or time.monotonic() > deadline:
            raise LeaseHeld(
                f"another runner is at work on {target}",
                hint="nothing was changed: run again when it has finished, or stop it first",
                target=target,
            )
        seen = holder
        time.sleep(0.5)


def lock_position(connection: Connection, lease: Lease, *, expected: int | None, first: int | None) -> None:
    """Inside the applying transaction: hold the row, and make sure that this runner may go on from ``expected``."""
    # A driver that freezes or loses its host here must not hold the row: its successor waits one lease, not for TCP
    # Somebody else's lock on the target is waited for, but not for ever; a limit of the role or the dsn counts instead
    connection.execute(
        """
        select set_config('idle_in_transaction_session_timeout', '15s', true),
               case when current_setting('lock_timeout') = '0' then set_config('lock_timeout', %s, true) end,
               pg_try_advisory_xact_lock(hashtextextended(%s, 0))
        """,
        [f"{LOCK_SECONDS * 1000:.0f}ms", _applying(lease.target)],
    )
    row = connection.execute(
        "select epoch, version from deltarelay.position where target = %s for update", [lease.target]
    ).fetchone()
    if row is None or row[0] != lease.epoch:
        raise fenced(lease.target)
    if row[1] != expected:
        stands = "is empty" if row[1] is None else f"stands at {row[1]}"
        begins = "a load" if first is None else f"a window from version {first}"
        raise WindowOutOfOrder(
            f"{begins} does not follow the position of {lease.target}, which {stands}",
            hint="run again: the run goes on from the position",
            position=row[1],
        )


def move_position(connection: Connection, lease: Lease, *, expected: int | None, version: int, table_id: str) -> None:
    """Inside the applying transaction: the compare-and-swap. The lease is prolonged by the way."""
    moved = connection.execute(
        """
        update deltarelay.position
           set version = %s, source_table_id = %s, updated_at = clock_timestamp(),
               lease_until = clock_timestamp() + make_interval(secs => %s)
         where target = %s and epoch = %s and version is not distinct from %s
        """,
        [version, table_id, LEASE_SECONDS, lease.target, lease.epoch, expected],
    )
    if moved.rowcount != 1:
        raise fenced(lease.target)


def move_recorded(
    connection: Connection,
    lease: Lease,
    *,
    before: Position,
    to: Position,
    action: str | None,
    reason: str | None = None,
) -> None:
    """Inside the transaction: move the position, and leave a record of who did it, and why. No ``action``: no record, as for
    every window."""
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


# ── whether the target holds rows ────────────────────────────────────────────────────────────────────────────────────


def notes_rows(connection: Connection) -> bool:
    """Whether the positions have the column: not before the first run of this version."""
    found = connection.execute(
        "select from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'deltarelay' and c.relname = 'position' and a.attname = 'holds_rows' and not a.attisdropped"
    ).fetchone()
    return found is not None


def record_rows(connection: Connection, target: TargetName) -> None:
    """Inside every transaction that writes the target's rows: whether any are left."""
    connection.execute(
        sql.SQL(
            "update deltarelay.position p set holds_rows = f.filled from (select exists (select from {}) as filled) f "
            "where p.target = %s and p.holds_rows is distinct from f.filled"
        ).format(Name(target.schema, target.table)),
        [str(target)],
    )


def lost_rows(connection: Connection, target: TargetName) -> bool:
    """Whether the target is empty, and our last transaction left rows in it, or did not record whether it did."""
    found = connection.execute(
        sql.SQL(
            "select from deltarelay.position where target = %s and version is not null and holds_rows is not false "
            "and not exists (select from {})"
        ).format(Name(target.schema, target.table)),
        [str(target)],
    ).fetchone()
    return found is not None


def been_at(connection: Connection, target: str) -> int | None:
    """The latest version from which the position was moved back by hand since the target was last loaded: up to it the
    target may hold already what a window brings. None also where the log may not be read."""
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


# ── who is at work, for others to see ─────────────────────────────────────────────────────────────────────────────────


def _applying(target: str) -> str:
    """Names the advisory lock of a transaction that holds the position's row. No session waits for it. It shows that the
    runner is at work: while the row is locked its lease cannot be renewed, and others see the row as it was before."""
    return f"deltarelay.position {target}"


def read_standing(connection: Connection, target: str, *, most_records: int) -> Standing:
    _, positions_there, log_there, *_ = _present(connection)
    if not positions_there:
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
        [_applying(target), target],
    ).fetchone()
    if row is None:
        return Standing()
    records: list[PositionRecord] = []
    if log_there and most_records > 0:
        found = connection.execute(
            """
            select at, action, from_version, to_version, os_user || ' as ' || database_user, reason
              from deltarelay.position_log where target = %s order by id desc limit %s
            """,
            [target, most_records],
        )
        records = [PositionRecord(*record) for record in found]
    return Standing(
        position=Position() if row[0] is None else Position(version=row[0], table_id=row[1]),
        source=row[2],
        epoch=row[3],
        updated_at=row[4],
        lease_holder=row[5],
        lease_until=row[6],
        records=tuple(records),
    )


def write_progress(connection: Connection, target: str, figures: Mapping[str, Any]) -> None:
    with connection.transaction():
        connection.execute("set local lock_timeout = '1s'")
        connection.execute("set local synchronous_commit = off")  # a crash may cost it: the next step writes another
        connection.execute(
            """
            insert into deltarelay.progress (target, at, figures) values (%s, clock_timestamp(), %s)
            on conflict (target) do update set at = excluded.at, figures = excluded.figures
            """,
            [target, Jsonb(dict(figures))],
        )


def read_progress(connection: Connection, target: str) -> Mapping[str, Any] | None:
    if not _present(connection)[3]:
        return None
    row = connection.execute("select figures from deltarelay.progress where target = %s", [target]).fetchone()
    return None if row is None else row[0]


def release_lease(connection: Connection, lease: Lease) -> None:
    connection.execute(
        "update deltarelay.position set lease_until = null, owner = null where target = %s and epoch = %s",
        [lease.target, lease.epoch],
    )


def fenced(target: str) -> Fenced:
    return Fenced(
        f"another runner has taken over {target}; this one writes nothing more",
        hint="let the other runner finish; if it is gone, run again",
        target=target,
    )


class Renewal:
    """Keeps a lease alive from a thread of its own until ``stop``.

    Its connection is its own too: the main one is busy for as long as a window is being applied. While that transaction
    holds the row no renewal gets through, but then nobody else can take the lease either, and the transaction prolongs
    it.
    """

    def __init__(self, connect: Callable[[], Connection], lease: Lease) -> None:
        self._connect, self._lease = connect, lease
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease {lease.target}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        connection: Connection | None = None
        while not self._stopped.wait(RENEW_SECONDS):
            try:
                connection = connection or self._connect()
                with connection.transaction():
                    connection.execute("set local lock_timeout = '1s'")
                    renewed = connection.execute(
                        "update deltarelay.position set lease_until = clock_timestamp() + make_interval(secs => %s)"
                        " where target = %s and epoch = %s",
                        [LEASE_SECONDS, self._lease.target, self._lease.epoch],
                    )
                if renewed.rowcount == 0:
                    break  # fenced: the next apply will say so
            except psycopg.errors.LockNotAvailable:
                continue
            except psycopg.Error as error:
                # The database may be back before the lease ends; if not, whoever takes over fences this runner.
                log.warning("lease not renewed", extra={"target": self._lease.target, "sqlstate": error.sqlstate})
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()
