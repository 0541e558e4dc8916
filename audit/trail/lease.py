"""The lease of a trail: claims beside its tables, by which only one runner at a time works on the trail.

The lease only avoids that runners disturb each other. The epoch in the tables (``audit.trail.tables``) protects the data,
so a partly written claim, or storage that returns an old one, does no harm.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING

from audit.trail.lease_claims import LEASE_SECONDS, POLL_SECONDS, Claim, Claims, ClassicClaims, ConnectClaims
from cdf.errors import LeaseHeld
from cdf.session import is_connect, translate_lost_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LEASE_SECONDS", "Lease"]

RENEW_SECONDS = 5.0

log = logging.getLogger(__name__)


class Lease:
    """Acquired by the constructor and renewed until ``close``. No clocks are compared: a waiting runner watches the claims
    change."""

    def __init__(self, spark: SparkSession, path: str, *, target: str) -> None:
        """``path``: the folder of the trail. Raises LeaseHeld as soon as a claim shows that its holder is alive. Waits
        until a claim that does not change has run out (15 s, of Spark Connect 30 s), and 15 s for one that may be hidden."""
        self.holder = uuid.uuid4().hex
        self._target = target
        self._claims: Claims = ConnectClaims(spark, path) if is_connect(spark) else ClassicClaims(spark, path)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._renewals = 0
        self._is_server_lost = False
        other = self._wait()
        has_unseen = self._claims.has_unseen()  # the claim to be written makes the other runner show its own
        self._write(LEASE_SECONDS)
        if other is not None and other.seconds > 0:  # its holder is gone: the next runner need not wait for it
            self._claims.write_other(Claim(self.holder, 0, 0))
        if has_unseen:
            self._wait_for_unseen()
        self._thread = threading.Thread(target=self._renew, name=f"lease {target}", daemon=True)
        self._thread.start()

    def _wait(self) -> Claim | None:
        """Wait until no claim is alive. → the last claim of a runner with the other kind of session."""
        own, other = first = self._claims.read_own(), self._claims.read_other()
        seconds = max((claim.seconds for claim in first if claim is not None), default=0)
        if seconds == 0:
            return other
        log.info("waiting for the lease of another runner", extra={"target": self._target})
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            own, other = self._claims.read_own(), self._claims.read_other()
            present = [claim for claim in (own, other) if claim is not None and claim.seconds > 0]
            if not present:
                break
            if any(claim not in first for claim in present):
                raise lease_held(self._target)
        return other

    def _wait_for_unseen(self) -> None:
        """Give a runner whose claim cannot be seen the time of one lease to show it. Raises LeaseHeld."""
        deadline = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            other = self._claims.read_other()
            if other is not None and other.seconds > 0:
                self._write(0)
                raise lease_held(self._target)
        self._claims.write_other(Claim(self.holder, 0, 0))  # the next runner need not wait

    def _write(self, seconds: float) -> None:
        self._renewals += 1
        self._claims.write_own(Claim(self.holder, self._renewals, seconds * self._claims.slowness))

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS * self._claims.slowness):
            with self._lock:
                try:
                    if self._stopped.is_set() or self._has_successor():
                        return
                    self._write(LEASE_SECONDS)
                except Exception as error:  # the storage may recover before the lease ends; the epoch protects the data
                    self._is_server_lost = translate_lost_server(error, "") is not None
                    log.warning("lease not renewed", extra={"target": self._target, "error": type(error).__name__})

    def _has_successor(self) -> bool:
        return self._present_holder() not in (None, self.holder)

    def _present_holder(self) -> str | None:
        """Return None where there is no claim, or one that was only partly written."""
        claim = self._claims.read_own()
        if claim is not None and not claim.holder:  # a successor may be writing it at this moment
            time.sleep(POLL_SECONDS)
            claim = self._claims.read_own()
        return None if claim is None else claim.holder or None

    def close(self) -> None:
        """Release the lease, unless another runner holds it now. Never raises."""
        self._stopped.set()
        with self._lock, contextlib.suppress(Exception):
            if not self._is_server_lost and self._present_holder() == self.holder:
                self._write(0)
        self._thread.join(timeout=5)


def lease_held(target: str) -> LeaseHeld:
    return LeaseHeld(
        f"another runner holds the lease on {target}",
        hint="nothing was changed: run again when the other runner has finished, or stop it first",
        target=target,
    )
