"""The commit files of one Delta log, read through Spark's Hadoop file system: every storage that Spark can read works."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, ConfigError, SourceError, VersionsExpired, condition_of
from cdf.source.commit import from_milliseconds, missing_commits
from cdf.source.table_features import translate_refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CommitFiles", "LogListing", "translate_log_errors"]

_LOG_GONE = {
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_MISSING_PART_FILES",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
}
_COMMIT_FILE = re.compile(r"/(\d{20})\.json; [^\n]*?modification_time=(\d+)")
_CHECKPOINT_FILE = re.compile(r"/(\d{20})\.checkpoint\.")
_GLOB = re.compile(r"([\\*?{}\[\]])")


@dataclass(frozen=True, slots=True)
class LogListing:
    """The commit files that exist (version → modification time, ascending), and the versions with a checkpoint."""

    times: Mapping[int, dt.datetime]
    checkpoints: frozenset[int] = frozenset()

    @property
    def earliest(self) -> int:
        """The first version from which on every commit file exists."""
        newest_first = sorted(self.times, reverse=True)
        version = newest_first[0]
        while version - 1 in self.times:
            version -= 1
        return version

    @property
    def readable(self) -> int:
        """The first version from which on every commit file exists and the table can be rebuilt."""
        first = self.earliest
        bases = [version for version in self.checkpoints if version >= first - 1]
        return first if first == 0 or not bases else max(first, min(bases))

    def missing(self, first: int, last: int) -> list[int]:
        return [version for version in range(first, last + 1) if version not in self.times]

    @property
    def gaps(self) -> tuple[int, ...]:
        """Missing versions between the oldest and the newest commit file."""
        return tuple(self.missing(min(self.times), max(self.times))) if self.times else ()


@contextmanager
def translate_log_errors(location: str) -> Iterator[None]:
    """Raise our errors instead of the Java errors by which Delta reports that it cannot read its log."""
    try:
        yield
    except CdfError:
        raise
    except Exception as error:
        if (unknown := translate_refusal(error, location)) is not None:
            raise unknown from error
        condition = condition_of(error)
        gone = condition in _LOG_GONE or "FileNotFoundException" in str(error)
        kind = VersionsExpired if gone else SourceError
        raise kind(
            f"the Delta log of {location} cannot be read" + (f" ({condition})" if condition else ""),
            hint="a commit or checkpoint file is missing, damaged or not readable with these rights: "
            "restore it from a backup",
            condition=condition,
        ) from error


class CommitFiles:
    """Lists and reads the commit files below ``location``. Every call reads the storage."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._location = location
        self._spark = spark
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise ConfigError(
                "this Spark session has no JVM (Spark Connect), which reading the Delta log needs",
                hint="use a classic session: local, spark-submit, or on the cluster's driver",
            )
        self._jvm = jvm
        self._folder = jvm.org.apache.hadoop.fs.Path(location.rstrip("/") + "/_delta_log")
        self._file_system = self._folder.getFileSystem(spark._jsc.hadoopConfiguration())

    def list_log(self) -> LogListing:
        """List the whole log folder. The cost grows with the table's history."""
        with translate_log_errors(self._location):
            # The whole array as one text: reading each file's name and time would be two calls to the JVM per file
            status = self._file_system.listStatus(self._folder)
            listed = str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(status))
        times = {int(version): from_milliseconds(int(millis)) for version, millis in _COMMIT_FILE.findall(listed)}
        return LogListing(dict(sorted(times.items())), frozenset(map(int, _CHECKPOINT_FILE.findall(listed))))

    def read_time(self, version: int) -> dt.datetime | None:
        """The modification time of a commit file; None: the file does not exist."""
        with translate_log_errors(self._location):
            # One request, on S3 as well; first testing for existence would be a second one
            found = self._file_system.globStatus(self._pattern(version))
            return from_milliseconds(int(found[0].getModificationTime())) if found else None

    def read_text(self, version: int) -> str:
        """A commit file's content. Raises VersionsExpired if the file is gone."""
        return self._read(version, lambda stream: self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def compute_sha256(self, version: int) -> str:
        """A commit file's SHA-256 in hex. Raises VersionsExpired if the file is gone."""
        return self._read(version, self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex)

    def find_actions(self, versions: list[int], kind: str, containing: str = "") -> list[tuple[int, Any]]:
        """The actions of one kind in these commit files, with their versions, by one Spark job.

        Reading thousands of commit files one by one takes tens of seconds.
        """
        from pyspark.sql import functions as F

        rows = (
            self._spark.read.text([str(self._pattern(version).toString()) for version in versions])
            .where(F.col("value").startswith(f'{{"{kind}"') & F.col("value").contains(containing))
            .select(F.input_file_name().alias("file"), "value")
            .collect()
        )
        return [
            (int(row["file"].rsplit("/", 1)[-1].removesuffix(".json")), json.loads(row["value"])[kind]) for row in rows
        ]

    def _read(self, version: int, read: Callable[[Any], object]) -> str:
        try:
            with translate_log_errors(self._location):
                stream = self._file_system.open(self._path(version))
                try:
                    return str(read(stream))
                finally:
                    stream.close()
        except VersionsExpired as error:
            raise missing_commits(self._location, [version]) from error

    def _pattern(self, version: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(_GLOB.sub(r"\\\1", str(self._path(version).toString())))

    def _path(self, version: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, f"{version:020d}.json")
