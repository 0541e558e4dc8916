"""Other sessions that a reload must wait for: readers with older snapshots, and holders of locks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg

from cdf.errors import SinkUnavailable
from connectors.postgres.sql_parts import TargetName

if TYPE_CHECKING:
    from connectors.postgres.client import Session

__all__ = ["PATIENCE_SECONDS", "InUse", "check_readers", "retry_locked", "wait_for_readers"]

log = logging.getLogger("deltarelay.postgres")

PATIENCE_SECONDS = 60.0

Connection = psycopg.Connection[Any]


class InUse(SinkUnavailable):
    """Other sessions read or lock the target."""


def check_readers(session: Session) -> None:
    """Before the copy: a transaction that has a snapshot now may still have it when the copy is complete."""
    _wait_for_end(
        session,
        PATIENCE_SECONDS,
        "nothing was copied: end that transaction (pg_stat_activity shows it), or run again later",
    )


def wait_for_readers(session: Session, patience: float) -> None:
    """Wait for the end of every snapshot that is older than the copy: its reader would see the new table empty.

    After ``patience`` seconds the copy is dropped. It is not kept for the next try, because source, schema, settings and
    definition could change until then, and people could be erased. The next try checks for readers before it copies, so it
    does not copy while this reader remains."""
    hint = (
        "the target was not changed, the copy is dropped: end that transaction first (pg_stat_activity shows it), "
        "then run again, which copies the table again"
    )
    _wait_for_end(session, patience, hint)


def _wait_for_end(session: Session, patience: float, hint: str) -> None:
    began = last_logged = time.monotonic()
    with session.errors("waiting for readers"):
        older = _open_snapshots(session.main(), session.target)
        while older and time.monotonic() - began < patience:
            if time.monotonic() - last_logged > 10:
                last_logged = time.monotonic()
                log.info("waiting for older transactions", extra={"target": str(session.target), "pids": sorted(older)})
            time.sleep(0.1)
            present = _open_snapshots(session.main(), session.target)
            older = {process: snapshot for process, snapshot in older.items() if present.get(process) == snapshot}
    if older:
        processes = ", ".join(map(str, sorted(older)))
        raise InUse(
            f"a transaction that began before the copy was complete could still read {session.target}, and would find the "
            f"new table empty (server process {processes}): waited {patience:.0f} s for its end",
            hint=hint,
        )


def _open_snapshots(connection: Connection, target: TargetName) -> dict[int, tuple[str, str]]:
    """Process → transaction and xmin, for each process that has a snapshot of this database and a role that may read the
    target, or may become such a role. A transaction whose xmin changes takes a new snapshot for each statement, and will see
    the copy."""
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


def retry_locked(session: Session, step: Callable[[], tuple[str, ...]], patience: float) -> tuple[str, ...]:
    """Repeat the step for ``patience`` seconds while another session holds a lock that it needs."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with session.errors("reloading the target"):
            try:
                return step()
            except psycopg.errors.LockNotAvailable:
                log.info("waiting for other transactions to unlock the table", extra={"target": str(session.target)})
        time.sleep(0.5)
    raise InUse(
        f"transactions of other sessions have kept {session.target} locked for {patience:.0f} s",
        hint="nothing was changed: run again when they have ended (pg_locks and pg_stat_activity show them)",
    )
