"""Whole commits, and how they are grouped into windows.

``cut`` decides where one window ends and the next begins. It is a pure function of the commits. A commit is never divided,
unlike in Delta's own stream, which may deliver an overwrite in several micro-batches, the inserts first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Commit", "Limits", "Metadata", "Protocol", "cut"]

_BOTH_IMAGES = ("Apache-Spark/", "Databricks-Runtime/")
"""Writers, by the beginning of their names, that record both images of every update: Delta itself."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's metadata at one version."""

    table_id: str
    schema: StructType
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def feed_enabled(self) -> bool:
        return self.properties.get("delta.enableChangeDataFeed", "false").lower() == "true"

    @property
    def has_commit_times(self) -> bool:
        """Whether commits contain their time (in-commit timestamps); otherwise it is that of the commit file."""
        return self.properties.get("delta.enableInCommitTimestamps", "false").lower() == "true"


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a reader and a writer must support."""

    min_reader: int
    min_writer: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the source, as described by its commit file; also a commit that changes no row."""

    version: int
    timestamp: dt.datetime
    operation: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    user: str | None = None
    user_metadata: str | None = None
    change_files: int = 0
    change_bytes: int = 0
    """Size of the files that the feed reads for this commit; 0 for a commit that changes no row."""
    deleted_rows: int | None = None
    """How many rows the commit deleted, as its writer recorded it; None: it recorded nothing."""
    rows_before: int = 0
    """The table had at least so many rows before the commit: those of the files that it wrote, without inserted ones."""
    atomic: bool = False
    """The commit wrote change files (``cdc`` actions): Delta's stream never delivers a part of it."""
    metadata: Metadata | None = None
    """Set if the commit writes new table metadata, even if only a property changed."""
    protocol: Protocol | None = None
    """Set if the commit changes what readers or writers must support."""
    engine: str | None = None
    """The program that wrote the commit, as it names itself."""
    erasing: bool = False
    """The commit erased persons, according to the pipeline's guard: a history must not keep its rows' old values."""
    plain_files: tuple[str, ...] | None = None
    """Paths, below the table's folder, of the Parquet files that hold exactly the commit's changes; None: Delta computes the
    changes, or reads a part of them from the log, or there are too many files."""

    @property
    def may_lack_images(self) -> bool:
        """Whether an update's old or new image may be missing: the commit wrote change files, and not by Delta itself."""
        return self.atomic and not (self.engine or "").startswith(_BOTH_IMAGES)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one window may hold. A commit above the limit forms its own window."""

    max_commits: int = 500
    max_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.max_commits < 1 or self.max_bytes < 1:
            raise ConfigError("window limits must be at least 1", hint="set max_commits and max_bytes to 1 or more")


def cut(
    commits: Iterable[Commit],
    limits: Limits,
    *,
    starts_segment: Callable[[Commit], bool],
    ends_segment: Callable[[Commit], bool] = lambda _: False,
) -> Iterator[tuple[Commit, ...]]:
    """Group consecutive commits into windows.

    A new window starts at a commit for which ``starts_segment`` is true (a schema change: that commit's rows already have
    the new schema), after a commit for which ``ends_segment`` is true (it erased persons: the target must reach that state),
    and before a commit that would exceed a limit. Commits are consumed lazily, at most one beyond the window.
    """
    group: list[Commit] = []
    size = 0
    for commit in commits:
        full = len(group) >= limits.max_commits or size + commit.change_bytes > limits.max_bytes
        # starts_segment is called for every commit, in order: it may keep the current schema as its state
        border = starts_segment(commit)
        if group and (full or border or ends_segment(group[-1])):
            yield tuple(group)
            group, size = [], 0
        group.append(commit)
        size += commit.change_bytes
    if group:
        yield tuple(group)
