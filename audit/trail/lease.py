"""One runner at a time on a trail: a small file beside its tables says who is at work.

It only keeps runners from getting into each other's way. What keeps a trail whole is the epoch in its tables
(``audit.trail.tables``), so a file that is read while it is written, or a storage that shows an old one, does no harm.
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
"""How long a runner counts as alive after it has shown itself."""
RENEW_SECONDS = 5.0
_POLL_SECONDS = 0.3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sign:
    """What the file says. It is another one after each renewal; ``seconds`` is 0 where the lease was given back."""

    holder: str
    renewals: int
    seconds: float


class Lease:
    """Taken when made, renewed until ``close``. Nobody's clock is asked: whoever waits sees whether the file changes."""

    def __init__(self, spark: SparkSession, path: str, *, target: str) -> None:
        """Raises LeaseHeld as soon as the present holder is seen to be alive; waits at most one lease."""
        jvm: Any = spark._jvm
        self.holder = uuid.uuid4().hex
        self._target = target
        self._jvm = jvm
        self._file = jvm.org.apache.hadoop.fs.Path(path)
        files = self._file.getFileSystem(spark._jsc.hadoopConfiguration())
        # The local file system would write a checksum into a second file, and not in the same moment
        self._files = files.getRawFileSystem() if files.getUri().getScheme() == "file" else files
        self._stopped = threading.Event()
        self._gate = threading.Lock()
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
            now = self._read()
            if now is None or now.seconds == 0:
                return
            if now != first:
                raise lease_held(self._target)

    def _read(self) -> _Sign | None:
        """None: nobody has ever held it, or what is there cannot be understood."""
        try:
            stream = self._files.open(self._file)
        except Exception:  # py4j: there is no file
            return None
        try:
            return _Sign(**json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")))
        except (ValueError, TypeError):  # it is being written
            return _Sign("", -1, LEASE_SECONDS)
        finally:
            stream.close()

    def _write(self, seconds: float) -> None:
        self._renewals += 1
        text = json.dumps(asdict(_Sign(self.holder, self._renewals, seconds)))
        stream = self._files.create(self._file, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            with self._gate:
                try:
                    if self._stopped.is_set() or self._taken_over():
                        return
                    self._write(LEASE_SECONDS)
                except Exception as error:  # the storage may be back before the lease ends; the epoch keeps it safe
                    log.warning("lease not renewed", extra={"target": self._target, "error": type(error).__name__})

    def _taken_over(self) -> bool:
        return self._present_holder() not in (None, self.holder)

    def _present_holder(self) -> str | None:
        """Return None where there is no file, or one that was only partly written."""
        sign = self._read()
        if sign is not None and not sign.holder:  # a successor may be writing it at this moment
            time.sleep(_POLL_SECONDS)
            sign = self._read()
        return None if sign is None else sign.holder or None

    def close(self) -> None:
        """Give it back, unless it is somebody else's by now. Never raises."""
        self._stopped.set()
        with self._gate, contextlib.suppress(Exception):
            if self._present_holder() == self.holder:
                self._write(0)
        self._thread.join(timeout=5)


def lease_held(target: str) -> LeaseHeld:
    return LeaseHeld(
        f"another runner is at work on {target}",
        hint="nothing was changed: run again when it has finished, or stop it first",
        target=target,
    )
