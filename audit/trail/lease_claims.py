"""Where the claims on the lease of a trail are stored, and how each kind of session reads and writes them.

    _lease                        the claim of a runner with a classic session: a file, written through Hadoop's file system
    _lease_connect/claim/         the claim of a runner over Spark Connect: a folder, which Spark's writer replaces
    _lease_connect/classic/claim  a copy of ``_lease``, written only where there is ``_lease_connect``

Spark's readers do not read files whose name begins with an underscore, so a session of Spark Connect sees only the copy.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cdf.errors import condition_of
from cdf.session import translate_lost_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CLASSIC_CLAIM",
    "CONNECT_CLAIM",
    "LEASE_SECONDS",
    "POLL_SECONDS",
    "Claim",
    "Claims",
    "ClassicClaims",
    "ConnectClaims",
]

LEASE_SECONDS = 15.0
"""How long a runner with a classic session counts as alive after its last renewal."""
POLL_SECONDS = 0.3
_FOLDER, _CLAIM, _COPY = "_lease_connect", "claim", "classic"
CLASSIC_CLAIM = "_lease"
CONNECT_CLAIM = f"{_FOLDER}/{_CLAIM}"
"""Below the folder of the trail: a file, and a folder with one file."""


@dataclass(frozen=True, slots=True)
class Claim:
    """It differs after each renewal; ``seconds`` is 0 once the lease is released."""

    holder: str
    renewals: int
    seconds: float


def _parse(text: str, *, slowness: int = 1) -> Claim:
    """``slowness``: that of the session whose claim it is."""
    try:
        return Claim(**json.loads(text))
    except (ValueError, TypeError):  # it is partly written
        return Claim("", -1, LEASE_SECONDS * slowness)


def _is_missing(error: Exception) -> bool:
    """Whether py4j says that there is no such file. Any other failure says nothing about the claim."""
    java = getattr(error, "java_exception", None)
    return java is not None and str(java.getClass().getName()) == "java.io.FileNotFoundException"


class Claims(Protocol):
    """The claims that a session can read. None: there is no claim."""

    slowness: int
    """By this factor renewals come later than in a classic session."""

    def read_own(self) -> Claim | None:
        """Of runners with the same kind of session."""

    def read_other(self) -> Claim | None:
        """Of runners with the other kind of session."""

    def write_own(self, claim: Claim) -> None: ...

    def write_other(self, claim: Claim) -> None:
        """Replace the claim of a runner that is gone."""

    def has_unseen(self) -> bool:
        """Whether a runner of the other kind may hold the lease and not show its claim yet."""


class ClassicClaims:
    """In the JVM of a classic session."""

    slowness = 1

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._file = self._path(path, CLASSIC_CLAIM)
        self._folder = self._path(path, _FOLDER)
        files = self._file.getFileSystem(spark._jsc.hadoopConfiguration())
        # Hadoop's local file system would write a checksum into a second file, not atomically with the first
        self._files = files.getRawFileSystem() if files.getUri().getScheme() == "file" else files

    def _path(self, parent: Any, *names: str) -> Any:
        for name in names:
            parent = self._jvm.org.apache.hadoop.fs.Path(parent, name)
        return parent

    def read_own(self) -> Claim | None:
        text = self._read(self._file)
        return None if text is None else _parse(text)

    def read_other(self) -> Claim | None:
        if not self._files.exists(self._folder):
            return None
        claim = self._read_folder()
        if claim is None:  # Spark's writer removes the folder before it writes it again
            time.sleep(POLL_SECONDS)
            claim = self._read_folder()
        return claim

    def write_own(self, claim: Claim) -> None:
        self._write(self._file, claim)
        if self._files.exists(self._folder):
            self._write_alone(_COPY, claim)

    def write_other(self, claim: Claim) -> None:
        self._write_alone(_CLAIM, claim)

    def has_unseen(self) -> bool:
        return False

    def _read_folder(self) -> Claim | None:
        names = self._list_names(_CLAIM)
        if names is None:
            return None
        # While the folder is being replaced there is no file in it
        text = self._read(self._path(self._folder, _CLAIM, names[0])) if len(names) == 1 else None
        return _parse(text or "", slowness=ConnectClaims.slowness)

    def _list_names(self, folder: str) -> list[str] | None:
        """The files that Spark's readers see; None: there is no folder."""
        try:
            found = self._files.listStatus(self._path(self._folder, folder))
        except Exception as error:
            if _is_missing(error):
                return None
            raise
        names = [str(status.getPath().getName()) for status in found if status.isFile()]
        return [name for name in names if not name.startswith(("_", "."))]

    def _write_alone(self, folder: str, claim: Claim) -> None:
        """Write the only file of the folder, where Spark's writer may have left another one."""
        if set(self._list_names(folder) or ()) - {_CLAIM}:
            self._files.delete(self._path(self._folder, folder), True)
        self._write(self._path(self._folder, folder, _CLAIM), claim)

    def _read(self, path: Any) -> str | None:
        """None: there is no file."""
        try:
            stream = self._files.open(path)
        except Exception as error:
            if _is_missing(error):
                return None
            raise
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _write(self, path: Any, claim: Claim) -> None:
        stream = self._files.create(path, True)
        try:
            stream.write(bytearray(json.dumps(asdict(claim)).encode()))
        finally:
            stream.close()


class ConnectClaims:
    """With Spark's public API only. A renewal is a Spark job, which may have to wait for the tasks of others."""

    slowness = 2

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def read_own(self) -> Claim | None:
        return self._read(_CLAIM, self.slowness)

    def read_other(self) -> Claim | None:
        return self._read(_COPY, ClassicClaims.slowness)

    def write_own(self, claim: Claim) -> None:
        self._write(_CLAIM, claim)

    def write_other(self, claim: Claim) -> None:
        self._write(_COPY, claim)

    def has_unseen(self) -> bool:
        """A classic runner copies its claim with the first renewal after there is ``_lease_connect``."""
        return self._exists(f"{self._path}/{CLASSIC_CLAIM}") and not self._exists(f"{self._path}/{_FOLDER}/{_COPY}")

    def _exists(self, path: str) -> bool:
        try:
            self._spark.read.text(path).schema  # noqa: B018
        except Exception as error:
            if condition_of(error) == "PATH_NOT_FOUND":
                return False
            raise
        return True

    def _read(self, name: str, slowness: int) -> Claim | None:
        claim = self._read_once(name, slowness)
        if claim is None:  # another session's writer may have removed the folder, to write it again
            time.sleep(POLL_SECONDS)
            claim = self._read_once(name, slowness)
        return claim

    def _read_once(self, name: str, slowness: int) -> Claim | None:
        try:
            rows = self._spark.read.text(f"{self._path}/{_FOLDER}/{name}", wholetext=True).collect()
        except Exception as error:
            if condition_of(error) == "PATH_NOT_FOUND":
                return None
            if translate_lost_server(error, "") is not None:
                raise
            rows = []  # a file was removed while it was read
        return _parse(rows[0][0] if len(rows) == 1 else "", slowness=slowness)

    def _write(self, name: str, claim: Claim) -> None:
        rows = self._spark.createDataFrame([(json.dumps(asdict(claim)),)], "value string")
        # Not compressed, whatever the server's settings: a classic session reads the bytes
        rows.coalesce(1).write.mode("overwrite").option("compression", "none").text(f"{self._path}/{_FOLDER}/{name}")
