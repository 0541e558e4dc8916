"""The windows of a run: whole commits with one schema each, from the sink's position to the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdf.changes.commits import Commit, Limits, cut
from cdf.changes.row_count import count_rows
from cdf.changes.schema_diff import compare, same_names_in_files
from cdf.changes.window import Snapshot, Window, WindowSource
from cdf.pipeline.preflight import check_ahead
from cdf.source.batch_reader import check_commits

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.commits import Metadata
    from cdf.changes.schema_diff import SchemaChange
    from cdf.pipeline.context import PipelineContext
    from cdf.sink import Position

__all__ = ["CheckedRange", "list_windows"]


@dataclass(frozen=True, slots=True)
class CheckedRange:
    """A range that ``check_ahead`` has accepted, and the metadata before it."""

    first: int
    last: int
    before: Metadata


def list_windows(
    context: PipelineContext,
    position: Position,
    last: int,
    checked: CheckedRange | None = None,
    *,
    ends_window: Callable[[int], bool] = lambda _: False,
) -> Iterator[Window]:
    """The windows after the position. A pending window comes first, with exactly its recorded bounds.

    The range is checked before its first window is returned, unless it was ``checked`` already. A window ends with each
    version for which ``ends_window`` is true.
    """
    if position.pending is not None:
        pending = position.pending
        begins = position.version is None
        yield from _list_range(context, pending.first, pending.last, None, begins=begins, checked=checked)
        first = pending.last + 1
        position = replace(position, version=pending.last)  # the next window does not begin the history
    else:
        first = context.resolve_start_version() if position.version is None else position.version + 1
    if first <= last:
        begins = position.version is None
        yield from _list_range(
            context, first, last, context.limits, begins=begins, checked=checked, ends_window=ends_window
        )


def _list_range(
    context: PipelineContext,
    first: int,
    last: int,
    limits: Limits | None,
    *,
    begins: bool,
    checked: CheckedRange | None,
    ends_window: Callable[[int], bool] = lambda _: False,
) -> Iterator[Window]:
    """``limits``: None if the range is one window already."""
    with context.feed.log.cache_reads():
        if checked is not None and (checked.first, checked.last) == (first, last):
            before = checked.before
        else:
            before = check_ahead(context, first, last, begins=begins)
        ahead = context.feed.log.commits(first, last)
    schema = before.schema

    def starts_segment(commit: Commit) -> bool:
        nonlocal schema
        if commit.metadata is None:
            return False
        older, schema = schema, commit.metadata.schema
        return bool(compare(older, schema)) or not same_names_in_files(older, schema)

    def ends_segment(commit: Commit) -> bool:
        return limits is not None and (ends_window(commit.version) or bool(context.find_erasures((commit,))))

    current, most = schema, limits or Limits(2**62, 2**62)
    for commits in cut(ahead, most, starts_segment=starts_segment, ends_segment=ends_segment):
        previous = current
        for commit in commits:
            if commit.metadata is not None:
                current = commit.metadata.schema
        yield _build_window(context, commits, current, before.table_id, drift=tuple(compare(previous, current)))


def _build_window(
    context: PipelineContext,
    commits: tuple[Commit, ...],
    schema: StructType,
    table_id: str,
    *,
    drift: tuple[SchemaChange, ...],
) -> Window:
    if erased := context.find_erasures(commits):
        commits = tuple(replace(commit, erasing=commit.version in erased) for commit in commits)
    window = context.feed.window(
        commits,
        schema,
        table_id=table_id,
        key=context.key,
        drift=drift,
        source=_FeedSource(context, commits[0].version, commits[-1].version, table_id),
    )
    return count_rows(window)


@dataclass(frozen=True, slots=True)
class _FeedSource(WindowSource):
    """The versions ``first..last`` of a pipeline's table."""

    context: PipelineContext
    first: int
    last: int
    table_id: str

    @property
    def has_snapshot(self) -> bool:
        return True

    def snapshot(self) -> Snapshot:
        # The guard checks the copy as well: the table may have rows that were left out of an earlier window
        return self.context.apply_guard(self.context.snapshot(self.last))

    def table_bytes(self) -> int:
        return self.context.feed.log.size_bytes(self.last)

    def commit_sha256(self, version: int) -> str:
        return self.context.feed.log.sha256(version)

    def confirm(self) -> None:
        check_commits(self.context.feed, self.first, self.last)
        if self.context.feed.log.metadata().table_id != self.table_id:
            raise self.context.table_replaced("became another table while its changes were being read")
