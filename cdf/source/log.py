"""The Delta log of one table: which commits there are, and what each did.

Delta's public reader tells what a version holds, not what a commit was. The windows need both, and the silent traps of the
batch feed (it reads across missing commit files without a word) can only be found here. Commit files are read through
Spark's own Hadoop file system, so every storage that Spark can read works; metadata at a version comes from Delta's own
snapshot. Versions are ints, times are aware datetimes in UTC.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdf.changes.window import Commit, Metadata
from cdf.errors import (
    CdfError,
    ConfigError,
    SourceError,
    TableNotFound,
    VersionsExpired,
    condition_of,
    unsupported_features,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableLog", "LogListing"]

_FEW = 50
"""Up to so many commit files are read one by one, at about 4 ms each, and kept; more are left to a Spark job."""
_FEW_SINCE = 10
_KEPT_CHARACTERS = 1 << 20
"""A commit file that is larger (an overwrite of many files) is read again rather than kept."""
_LOG_GONE = {
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_MISSING_PART_FILES",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COMMIT_FILE = re.compile(r"/(\d{20})\.json; [^\n]*?modification_time=(\d+)")
_CHECKPOINT_FILE = re.compile(r"/(\d{20})\.checkpoint\.")
_GLOB = re.compile(r"([\\*?{}\[\]])")


@dataclass(frozen=True, slots=True)
class _Known:
    """The table as Delta has last read it."""

    version: int
    time: dt.datetime
    """Modification time of that version's commit file."""
    metadata: Metadata


@dataclass(slots=True)
class _Glance:
    """What one look at the log has found so far."""

    latest: int | None = None
    files: dict[int, dt.datetime | None] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogListing:
    """The commit files that are there: version → modification time, ascending. And the versions with a checkpoint."""

    times: Mapping[int, dt.datetime]
    checkpoints: frozenset[int] = frozenset()

    @property
    def earliest(self) -> int:
        """The first version from which on every commit file is there."""
        newest_first = sorted(self.times, reverse=True)
        version = newest_first[0]
        while version - 1 in self.times:
            version -= 1
        return version

    @property
    def readable(self) -> int:
        """The first version from which on every commit file is there and the table can be rebuilt."""
        first = self.earliest
        bases = [version for version in self.checkpoints if version >= first - 1]
        return first if first == 0 or not bases else max(first, min(bases))

    def missing(self, first: int, last: int) -> list[int]:
        return [version for version in range(first, last + 1) if version not in self.times]

    @property
    def gaps(self) -> tuple[int, ...]:
        """Missing versions between the oldest and the newest commit file."""
        return tuple(self.missing(min(self.times), max(self.times))) if self.times else ()


