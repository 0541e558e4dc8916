"""The Delta log of one table: which commits exist, and what each of them did.

Delta's public reader shows what a version holds, not what a commit was. Windows need both. The silent traps of the batch
feed (it reads across missing commit files without an error) can only be detected here. Versions are ints, times are aware
datetimes in UTC.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from cdf.changes.columns import quote_name
from cdf.changes.commits import Commit, Metadata, Protocol
from cdf.errors import FeatureNotSupported, SourceError, TableNotFound, VersionsExpired
from cdf.session import has_delta_classes
from cdf.source.commit import missing_commits, parse_commit, parse_metadata, version_gone
from cdf.source.commit_files import CommitFiles
from cdf.source.log_readers import LatestVersion, LogFiles, LogListing, TableStates
from cdf.source.log_segments import find_latest
from cdf.source.public_files import PublicFiles
from cdf.source.public_states import PublicStates
from cdf.source.snapshots import DeltaSnapshots
from cdf.source.table_features import check_features

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableLog"]

_State = TypeVar("_State")
_STEPS = 50
"""So many commit files after the known version are looked for one by one; after that the log is listed."""
_FEW_SINCE = 10
_CACHED_CHARACTERS = 1 << 20
"""A larger commit file (an overwrite of many files) is read again instead of being cached."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(slots=True)
class _Cache:
    """What a block of ``cache_reads`` has read so far."""

    latest: int | None = None
    times: dict[int, dt.datetime | None] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)


