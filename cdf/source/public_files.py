"""The commit files of one Delta log, read with Spark's public API only: over Spark Connect, and without Delta's classes."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cdf.errors import VersionsExpired, condition_of
from cdf.source.commit import from_milliseconds, missing_commits
from cdf.source.commit_files import GLOB, translate_log_errors
from cdf.source.log_readers import LogFiles, LogListing, match_action

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["PublicFiles"]

_COMMIT = re.compile(r"(\d{20})\.json")
_AT_ONCE = 50
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.")


class PublicFiles(LogFiles):
    """Reads the commit files below ``location`` as Spark's ``binaryFile`` and ``text``: each call is one Spark job."""

    few = 1

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._location = location
        self._folder = GLOB.sub(r"\\\1", location.rstrip("/")) + "/_delta_log/"

    def path(self, name: str) -> str:
        """The path of a file of the log, for Spark's readers."""
        return self._folder + name

    def list_names(self) -> dict[str, dt.datetime]:
        """Every file of the log's folder with its modification time."""
        with translate_log_errors(self._location):
            return self._list(self._folder)

    def list_log(self) -> LogListing:
        found = self.list_names()
        times = {int(name[:20]): time for name, time in sorted(found.items()) if _COMMIT.fullmatch(name)}
        return LogListing(times, frozenset(int(name[:20]) for name in found if _CHECKPOINT.match(name)))

    def read_time(self, version: int) -> dt.datetime | None:
        with translate_log_errors(self._location):
            try:
                return next(iter(self._list(self._commit(version)).values()), None)
            except Exception as error:
                if condition_of(error) == "PATH_NOT_FOUND":
                    return None
                raise

    def read_text(self, version: int) -> str:
        from pyspark.sql import functions as F

        return bytes(self._read(version, F.col("content"))).decode()

    def read_texts(self, versions: Sequence[int]) -> Iterator[tuple[int, str]]:
        for start in range(0, len(versions), _AT_ONCE):
            block = versions[start : start + _AT_ONCE]
            try:
                with translate_log_errors(self._location):
                    paths = [self._commit(version) for version in block]
                    rows = self._spark.read.format("binaryFile").load(paths).select("path", "content").collect()
            except VersionsExpired as error:
                raise missing_commits(self._location, list(block)) from error
            texts = {row["path"].rsplit("/", 1)[-1]: bytes(row["content"]).decode() for row in rows}
            for version in block:
                yield version, texts[f"{version:020d}.json"]

    def compute_sha256(self, version: int) -> str:
        from pyspark.sql import functions as F

        return str(self._read(version, F.sha2("content", 256)))

    def find_actions(self, versions: list[int], kind: str, containing: str = "") -> list[tuple[int, Any]]:
        return [(version, action) for version, found, action in self.read_actions(versions, [kind], containing)]

    def read_actions(
        self, versions: Sequence[int], kinds: Sequence[str], containing: str = ""
    ) -> list[tuple[int, str, Any]]:
        """(version, kind, action) of these commit files, ascending by version and in the order of the file."""
        from pyspark.sql import functions as F

        if not versions:
            return []
        with translate_log_errors(self._location):
            rows = (
                self._spark.read.text([self._commit(version) for version in versions])
                .where(F.col("value").rlike(match_action(*kinds)) & F.col("value").contains(containing))
                .select(F.col("_metadata.file_name").alias("file"), "value")
                .collect()
            )
        actions = [(int(row["file"][:20]), *next(iter(json.loads(row["value"]).items()))) for row in rows]
        return sorted(actions, key=lambda action: action[0])

    def _commit(self, version: int) -> str:
        return self.path(f"{version:020d}.json")

    def _binary(self, path: str) -> DataFrame:
        return self._spark.read.format("binaryFile").load(path)

    def _list(self, path: str) -> dict[str, dt.datetime]:
        from pyspark.sql import functions as F

        rows = self._binary(path).select("path", F.unix_millis("modificationTime").alias("millis")).collect()
        return {row["path"].rsplit("/", 1)[-1]: from_milliseconds(row["millis"]) for row in rows}

    def _read(self, version: int, column: Column) -> Any:
        try:
            with translate_log_errors(self._location):
                row = self._binary(self._commit(version)).select(column.alias("found")).first()
        except VersionsExpired as error:
            raise missing_commits(self._location, [version]) from error
        if row is None:
            raise missing_commits(self._location, [version])
        return row["found"]