class TableLog:
    """Reads the log at ``location``. Every call looks at the storage anew, except within one ``glance``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location
        self._spark = spark
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise ConfigError(
                "this Spark session has no JVM of its own (Spark Connect), which reading the Delta log needs",
                hint="use a classic session: local, spark-submit, or on the cluster's driver",
            )
        self._jvm = jvm
        self._folder = jvm.org.apache.hadoop.fs.Path(location.rstrip("/") + "/_delta_log")
        self._files = self._folder.getFileSystem(spark._jsc.hadoopConfiguration())
        self._own = threading.local()
        self._known: _Known | None = None
        with self._readable():
            self._delta = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)

    @contextmanager
    def glance(self) -> Iterator[None]:
        """Several questions about one moment: what was looked up once holds until the end of the block, in this thread."""
        if self._glance is not None:
            yield
            return
        self._own.glance = _Glance()
        try:
            yield
        finally:
            self._own.glance = None

    @property
    def _glance(self) -> _Glance | None:
        return getattr(self._own, "glance", None)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Delta's own failures to read its log reach PySpark as bare Java errors."""
        try:
            yield
        except CdfError:
            raise
        except Exception as error:
            if (unknown := unsupported_features(error, self.location)) is not None:
                raise unknown from error
            condition = condition_of(error)
            gone = condition in _LOG_GONE or "FileNotFoundException" in str(error)
            kind = VersionsExpired if gone else SourceError
            raise kind(
                f"the Delta log of {self.location} cannot be read" + (f" ({condition})" if condition else ""),
                hint="a commit or checkpoint file is missing or damaged, or the rights are: restore it from a backup",
                condition=condition,
            ) from error

    def latest(self, *, anew: bool = True) -> int:
        """The newest version, by Delta's own reading of the log. It lists the log: dearer the longer the history is.

        ``anew=False`` goes on from what is known, from commit file to commit file. A version that another cluster has
        recorded in its lock table and not yet copied into the log is seen by Delta only.
        """
        glance = self._glance
        if anew and glance is not None and glance.latest is not None:
            return glance.latest
        if anew or (known := self._known_still()) is None:
            version = self._look().version
            if glance is not None:
                glance.latest = version
            return version
        for version in range(known.version, known.version + _FEW):
            if self._time(version + 1) is None:
                return version
        return self._look().version

    def _look(self) -> _Known:
        """Have Delta take in what is new."""
        self._known = known = self._newest()
        if (glance := self._glance) is not None:  # what was not there a moment ago may be there now
            glance.files = {version: time for version, time in glance.files.items() if time is not None}
        return known

    def _newest(self) -> _Known:
        snapshot = self._snapshot()
        time = _utc(int(snapshot.logSegment().lastCommitFileModificationTimestamp()))
        return _Known(int(snapshot.version()), time, _metadata_of(snapshot))

    def _known_still(self) -> _Known | None:
        """What the last look found, unless the log is another one since: a table that was made again, or cleaned up."""
        known = self._known
        time = None if known is None else self._time(known.version)
        return known if known is not None and time is not None and _same(time, known.time) else None

    def _snapshot(self) -> Any:
        with self._readable():
            snapshot = self._delta.update(
                False, getattr(self._delta, "update$default$2")(), getattr(self._delta, "update$default$3")()
            )
            version = int(snapshot.version())
        if version < 0:
            raise TableNotFound(
                f"there is no Delta table at {self.location}", hint="check the path or name of the table"
            )
        return snapshot

    def metadata(self, version: int | None = None) -> Metadata:
        """The table's metadata, now or as of a version. Not limited by the retention of deleted files."""
        latest = self.latest(anew=False)
        version = latest if version is None else version
        known = self._known
        assert known is not None  # latest() has looked
        if known.version < version <= latest:
            if self._wrote_metadata(known.version + 1, version):
                known = self._look()
            else:
                time = self._time(version)
                self._known = known = _Known(version, time or known.time, known.metadata)
        if version <= known.version and not self._wrote_metadata(version + 1, known.version):
            return known.metadata
        return self._metadata_at(version)

    def _metadata_at(self, version: int) -> Metadata:
        return _metadata_of(self._snapshot_at(version))

    def size_bytes(self, version: int) -> int:
        """Of the files that make up the table at that version."""
        with self._readable():
            return int(self._snapshot_at(version).sizeInBytes())

    def transaction(self, application: str) -> int | None:
        """The newest version that writers with this ``txnAppId`` have written, now; None: none has."""
        found = self._snapshot().transactions().get(application)
        return int(found.get()) if found.isDefined() else None

    def checkpoint(self) -> None:
        """Write one of the latest version."""
        self._delta.checkpoint(self._snapshot(), self._jvm.scala.Option.empty())

    def clean_up(self, *, at_once: bool = False) -> None:
        """Remove commit files and checkpoints that are older than the log's retention, up to a checkpoint as old as that.

        Delta does so at its own checkpoints, by whole days; here by minutes. ``at_once``: whatever their age, up to the
        newest checkpoint.
        """
        jvm = self._jvm
        none, minute = jvm.scala.Option.empty(), jvm.org.apache.spark.sql.delta.TruncationGranularity.MINUTE()
        # Of the last minute too. Py4J makes a long, which Delta wants, only of what does not fit into an integer
        retention = jvm.scala.Some(-(2**31) - 1) if at_once else none
        self._delta.cleanUpExpiredLogs(self._snapshot(), none, retention, minute)

    def _snapshot_at(self, version: int) -> Any:
        try:
            with self._readable():
                return self._delta.getSnapshotAt(
                    version,
                    getattr(self._delta, "getSnapshotAt$default$2")(),
                    getattr(self._delta, "getSnapshotAt$default$3")(),
                    False,
                )
        except VersionsExpired as error:
            raise version_gone(self.location, version, error.condition) from error

    def _wrote_metadata(self, first: int, last: int) -> bool:
        """False where there are few commits and they show it: rebuilding an older state costs more the longer the history
        is. True also where that cannot be told."""
        if last < first:
            return False
        there = self.files(first, last) if last - first < _FEW_SINCE else {}
        return len(there) <= last - first or any('"metaData"' in self._text(version) for version in there)

    def listing(self) -> LogListing:
        """Everything in the log's folder. Its cost grows with the table's history: a window asks ``files`` instead."""
        with self._readable():
            # The whole array as one text: asking for each file's name and time would be two calls to the JVM per file
            found = str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(self._files.listStatus(self._folder)))
        times = {int(version): _utc(int(millis)) for version, millis in _COMMIT_FILE.findall(found)}
        return LogListing(dict(sorted(times.items())), frozenset(map(int, _CHECKPOINT_FILE.findall(found))))

    def files(self, first: int, last: int) -> Mapping[int, dt.datetime]:
        """Version → modification time of the commit files of ``first..last`` that are there, ascending."""
        if last - first >= _FEW:
            return {version: time for version, time in self.listing().times.items() if first <= version <= last}
        times = ((version, self._time(version)) for version in range(first, last + 1))
        return {version: time for version, time in times if time is not None}

    def _time(self, version: int) -> dt.datetime | None:
        glance = self._glance
        if glance is not None and version in glance.files:
            return glance.files[version]
        time = self._modified(version)
        if glance is not None:
            glance.files[version] = time
        return time

    def _modified(self, version: int) -> dt.datetime | None:
        with self._readable():
            # One request, on S3 as well; asking whether it is there and then for its time would be two
            found = self._files.globStatus(self._pattern(version))
            return _utc(int(found[0].getModificationTime())) if found else None

    def missing(self, first: int, last: int) -> list[int]:
        """The versions of ``first..last`` whose commit file is gone."""
        there = self.files(first, last)
        return [version for version in range(first, last + 1) if version not in there]

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """The commits ``first..last``: few are read at once, more one by one as they are asked for.

        Raises VersionsExpired, naming the versions, where a commit file of the range is missing.
        """
        files = self.files(first, last)
        if missing := [version for version in range(first, last + 1) if version not in files]:
            raise missing_commits(self.location, missing)
        found = self._parsed(first, last, files)
        return iter(list(found)) if last - first < _FEW else found

    def _parsed(self, first: int, last: int, files: Mapping[int, dt.datetime]) -> Iterator[Commit]:
        previous: dt.datetime | None = None
        for version in range(first, last + 1):
            commit = parse_commit(version, self._text(version), files[version])
            # Delta's own rule: commit times never run backwards, whatever the files' clocks say
            if previous is not None and commit.timestamp <= previous:
                commit = _later(commit, previous + dt.timedelta(milliseconds=1))
            previous = commit.timestamp
            yield commit

    def sha256(self, version: int) -> str:
        """Of the commit file, in hex. Raises VersionsExpired where it is gone."""
        return self._of_file(version, self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex)

    def metadata_commits(self, first: int, last: int) -> list[tuple[int, Metadata]]:
        """The commits of ``first..last`` that write metadata, ascending. Missing commit files are passed over."""
        versions = list(self.files(first, last))
        if len(versions) <= _FEW:
            pairs = [(version, self._text(version)) for version in versions]
            return [
                (version, commit.metadata)
                for version, text in pairs
                if '"metaData"' in text and (commit := parse_commit(version, text, _EPOCH)).metadata is not None
            ]
        return self._metadata_commits_by_job(versions)

    def _metadata_commits_by_job(self, versions: list[int]) -> list[tuple[int, Metadata]]:
        found = [(version, _metadata(told)) for version, told in self._actions_by_job(versions, "metaData")]
        return sorted(found, key=lambda pair: pair[0])

    def versions_naming(self, word: str, first: int, last: int) -> list[int]:
        """The commits of ``first..last`` whose ``userMetadata`` has the word, ascending. Missing commit files are passed
        over."""
        versions = list(self.files(first, last))
        if len(versions) <= _FEW:
            texts = ((version, self._text(version)) for version in versions)
            told = [
                (version, parse_commit(version, text, _EPOCH).user_metadata) for version, text in texts if word in text
            ]
        else:
            actions = self._actions_by_job(versions, "commitInfo", containing=word)
            told = [(version, info.get("userMetadata")) for version, info in actions]
        return sorted(version for version, metadata in told if word in str(metadata))

    def _actions_by_job(self, versions: list[int], kind: str, containing: str = "") -> list[tuple[int, Any]]:
        """One Spark job over the commit files: reading thousands of them one by one takes tens of seconds."""
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

    def times(self) -> Mapping[int, dt.datetime]:
        """Commit time by version, for the versions whose commit file is there, as Delta reckons them."""
        properties = self.metadata().properties
        if properties.get("delta.enableInCommitTimestamps", "false").lower() == "true":
            return self._in_commit_times()
        adjusted: dict[int, dt.datetime] = {}
        previous: dt.datetime | None = None
        for version, time in self.listing().times.items():
            if previous is not None and time <= previous:
                time = previous + dt.timedelta(milliseconds=1)
            adjusted[version] = previous = time
        return adjusted

    def _in_commit_times(self) -> Mapping[int, dt.datetime]:
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        history = DeltaTable.forPath(self._spark, self.location).history()
        rows = history.select("version", F.unix_micros("timestamp").alias("micros")).collect()
        return {
            int(row["version"]): _EPOCH + dt.timedelta(microseconds=row["micros"])
            for row in sorted(rows, key=lambda row: int(row["version"]))
        }

    def _pattern(self, version: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(_GLOB.sub(r"\\\1", str(self._path(version).toString())))

    def _path(self, version: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, f"{version:020d}.json")

    def _text(self, version: int) -> str:
        glance = self._glance
        if glance is None:
            return self._read(version)
        text = glance.texts.get(version)
        if text is None:
            text = self._read(version)
            if len(text) <= _KEPT_CHARACTERS:
                glance.texts[version] = text
        return text

    def _read(self, version: int) -> str:
        return self._of_file(version, lambda stream: self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def _of_file(self, version: int, read: Callable[[Any], object]) -> str:
        try:
            with self._readable():
                stream = self._files.open(self._path(version))
                try:
                    return str(read(stream))
                finally:
                    stream.close()
        except VersionsExpired as error:
            raise missing_commits(self.location, [version]) from error


def _metadata_of(snapshot: Any) -> Metadata:
    return _metadata(json.loads(snapshot.metadata().json())["metaData"])


def _same(one: dt.datetime, other: dt.datetime) -> bool:
    """The time of one file, told twice: a storage may tell whole seconds when it is asked for a file, and more in a list."""
    if one.microsecond and other.microsecond:
        return one == other
    return one.replace(microsecond=0) == other.replace(microsecond=0)


def version_gone(table: str, version: int, condition: str | None = None) -> VersionsExpired:
    return VersionsExpired(
        f"version {version} of {table} can no longer be reconstructed from the log",
        hint="make the target anew from a snapshot, `deltarelay run --reload`; "
        "raise delta.logRetentionDuration so that commits last longer",
        condition=condition,
        version=version,
    )


def missing_commits(table: str, versions: list[int]) -> VersionsExpired:
    shown = ", ".join(map(str, versions[:5])) + (f" … {versions[-1]}" if len(versions) > 5 else "")
    return VersionsExpired(
        f"the commit files of version {shown} of {table} are gone: the changes in them cannot be read",
        hint="make the target anew from a snapshot, `deltarelay run --reload`; "
        "raise delta.logRetentionDuration so that commits last longer",
        versions=versions[:100],
    )


def parse_commit(version: int, text: str, modified: dt.datetime) -> Commit:
    """One commit file in our terms. ``modified`` is its time unless it carries an in-commit timestamp."""
    info: dict[str, Any] = {}
    metadata: Metadata | None = None
    change_sizes: list[int] = []
    file_sizes: list[int] = []
    # Not splitlines(): file statistics hold column values, and those may contain U+2028, U+0085 and their like.
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except ValueError as error:
            raise SourceError(
                f"the commit file of version {version} is damaged", hint="restore the file from a backup of the log"
            ) from error
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "metaData" in action:
            metadata = _metadata(action["metaData"])
        elif "cdc" in action:
            change_sizes.append(int(action["cdc"].get("size") or 0))
        elif (file := action.get("add") or action.get("remove")) and file.get("dataChange", True):
            file_sizes.append(int(file.get("size") or 0))
    # Where a commit has change files the feed reads those alone, else the added and removed files.
    read = change_sizes or file_sizes
    in_commit = info.get("inCommitTimestamp")
    return Commit(
        version=version,
        timestamp=modified if in_commit is None else _utc(int(in_commit)),
        operation=info.get("operation"),
        parameters=info.get("operationParameters") or {},
        user=info.get("userName") or info.get("userId"),
        user_metadata=info.get("userMetadata"),
        change_files=len(read),
        change_bytes=sum(read),
        atomic=bool(change_sizes),
        metadata=metadata,
    )


def _later(commit: Commit, timestamp: dt.datetime) -> Commit:
    from dataclasses import replace

    return replace(commit, timestamp=timestamp)


def _metadata(action: Mapping[str, Any]) -> Metadata:
    from pyspark.sql.types import StructType

    return Metadata(
        table_id=str(action["id"]),
        schema=StructType.fromJson(json.loads(action["schemaString"])),
        properties=dict(action.get("configuration") or {}),
    )


def _utc(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, tz=dt.UTC)
