"""The lease of a target: which runner may move its position. Stored in the target's row of ``deltarelay.position``.

The lease follows the server's clock. It lasts ``LEASE_SECONDS`` and is renewed by a thread with its own connection, so a
successor of a killed runner waits one lease at most. Every acquisition raises the epoch; a window is committed only under
the epoch that its runner acquired, so a runner that was paused and resumes is fenced. Nothing here depends on the session:
each call is one transaction, which is all that PgBouncer's transaction mode allows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from cdf.errors import Fenced, LeaseHeld
from cdf.sink import Position
from cdf.sink.runner_id import create_runner_id

__all__ = [
    "LEASE_SECONDS",
    "RENEW_SECONDS",
    "Lease",
    "Renewal",
    "acquire_lease",
    "fenced_error",
    "is_fenced",
    "position_of_row",
    "release_lease",
]

log = logging.getLogger("deltarelay.postgres")

LEASE_SECONDS = 15.0
RENEW_SECONDS = 4.0

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Lease:
    target: str
    epoch: int
    owner: str


def acquire_lease(connection: Connection, target: str, *, pipeline: str, source: str) -> tuple[Lease, Position]:
    """Become the target's only runner. Raises LeaseHeld as soon as the present holder is seen to be alive."""
    owner = create_runner_id()
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
                epoch, version, table_id = row
                return Lease(target, epoch, owner), position_of_row(version, table_id)
        except psycopg.errors.LockNotAvailable:
            pass  # a window is being applied, possibly by a runner that is already dead: try again
        holder = connection.execute(
            "select epoch, lease_until from deltarelay.position where target = %s", [target]
        ).fetchone()
        if seen is None:
            log.info("waiting for the lease of another runner", extra={"target": target})
        if (seen is not None and holder != seen) or time.monotonic() > deadline:
            raise LeaseHeld(
                f"another runner holds the lease on {target}",
                hint="nothing was changed: run again when it has finished, or stop it first",
                target=target,
            )
        seen = holder
        time.sleep(0.5)


def position_of_row(version: int | None, table_id: str | None) -> Position:
    return Position() if version is None else Position(version=version, table_id=table_id)


def release_lease(connection: Connection, lease: Lease) -> None:
    connection.execute(
        "update deltarelay.position set lease_until = null, owner = null where target = %s and epoch = %s",
        [lease.target, lease.epoch],
    )


def is_fenced(connection: Connection, lease: Lease) -> bool:
    """Whether another runner has acquired the lease."""
    row = connection.execute("select epoch from deltarelay.position where target = %s", [lease.target]).fetchone()
    return row != (lease.epoch,)


def fenced_error(target: str) -> Fenced:
    return Fenced(
        f"another runner has taken over {target}; this one writes nothing more",
        hint="let the other runner finish; if it is not running any more, run again",
        target=target,
    )


class Renewal:
    """Renews a lease from its own thread until ``stop``.

    It has its own connection because the main one is busy while a window is being applied. That transaction locks the
    row, so no renewal succeeds meanwhile; but no other runner can acquire the lease either, and the transaction itself
    extends it.
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
                    break  # fenced: the next apply raises it
            except psycopg.errors.LockNotAvailable:
                continue
            except psycopg.Error as error:
                # The database may be back before the lease ends; if not, the runner that takes over fences this one
                log.warning("lease not renewed", extra={"target": self._lease.target, "sqlstate": error.sqlstate})
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()
