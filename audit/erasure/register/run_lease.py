"""The lease of the register: one erasure run is active at a time.

As with a target's position (``deltarelay.position``) the lease is kept on the server's clock and renewed by a thread; every
acquisition and every release raises the epoch. Each write first prolongs the lease by compare-and-set on the epoch and keeps
that row locked until it commits: a run that was paused and wakes up can write nothing.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from audit.database import Database, Transaction
from cdf.errors import CdfError, LeaseHeld
from cdf.os_user import os_user

__all__ = ["LEASE_SECONDS", "hold_lease", "prolong_lease"]

LEASE_SECONDS = 15.0
RENEW_SECONDS = 4.0
_POLL_SECONDS = 0.5
_PROLONGED = "expires_at = clock_timestamp() + make_interval(secs => %s)"

log = logging.getLogger(__name__)


@contextmanager
def hold_lease(database: Database, run: str) -> Iterator[int]:
    """Hold the lease for the block. Yield its epoch."""
    epoch = _acquire(database, run)
    stopped = threading.Event()
    thread = threading.Thread(target=_renew, args=(database, epoch, stopped), name=f"lease {run}", daemon=True)
    thread.start()
    try:
        yield epoch
    finally:
        stopped.set()
        thread.join(timeout=5)
        _release(database, epoch)


def prolong_lease(work: Transaction, epoch: int) -> bool:
    """Prolong the lease; False where another run has acquired it."""
    return bool(work.count(f"update {{lease}} set {_PROLONGED} where epoch = %s", [LEASE_SECONDS, epoch]))


def _acquire(database: Database, run: str) -> int:
    """Return the epoch. Waits for at most one lease; raises LeaseHeld as soon as the holder is seen to have renewed it."""
    deadline = time.monotonic() + LEASE_SECONDS + 2
    seen: tuple[Any, ...] | None = None
    while True:
        with database.transaction() as work:
            acquired = work.row(
                "update {lease} set epoch = epoch + 1, run = %s, holder = %s, taken_at = clock_timestamp(), "
                + _PROLONGED
                + " where expires_at is null or expires_at < clock_timestamp() returning epoch",
                [run, os_user(), LEASE_SECONDS],
            )
            holder = work.row("select epoch, expires_at, run, holder, taken_at from {lease}")
        if acquired is not None:
            return int(acquired[0])
        assert holder is not None
        if seen is None:
            log.info("waiting for the lease of another erase run", extra={"run": holder[2]})
        elif (holder != seen and holder[1] is not None) or time.monotonic() > deadline:
            raise LeaseHeld(
                f"run {holder[2]} of {holder[3]} has been active on {database.name} since {_utc(holder[4])}",
                hint="nothing was changed: run again when it has finished, or stop it first",
                run=holder[2],
            )
        seen = holder
        time.sleep(_POLL_SECONDS)


def _renew(database: Database, epoch: int, stopped: threading.Event) -> None:
    while not stopped.wait(RENEW_SECONDS):
        try:
            with database.transaction() as work:
                work.execute("set local lock_timeout = '1s'")
                is_renewed = prolong_lease(work, epoch)
            if not is_renewed:
                return  # another run has acquired it: the next write raises Fenced
        except CdfError as error:  # the database may be back before the lease ends; if not, the epoch prevents writes
            log.warning("lease not renewed", extra={"code": error.code, "condition": error.condition})


def _release(database: Database, epoch: int) -> None:
    try:
        with database.transaction() as work:
            work.execute(
                "update {lease} set epoch = epoch + 1, run = null, holder = null, taken_at = null, expires_at = null"
                " where epoch = %s",
                [epoch],
            )
    except CdfError as error:  # the lease expires by itself
        log.warning("lease not released", extra={"code": error.code, "condition": error.condition})


def _utc(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
