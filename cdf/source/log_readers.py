"""What ``TableLog`` needs to read a Delta log: two protocols, and the values that they return.

Two implementations have the same tests. ``commit_files`` and ``snapshots`` use Spark's Hadoop file system and Delta's own
classes, and are fast. ``public_files`` and ``public_states`` use Spark's public API only: they work over Spark Connect, and
where Delta's classes have other names.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface

from cdf.changes.commits import Metadata, Protocol
from cdf.errors import SourceError

__all__ = ["LatestVersion", "LogFiles", "LogListing", "TableStates", "match_action"]


def match_action(*kinds: str) -> str:
    """A regular expression for the lines of a commit file with an action of these kinds: JSON may contain spaces."""
    return rf'^\s*\{{\s*"({"|".join(kinds)})"'


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

    def can_rebuild(self, version: int) -> bool:
        """Whether the table's state at a version can be rebuilt: all commits since a checkpoint, or since the first one."""
        base = max((found for found in self.checkpoints if found <= version), default=-1)
        return not self.missing(base + 1, version)

    def missing(self, first: int, last: int) -> list[int]:
        return [version for version in range(first, last + 1) if version not in self.times]

    @property
    def gaps(self) -> tuple[int, ...]:
        """Missing versions between the oldest and the newest commit file."""
        return tuple(self.missing(min(self.times), max(self.times))) if self.times else ()


@dataclass(frozen=True, slots=True)
class LatestVersion:
    """The table as Delta last read it."""

    version: int
    time: dt.datetime
    """Modification time of that version's commit file."""
    metadata: Metadata
    protocol: Protocol


class LogFiles(Interface):
    """Lists and reads the commit files of one table. Every call reads the storage."""

    few: int
    """Up to this many commit files are read one by one; for more, one request for all of them is faster."""

    def list_log(self) -> LogListing:
        """List the whole log folder. The cost grows with the table's history."""

    def list_local_names(self) -> Collection[str] | None:
        """The names of the files in the log folder; None: they take as long to list as ``list_log``, or are not enough to
        know which commits there are."""
        return None

    def read_time(self, version: int) -> dt.datetime | None:
        """The modification time of a commit file; None: the file does not exist."""

    def read_text(self, version: int) -> str:
        """A commit file's content. Raises VersionsExpired if the file is gone."""

    def read_texts(self, versions: Sequence[int]) -> Iterator[tuple[int, str]]:
        """The content of these commit files, in this order, read while it is consumed."""
        for version in versions:
            yield version, self.read_text(version)

    def compute_sha256(self, version: int) -> str:
        """A commit file's SHA-256 in hex. Raises VersionsExpired if the file is gone."""

    def find_actions(self, versions: list[int], kind: str, containing: str = "") -> list[tuple[int, Any]]:
        """The actions of one kind in these commit files, with their versions, by one Spark job.

        Reading thousands of commit files one by one takes tens of seconds.
        """


class TableStates(Interface):
    """The states of one table. Each version that the log can no longer rebuild raises VersionsExpired."""

    def read_latest(self) -> LatestVersion:
        """The latest version as Delta reads it. Lists the log: the cost grows with the table's history."""

    def read_metadata(self, version: int) -> Metadata: ...

    def read_size_bytes(self, version: int) -> int:
        """Size of the files that make up the table at a version."""

    def find_folder(self) -> str | None:
        """The table's folder with the scheme of its storage; None: this reader cannot tell."""
        return None

    def read_plain_files(self, version: int, *, most: int) -> list[tuple[str, int]] | None:  # noqa: ARG002
        """Path and size of each file of the table at a version. None if the files alone are not the table (deletion
        vectors, values in paths, renamed columns), if there are more than ``most``, or if this reader cannot tell."""
        return None

    def read_file_times(self, first: int, last: int) -> Mapping[int, dt.datetime]:
        """The commit times that Delta computes from the commit files' times: they never go backwards. Raises SourceError if
        this reader cannot tell."""
        raise SourceError(f"the commit times of {first} to {last} are unknown", hint="read the feed with Spark")

    def read_transaction(self, application: str) -> int | None:
        """The latest transaction version of an application; None: it has written none."""

    def write_checkpoint(self) -> None: ...

    def clean_up(self, *, at_once: bool) -> None: ...