class TableLog:
    """Reads the log at ``location``. Every call reads the storage again, except within ``cache_reads``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        if has_delta_classes(spark):
            self._assemble(location, CommitFiles(spark, location), DeltaSnapshots(spark, location))
        else:
            self._assemble(location, PublicFiles(spark, location), PublicStates(spark, location))

    def _assemble(self, location: str, files: LogFiles, snapshots: TableStates) -> None:
        self.location = location
        self._files = files
        self._snapshots = snapshots
        self._local = threading.local()
        self._known: LatestVersion | None = None

    @contextmanager
    def cache_reads(self) -> Iterator[None]:
        """Answer several questions about one moment: whatever was read once stays valid in the block, for this thread."""
        if self._cache is not None:
            yield
            return
        self._local.cache = _Cache()
        try:
            yield
        finally:
            self._local.cache = None

    @property
    def _cache(self) -> _Cache | None:
        return getattr(self._local, "cache", None)

    # ── the latest version ───────────────────────────────────────────────────────────────────────────────────────

    def latest(self, *, refresh: bool = True) -> int:
        """The latest version, as Delta reads the log. Delta lists the log; in a local folder the files' names may suffice.

        ``refresh=False`` continues from the known version, from commit file to commit file. Only Delta sees a version that
        another cluster has recorded in its lock table and not yet copied into the log.
        """
        cache = self._cache
        if refresh and cache is not None and cache.latest is not None:
            return cache.latest
        if refresh or (known := self._find_known()) is None:
            version = self._find_by_names()
            if version is None:
                version = self._update().version
            if cache is not None:
                cache.latest = version
            return version
        for version in range(known.version, known.version + _STEPS):
            if self._read_time(version + 1) is None:
                return version
        return self._update().version

    def _find_by_names(self) -> int | None:
        """What Delta would find, shown by the names in the log's folder and by the commit files after the known version.
        None: these are many, one of them changes the table's metadata or protocol, or the names do not suffice.

        Delta lists the size and time of each file, which takes the longer the longer the history is.
        """
        if (known := self._known) is None or (names := self._files.list_local_names()) is None:
            return None
        latest = find_latest(names, known.version)
        if latest is None or latest - known.version > _FEW_SINCE:
            return None
        self._forget_missing()
        time = known.time
        for version in range(known.version + 1, latest + 1):
            text, found = self._read_text(version), self._read_time(version)
            if found is None or '"metaData"' in text or '"protocol"' in text:
                return None
            time = found
        if not self._continues(known):  # the names may be those of a table that was created again
            return None
        self._known = replace(known, version=latest, time=time)
        return latest

    def exists(self) -> bool:
        """Whether there is a Delta table."""
        try:
            return self.latest() >= 0
        except TableNotFound:
            return False

    def _update(self) -> LatestVersion:
        """Let Delta read what is new. Raises FeatureNotSupported for a table that this reader would read wrongly."""
        known = self._snapshots.read_latest()
        check_features(known.protocol, known.metadata.properties, self.location)
        self._known = known
        self._forget_missing()
        return known

    def _forget_missing(self) -> None:
        """A file that did not exist a moment ago may exist now."""
        if (cache := self._cache) is not None:
            cache.times = {version: time for version, time in cache.times.items() if time is not None}

    def protocol(self) -> Protocol:
        """What the latest version demands of readers and writers."""
        return self._update().protocol

    def _find_known(self) -> LatestVersion | None:
        """The result of the last update, unless the table was created again or its log was cleaned up since."""
        known = self._known
        time = None if known is None else self._read_time(known.version)
        return known if known is not None and time is not None and _is_same_time(time, known.time) else None

    # ── states of the table ──────────────────────────────────────────────────────────────────────────────────────

    def metadata(self, version: int | None = None) -> Metadata:
        """The table's metadata, now or at a version. Not limited by the retention of deleted files."""
        latest = self.latest(refresh=False)
        version = latest if version is None else version
        known = self._known
        assert known is not None  # latest() has set it
        if known.version < version <= latest:
            if self._may_write_metadata(known.version + 1, version) or not self._continues(known):
                known = self._update()
            else:
                time = self._read_time(version)
                self._known = known = replace(known, version=version, time=time or known.time)
        if version <= known.version and not self._may_write_metadata(version + 1, known.version):
            return known.metadata
        return self._rebuild(self._snapshots.read_metadata, version)

    def _continues(self, known: LatestVersion) -> bool:
        """Whether the commits that were just read follow the known version. Call it after they were read, and without the
        cache: the table may have been created again between two of these reads."""
        time = self._files.read_time(known.version)
        return time is not None and _is_same_time(time, known.time)

    def _may_write_metadata(self, first: int, last: int) -> bool:
        """False if the commits are few and their files show that none writes metadata; True if it does or is unknown.

        Rebuilding an older state costs more than that, the more the longer the history is.
        """
        if last < first:
            return False
        found = self.files(first, last) if last - first < _FEW_SINCE else {}
        return len(found) <= last - first or bool(self._find_metadata(list(found)))

    def size_bytes(self, version: int) -> int:
        """Size of the files that make up the table at a version."""
        return self._rebuild(self._snapshots.read_size_bytes, version)

    def folder(self) -> str | None:
        """The table's folder with the scheme of its storage; None: this reader cannot tell."""
        return self._snapshots.find_folder()

    def plain_files(self, version: int, *, most: int) -> list[tuple[str, int]] | None:
        """Path and size of the files that hold the table's rows at a version as they are; None: see ``TableStates``."""
        return self._rebuild(lambda at: self._snapshots.read_plain_files(at, most=most), version)

    def _rebuild(self, read: Callable[[int], _State], version: int) -> _State:
        """Read a state. Delta has several errors, some without a condition, for one that the log can no longer rebuild."""
        try:
            return read(version)
        except (VersionsExpired, FeatureNotSupported):
            raise
        except SourceError as error:
            if self.listing().can_rebuild(version):
                raise
            raise version_gone(self.location, version, error.condition) from error

    def transaction(self, application: str) -> int | None:
        """The latest transaction version that writers with this ``txnAppId`` have written; None: none has."""
        return self._snapshots.read_transaction(application)

    def checkpoint(self) -> None:
        """Write a checkpoint of the latest version."""
        self._snapshots.write_checkpoint()

    def clean_up(self, *, at_once: bool = False) -> None:
        """Delete commit files and checkpoints that are older than the log's retention, up to a checkpoint of that age.

        Delta does this with its own checkpoints, in whole days; here it is done in minutes. ``at_once``: whatever their
        age, up to the newest checkpoint.
        """
        self._snapshots.clean_up(at_once=at_once)

    # ── commit files ─────────────────────────────────────────────────────────────────────────────────────────────

    def listing(self) -> LogListing:
        """Everything in the log's folder. The cost grows with the table's history; ``files`` reads a range only."""
        return self._files.list_log()

    def files(self, first: int, last: int) -> Mapping[int, dt.datetime]:
        """Version → modification time of the existing commit files of ``first..last``, ascending."""
        if last - first >= self._files.few:
            return {version: time for version, time in self.listing().times.items() if first <= version <= last}
        times = ((version, self._read_time(version)) for version in range(first, last + 1))
        return {version: time for version, time in times if time is not None}

    def missing(self, first: int, last: int) -> list[int]:
        """The versions of ``first..last`` whose commit file is gone."""
        found = self.files(first, last)
        return [version for version in range(first, last + 1) if version not in found]

    def sha256(self, version: int) -> str:
        """SHA-256 of a commit file, in hex. Raises VersionsExpired if the file is gone."""
        return self._files.compute_sha256(version)

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """The commits ``first..last``: a few are read at once, more are read one by one while they are consumed.

        Raises VersionsExpired, naming the versions, if a commit file of the range is missing.
        """
        files = self.files(first, last)
        if missing := [version for version in range(first, last + 1) if version not in files]:
            raise missing_commits(self.location, missing)
        found = self._parse_commits(first, last, files)
        return iter(list(found)) if last - first < _STEPS else found

    def _parse_commits(self, first: int, last: int, files: Mapping[int, dt.datetime]) -> Iterator[Commit]:
        previous: dt.datetime | None = None
        for version, text in self._read_texts(range(first, last + 1)):
            commit = parse_commit(version, text, files[version])
            # The latest state may no longer need a feature that the commits up to here were written with
            check_features(commit.protocol, commit.metadata.properties if commit.metadata else {}, self.location)
            # Delta's own rule: commit times never run backwards, whatever the files' clocks say
            if previous is not None and commit.timestamp <= previous:
                commit = replace(commit, timestamp=previous + dt.timedelta(milliseconds=1))
            previous = commit.timestamp
            yield commit

    def metadata_commits(self, first: int, last: int) -> list[tuple[int, Metadata]]:
        """The commits of ``first..last`` that write metadata, ascending. Missing commit files are skipped."""
        return self._find_metadata(list(self.files(first, last)))

    def _find_metadata(self, versions: list[int]) -> list[tuple[int, Metadata]]:
        if len(versions) <= self._files.few:
            pairs = [(version, self._read_text(version)) for version in versions]
            return [
                (version, commit.metadata)
                for version, text in pairs
                if '"metaData"' in text and (commit := parse_commit(version, text, _EPOCH)).metadata is not None
            ]
        actions = self._files.find_actions(versions, "metaData")
        found = [(version, parse_metadata(action)) for version, action in actions]
        return sorted(found, key=lambda pair: pair[0])

    def versions_naming(self, word: str, first: int, last: int) -> list[int]:
        """The commits of ``first..last`` whose ``userMetadata`` has the word, ascending. Missing files are skipped."""
        versions = list(self.files(first, last))
        if len(versions) <= self._files.few:
            texts = ((version, self._read_text(version)) for version in versions)
            found = [
                (version, parse_commit(version, text, _EPOCH).user_metadata) for version, text in texts if word in text
            ]
        else:
            actions = self._files.find_actions(versions, "commitInfo", containing=word)
            found = [(version, info.get("userMetadata")) for version, info in actions]
        return sorted(version for version, metadata in found if word in str(metadata))

    def times(self) -> Mapping[int, dt.datetime]:
        """Commit time by version, for the versions whose commit file exists, computed as Delta computes it."""
        if self.metadata().has_commit_times:
            return self._read_in_commit_times()
        adjusted: dict[int, dt.datetime] = {}
        previous: dt.datetime | None = None
        for version, time in self.listing().times.items():
            if previous is not None and time <= previous:
                time = previous + dt.timedelta(milliseconds=1)
            adjusted[version] = previous = time
        return adjusted

    def file_times(self, first: int, last: int) -> Mapping[int, dt.datetime]:
        """The times of ``first..last`` as the feed has them, if they are those of the commit files."""
        return self._snapshots.read_file_times(first, last)

    def _read_in_commit_times(self) -> Mapping[int, dt.datetime]:
        from pyspark.sql import functions as F

        history = self._spark.sql(f"describe history delta.{quote_name(self.location)}")
        rows = history.select("version", F.unix_micros("timestamp").alias("micros")).collect()
        return {
            int(row["version"]): _EPOCH + dt.timedelta(microseconds=row["micros"])
            for row in sorted(rows, key=lambda row: int(row["version"]))
        }

    def _read_time(self, version: int) -> dt.datetime | None:
        cache = self._cache
        if cache is not None and version in cache.times:
            return cache.times[version]
        time = self._files.read_time(version)
        if cache is not None:
            cache.times[version] = time
        return time

    def _read_texts(self, versions: Sequence[int]) -> Iterator[tuple[int, str]]:
        if len(versions) > self._files.few:
            return self._files.read_texts(versions)
        return ((version, self._read_text(version)) for version in versions)

    def _read_text(self, version: int) -> str:
        cache = self._cache
        if cache is None:
            return self._files.read_text(version)
        text = cache.texts.get(version)
        if text is None:
            text = self._files.read_text(version)
            if len(text) <= _CACHED_CHARACTERS:
                cache.texts[version] = text
        return text


def _is_same_time(one: dt.datetime, other: dt.datetime) -> bool:
    """Compare two readings of one file's time: a storage may round to seconds for a single file, but not in a listing."""
    if one.microsecond and other.microsecond:
        return one == other
    return one.replace(microsecond=0) == other.replace(microsecond=0)
