"""The lease of a trail: a small file beside its tables, by which only one runner at a time works on the trail.

The file is in a folder of its own, ``_lease_claims``. A classic session writes it through Hadoop's file system, a session of
Spark Connect through Spark's writer, which replaces the whole folder. Each reads what the other has written.

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
from typing import TYPE_CHECKING, Any, Protocol

from cdf.errors import LeaseHeld, condition_of
from cdf.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LEASE_SECONDS", "Lease"]

LEASE_SECONDS = 15.0
"""How long a runner counts as alive after its last renewal."""
_CONNECT_SECONDS = 30.0
"""The same over Spark Connect, where a renewal is a Spark job, which may have to wait for the tasks of others."""
_FOLDER, _FILE = "_lease_claims", "claim"
RENEW_SECONDS = 5.0
_POLL_SECONDS = 0.3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Content of the file. It differs after each renewal; ``seconds`` is 0 once the lease is released."""

    holder: str
    renewals: int
    seconds: float


_UNREADABLE = _Claim("", -1, LEASE_SECONDS)
"""What is partly written, or being replaced: its writer may be alive."""


def _parse(texts: list[str]) -> _Claim:
    try:
        (text,) = texts  # two: a runner has written its claim, and not yet removed that of its predecessor
        return _Claim(**json.loads(text))
    except (ValueError, TypeError):
        return _UNREADABLE


class _Folder(Protocol):
    """The folder of the claim. ``read`` returns None if there is no claim."""

    def read(self) -> _Claim | None: ...

    def write(self, text: str) -> None: ...


class _HadoopFolder:
    """Through Hadoop's file system, in the JVM of a classic session."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(path)
        self._file = jvm.org.apache.hadoop.fs.Path(self._path, _FILE)
        files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())
        # Hadoop's local file system would write a checksum into a second file, not atomically with the first
        self._files = files.getRawFileSystem() if files.getUri().getScheme() == "file" else files

    def read(self) -> _Claim | None:
        try:
            found = self._list()
            if found is None and self._files.exists(self._path.getParent()):
                time.sleep(_POLL_SECONDS)  # Spark's writer removes the folder before it writes it again
                found = self._list()
            return None if found is None else _parse([self._read(path) for path in found])
        except Exception:  # py4j: a file was removed while it was read
            return _UNREADABLE

    def write(self, text: str) -> None:
        stream = self._files.create(self._file, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        for path in self._list() or ():
            if path.getName() != _FILE:
                self._files.delete(path, False)

    def _list(self) -> list[Any] | None:
        """The files that Spark's readers see as well; None: there is no folder."""
        try:
            found = self._files.listStatus(self._path)
        except Exception:  # py4j: there is no folder
            return None
        paths = [status.getPath() for status in found if status.isFile()]
        return [path for path in paths if not path.getName().startswith(("_", "."))]

    def _read(self, path: Any) -> str:
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()


class _SparkFolder:
    """With Spark's public API only. A folder without a file is being replaced."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def read(self) -> _Claim | None:
        claim = self._read()
        if claim is None:
            time.sleep(_POLL_SECONDS)  # another session's writer may have removed the folder, to write it again
            claim = self._read()
        return claim

    def _read(self) -> _Claim | None:
        try:
            return _parse([row[0] for row in self._spark.read.text(self._path, wholetext=True).collect()])
        except Exception as error:
            return None if condition_of(error) == "PATH_NOT_FOUND" else _UNREADABLE

    def write(self, text: str) -> None:
        rows = self._spark.createDataFrame([(text,)], "value string")
        rows.coalesce(1).write.mode("overwrite").text(self._path)


class Lease:
    """Acquired by the constructor and renewed until ``close``. No clocks are compared: a waiting runner watches the file
    change."""

    def __init__(self, spark: SparkSession, path: str, *, target: str) -> None:
        """``path``: the trail's folder. Raises LeaseHeld as soon as the file shows that its holder is alive; waits at most
        one lease."""
        self.holder = uuid.uuid4().hex
        self._target = target
        folder = f"{path}/{_FOLDER}"
        self._folder: _Folder = _SparkFolder(spark, folder) if is_connect(spark) else _HadoopFolder(spark, folder)
        self._seconds = _CONNECT_SECONDS if is_connect(spark) else LEASE_SECONDS
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._renewals = 0
        self._wait()
        self._write(self._seconds)
        self._thread = threading.Thread(target=self._renew, name=f"lease {target}", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        first = self._folder.read()
        if first is None or first.seconds == 0:
            return
        log.info("waiting for the lease of another runner", extra={"target": self._target})
        deadline = time.monotonic() + first.seconds
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            current = self._folder.read()
            if current is None or current.seconds == 0:
                return
            if current != first:
                raise lease_held(self._target)

    def _write(self, seconds: float) -> None:
        self._renewals += 1
        self._folder.write(json.dumps(asdict(_Claim(self.holder, self._renewals, seconds))))

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            with self._lock:
                try:
                    if self._stopped.is_set() or self._has_successor():
                        return
                    self._write(self._seconds)
                except Exception as error:  # the storage may recover before the lease ends; the epoch protects the data
                    log.warning("lease not renewed", extra={"target": self._target, "error": type(error).__name__})

    def _has_successor(self) -> bool:
        return self._present_holder() not in (None, self.holder)

    def _present_holder(self) -> str | None:
        """Return None where there is no file, or one that was only partly written."""
        claim = self._folder.read()
        if claim is not None and not claim.holder:  # a successor may be writing it at this moment
            time.sleep(_POLL_SECONDS)
            claim = self._folder.read()
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
