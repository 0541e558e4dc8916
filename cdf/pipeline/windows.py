"""The windows of a run: whole commits with one schema each, from the sink's position to the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdf.changes.row_count import counted
from cdf.changes.schema_diff import compare, same_names_in_files
from cdf.changes.window import Commit, Limits, Window, cut
from cdf.pipeline.preflight import check_ahead
from cdf.source.batch_reader import check_commits

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Metadata
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
    context: PipelineContext, position: Position, last: int, checked: CheckedRange | None = None
) -> Iterator[Window]:
    """The windows after the position. A pending window comes first, with exactly its recorded bounds.

    The range is checked before its first window is returned, unless it was ``checked`` already.
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
        yield from _list_range(context, first, last, context.limits, begins=begins, checked=checked)


def _list_range(
    context: PipelineContext,
    first: int,
    last: int,
    limits: Limits | None,
    *,
    begins: bool,
    checked: CheckedRange | None,
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
        return limits is not None and bool(context.find_erasures((commit,)))

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
    first, last = commits[0].version, commits[-1].version
    if erased := context.find_erasures(commits):
        commits = tuple(replace(commit, erasing=commit.version in erased) for commit in commits)
    window = context.feed.window(
        commits,
        schema,
        table_id=table_id,
        key=context.key,
        confirm=lambda: _confirm(context, first, last, table_id),
        drift=drift,
        # The guard checks the copy as well: the table may have rows that were left out of an earlier window
        whole=lambda: context.apply_guard(context.snapshot(last)),
        table_bytes=lambda: context.feed.log.size_bytes(last),
    )
    return counted(window)


def _confirm(context: PipelineContext, first: int, last: int, table_id: str) -> None:
    check_commits(context.feed, first, last)
    if context.feed.log.metadata().table_id != table_id:
        raise context.table_replaced("became another table while its changes were being read")
