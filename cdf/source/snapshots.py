"""The states of one table as Delta's own library reads them from the log: metadata, size, transactions, clean-up."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cdf.changes.commits import Metadata
from cdf.errors import TableNotFound, VersionsExpired
from cdf.source.commit import (
    from_milliseconds,
    is_below_table,
    list_plain_files,
    parse_metadata,
    parse_protocol,
    version_gone,
)
from cdf.source.commit_files import translate_log_errors
from cdf.source.log_readers import LatestVersion, TableStates
from cdf.spark_versions import collect_arrow, takes_catalog_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DeltaSnapshots"]

SHORT_LOG, SHORT_LOG_BYTES = 20, 2**20
"""Commits, and bytes of their files."""


class DeltaSnapshots(TableStates):
    """Delta's ``DeltaLog`` of the table at ``location``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._location, self._spark = location, spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._takes_catalog_table = takes_catalog_table(spark)
        self._opened: Any = None

    @property
    def _delta(self) -> Any:
        if self._opened is None:
            with translate_log_errors(self._location):
                logs = self._jvm.org.apache.spark.sql.delta.DeltaLog
                self._opened = logs.forTable(self._spark._jsparkSession, self._location)
        return self._opened

    def read_latest(self) -> LatestVersion:
        snapshot = self._update()
        modified = from_milliseconds(int(snapshot.logSegment().lastCommitFileModificationTimestamp()))
        protocol = parse_protocol(json.loads(snapshot.protocol().json())["protocol"])
        return LatestVersion(int(snapshot.version()), modified, _metadata_of(snapshot), protocol)

    def read_metadata(self, version: int) -> Metadata:
        return _metadata_of(self._at(version))

    def read_size_bytes(self, version: int) -> int:
        with translate_log_errors(self._location):
            return int(self._at(version).sizeInBytes())

    def find_folder(self) -> str | None:
        return str(self._delta.dataPath().toString())

    def read_plain_files(self, version: int, *, most: int) -> list[tuple[str, int]] | None:
        with translate_log_errors(self._location):
            snapshot = self._at(version)
            metadata = json.loads(snapshot.metadata().json())["metaData"]
            is_mapped = metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none"
            if is_mapped or metadata.get("partitionColumns"):
                return None
            folder, texts = self.find_folder(), self._read_short_log(snapshot)
            listed = None if texts is None else list_plain_files(texts)
            if listed is not None:
                return [(f"{folder}/{path}", size) for path, size in listed] if len(listed) <= most else None
            if int(snapshot.numOfFiles()) > most:
                return None
            from pyspark.sql import DataFrame

            files = DataFrame(snapshot.allFiles().toDF(), self._spark)
            found = collect_arrow(files.selectExpr("path", "size", "deletionVector is null as is_whole")).to_pylist()
        paths = [(_join_path(folder, one["path"]), int(one["size"])) for one in found if one["is_whole"]]
        plain = [(path, size) for path, size in paths if path is not None]
        return plain if len(plain) == len(found) else None

    def _read_short_log(self, snapshot: Any) -> list[str] | None:
        """All commit files from which Delta would rebuild the table, if they are few and there is no checkpoint; else None.
        Reading them takes less than Delta's jobs."""
        commits, count = snapshot.logSegment().deltas(), int(snapshot.version()) + 1
        # With a checkpoint, or with commits that were compacted into one file, there are fewer
        is_short = count <= SHORT_LOG and int(commits.size()) == count
        if not is_short or int(snapshot.deltaFileSizeInBytes()) > SHORT_LOG_BYTES:
            return None
        store, settings = self._delta.store(), self._delta.newDeltaHadoopConf()
        return [str(store.read(commits.apply(number).getPath(), settings).mkString("\n")) for number in range(count)]

    def read_file_times(self, first: int, last: int) -> Mapping[int, dt.datetime]:
        with translate_log_errors(self._location):
            reader = self._jvm.org.apache.spark.sql.delta.commands.cdc.CDCReader
            times = reader.getNonICTTimestampsByVersion(self._delta, first, last)
            return {
                version: from_milliseconds(int(times.apply(version).getTime())) for version in range(first, last + 1)
            }

    def read_transaction(self, application: str) -> int | None:
        found = self._update().transactions().get(application)
        return int(found.get()) if found.isDefined() else None

    def write_checkpoint(self) -> None:
        self._delta.checkpoint(self._update(), self._jvm.scala.Option.empty())

    def clean_up(self, *, at_once: bool) -> None:
        jvm = self._jvm
        none, minute = jvm.scala.Option.empty(), jvm.org.apache.spark.sql.delta.TruncationGranularity.MINUTE()
        # Negative: files of the last minute too. Delta wants a long, and Py4J makes a long only of what is no integer
        retention = jvm.scala.Some(-(2**31) - 1) if at_once else none
        self._delta.cleanUpExpiredLogs(
            self._update(), *([none] if self._takes_catalog_table else []), retention, minute
        )

    def _update(self) -> Any:
        # A log that Delta opens now is read now: Delta need not list it a second time. If another reader had it open, and
        # the clock was set back since, the version may be an old one this once
        began = int(time.time() * 1000) if self._opened is None else None
        with translate_log_errors(self._location):
            delta = self._delta
            since = self._jvm.scala.Option.empty() if began is None else self._jvm.scala.Some(began)
            snapshot = delta.update(False, since, getattr(delta, "update$default$3")())
            version = int(snapshot.version())
        if version < 0:
            raise TableNotFound(
                f"there is no Delta table at {self._location}", hint="check the path or name of the table"
            )
        return snapshot

    def _at(self, version: int) -> Any:
        try:
            with translate_log_errors(self._location):
                return self._delta.getSnapshotAt(
                    version,
                    getattr(self._delta, "getSnapshotAt$default$2")(),
                    getattr(self._delta, "getSnapshotAt$default$3")(),
                    *([False] if self._takes_catalog_table else []),
                )
        except VersionsExpired as error:
            raise version_gone(self._location, version, error.condition) from error


def _metadata_of(snapshot: Any) -> Metadata:
    return parse_metadata(json.loads(snapshot.metadata().json())["metaData"])


def _join_path(folder: str | None, path: str) -> str | None:
    """The file that an action of the log names by a path below the table's folder; None for any other path."""
    decoded = unquote(path)
    return f"{folder}/{decoded}" if is_below_table(decoded) else None
