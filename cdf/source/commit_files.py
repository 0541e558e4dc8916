"""The commit files of one Delta log, read through Spark's Hadoop file system: every storage that Spark can read works."""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, SourceError, VersionsExpired, condition_of
from cdf.session import translate_lost_server
from cdf.source.commit import from_milliseconds, missing_commits
from cdf.source.log_readers import LogFiles, LogListing, match_action
from cdf.source.table_features import translate_refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CommitFiles", "GLOB", "translate_log_errors"]

_LOG_GONE = {
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_MISSING_PART_FILES",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "PATH_NOT_FOUND",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
}
_COMMIT_FILE = re.compile(r"/(\d{20})\.json; [^\n]*?modification_time=(\d+)")
_CHECKPOINT_FILE = re.compile(r"/(\d{20})\.checkpoint\.")
_LOG_STORES = tuple(f"{prefix}delta.logStore.{name}" for prefix in ("spark.", "") for name in ("class", "file.impl"))
"""Settings by which commits may be elsewhere than in the folder."""
GLOB = re.compile(r"([\\*?{}\[\]])")
"""Characters of a path that Spark and Hadoop would read as a pattern."""


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
        if (lost := translate_lost_server(error, f"the Delta log of {location} cannot be read")) is not None:
            raise lost from error
        condition = condition_of(error)
        gone = condition in _LOG_GONE or "FileNotFoundException" in str(error)
        kind = VersionsExpired if gone else SourceError
        raise kind(
            f"the Delta log of {location} cannot be read" + (f" ({condition})" if condition else ""),
            hint="a commit or checkpoint file is missing, damaged or not readable with these rights: "
            "restore it from a backup",
            condition=condition,
        ) from error


class CommitFiles(LogFiles):
    """Reads the commit files below ``location`` through the JVM of a classic session."""

    few = 50  # at about 4 ms each

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._location = location
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        # Looked up once: Py4J asks the JVM about each part of such a name, which takes longer than the call
        self._new_path, self._io = jvm.org.apache.hadoop.fs.Path, jvm.org.apache.commons.io.IOUtils
        self._folder = self._new_path(location.rstrip("/") + "/_delta_log")
        self._folder_pattern = GLOB.sub(r"\\\1", str(self._folder.toString()))
        self._file_system = self._folder.getFileSystem(spark._jsc.hadoopConfiguration())

    def list_log(self) -> LogListing:
        with translate_log_errors(self._location):
            # The whole array as one text: reading each file's name and time would be two calls to the JVM per file
            status = self._file_system.listStatus(self._folder)
            listed = str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(status))
        times = {int(version): from_milliseconds(int(millis)) for version, millis in _COMMIT_FILE.findall(listed)}
        return LogListing(dict(sorted(times.items())), frozenset(map(int, _CHECKPOINT_FILE.findall(listed))))

    def list_local_names(self) -> Collection[str] | None:
        """Of a local folder. Hadoop asks for the size and the time of each file as well."""
        if self._local_folder is None:
            return None
        try:
            with os.scandir(self._local_folder) as entries:
                return [entry.name for entry in entries]
        except OSError:
            return None  # Delta raises the error, if there is one

    @functools.cached_property
    def _local_folder(self) -> str | None:
        settings = [self._spark.conf.get(name, None) for name in _LOG_STORES]
        settings.append(self._file_system.getConf().get("fs.file.impl"))
        is_local = str(self._file_system.getUri().getScheme()) == "file" and not any(settings)
        # Java's working folder, which a relative path means, is not that of Python
        return str(self._file_system.makeQualified(self._folder).toUri().getPath()) if is_local else None

    def read_time(self, version: int) -> dt.datetime | None:
        with translate_log_errors(self._location):
            # One request, on S3 as well; first testing for existence would be a second one
            found = self._file_system.globStatus(self._pattern(version))
            return from_milliseconds(int(found[0].getModificationTime())) if found else None

    def read_text(self, version: int) -> str:
        return self._read(version, lambda stream: self._io.toString(stream, "UTF-8"))

    def compute_sha256(self, version: int) -> str:
        return self._read(version, self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex)

    def find_actions(self, versions: list[int], kind: str, containing: str = "") -> list[tuple[int, Any]]:
        from pyspark.sql import functions as F

        rows = (
            self._spark.read.text([str(self._pattern(version).toString()) for version in versions])
            .where(F.col("value").rlike(match_action(kind)) & F.col("value").contains(containing))
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
        return self._new_path(f"{self._folder_pattern}/{version:020d}.json")

    def _path(self, version: int) -> Any:
        return self._new_path(self._folder, f"{version:020d}.json")
