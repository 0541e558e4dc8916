"""The lease of a trail: a small file beside its tables, by which only one runner at a time works on the trail.

The lease only avoids that runners disturb each other. The epoch in the tables (``audit.trail.tables``) protects the data,
so a partly written file, or storage that returns an old one, does no harm.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cdf.errors import LeaseHeld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LEASE_SECONDS", "Lease"]

LEASE_SECONDS = 15.0
"""How long a runner counts as alive after its last renewal."""
RENEW_SECONDS = 5.0
_POLL_SECONDS = 0.3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Content of the file. It differs after each renewal; ``seconds`` is 0 once the lease is released."""

    holder: str
    renewals: int
    seconds: float


class Lease:
    """Acquired by the constructor and renewed until ``close``. No clocks are compared: a waiting runner watches the file
    change."""

    def __init__(self, spark: SparkSession, path: str, *, target: str) -> None:
        """Raises LeaseHeld as soon as the file shows that its holder is alive; waits at most one lease."""
        jvm: Any = spark._jvm
        self.holder = uuid.uuid4().hex
        self._target = target
        self._jvm = jvm
        self._file = jvm.org.apache.hadoop.fs.Path(path)
        files = self._file.getFileSystem(spark._jsc.hadoopConfiguration())
        # Hadoop's local file system would write a checksum into a second file, not atomically with the first
        self._files = files.getRawFileSystem() if files.getUri().getScheme() == "file" else files
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._renewals = 0
        self._wait()
        self._write(LEASE_SECONDS)
        self._thread = threading.Thread(target=self._renew, name=f"lease {target}", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        first = self._read()
        if first is None or first.seconds == 0:
            return
        log.info("waiting for the lease of another runner", extra={"target": self._target})
        deadline = time.monotonic() + first.seconds
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            current = self._read()
            if current is None or current.seconds == 0:
                return
            if current != first:
                raise lease_held(self._target)

    def _read(self) -> _Claim | None:
        """None: there is no file."""
        try:
            stream = self._files.open(self._file)
        except Exception:  # py4j: there is no file
            return None
        try:
            return _Claim(**json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")))
        except (ValueError, TypeError):  # it is partly written
            return _Claim("", -1, LEASE_SECONDS)
        finally:
            stream.close()

    def _write(self, seconds: float) -> None:
        self._renewals += 1
        text = json.dumps(asdict(_Claim(self.holder, self._renewals, seconds)))
        stream = self._files.create(self._file, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            with self._lock:
                try:
                    if self._stopped.is_set() or self._has_successor():
                        return
                    self._write(LEASE_SECONDS)
                except Exception as error:  # the storage may recover before the lease ends; the epoch protects the data
                    log.warning("lease not renewed", extra={"target": self._target, "error": type(error).__name__})

    def _has_successor(self) -> bool:
        return self._present_holder() not in (None, self.holder)

    def _present_holder(self) -> str | None:
        """Return None where there is no file, or one that was only partly written."""
        claim = self._read()
        if claim is not None and not claim.holder:  # a successor may be writing it at this moment
            time.sleep(_POLL_SECONDS)
            claim = self._read()
        return None if claim is None else claim.holder or None

    def close(self) -> None:
        """Release the lease, unless another runner holds it now. Never raises."""
        self._stopped.set()
        with self._lock, contextlib.suppress(Exception):
            if self._present_holder() == self.holder:
                self._write(0)
        self._thread.join(timeout=5)


def lease_held(target: str) -> LeaseHeld:
    return LeaseHeld(
        f"another runner holds the lease on {target}",
        hint="nothing was changed: run again when the other runner has finished, or stop it first",
        target=target,
    )
