"""Checks before the first durable step: everything that must be refused while nothing has been written yet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cdf.changes.keys import check_key
from cdf.changes.schema_diff import compare
from cdf.errors import FeedNotEnabled, TypeNotSupported, VersionNotFound, VersionsExpired
from cdf.sink import Inspection, Position, Tracked
from cdf.sink.guard import ERASURE, ErasureNotConfigured
from cdf.sink.schema_evolution import check_followed
from cdf.source.commit import missing_commits

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.commits import Metadata
    from cdf.pipeline.context import PipelineContext

__all__ = ["check_ahead", "expected_schema", "inspect"]


def inspect(context: PipelineContext, last: int) -> Inspection:
    """Check session, feed and key, then let the sink inspect its target for the schema at ``last``."""
    feed = context.feed
    context.check_session()
    feed.require_enabled()
    schema = feed.log.metadata(last).schema
    try:
        check_key(schema, context.key, feed.table)
    except TypeNotSupported:
        _check_history_of_key(context, last)
        raise
    found = context.sink.inspect(context.describe_source(schema))
    version = found.position.version
    if version is not None and last < version <= feed.log.latest(refresh=False):
        # The run ends before the position and changes nothing: the target rightly has the schema of its position
        schema = feed.log.metadata(version).schema
    expected = expected_schema(context, found.position, last)
    if compare(expected, schema) or (version is not None and last < version):
        found = context.sink.inspect(context.describe_source(schema, expected))
    return found


def _check_history_of_key(context: PipelineContext, last: int) -> None:
    """If a version before ``last`` renamed or dropped a key column: refuse that as schema drift, which names the version."""
    version = context.sink.position().version if isinstance(context.sink, Tracked) else None
    if version is None and context.has_initial_load():
        version = context.resolve_start_version()
    if version is not None and version < last:
        check_ahead(context, version + 1, last)


def expected_schema(context: PipelineContext, position: Position, last: int) -> StructType:
    """The schema that the target should have now, or will begin with, if the log still has it; else that at ``last``."""
    log = context.feed.log
    if position.table_id is not None and position.table_id != log.metadata().table_id:
        return log.metadata(last).schema  # of another table: ``check_position`` refuses it
    if position.version is None and not context.has_initial_load():
        return log.metadata(last).schema
    if position.version is not None and position.version > log.latest(refresh=False):
        return log.metadata(last).schema  # beyond the latest version: ``check_position`` refuses it
    version = min(context.resolve_start_version(), last) if position.version is None else position.version
    with suppress(VersionsExpired, VersionNotFound):
        return log.metadata(version).schema
    return log.metadata(last).schema


def check_ahead(context: PipelineContext, first: int, last: int, *, begins: bool = False) -> Metadata:
    """Refuse versions ahead that cannot be applied, before any of them is applied.

    Without a guard that includes an erasing commit: the changes before it hold rows of the erased persons.

    → the metadata before ``first``, or at ``first`` if a history ``begins`` there: its schema is no change then.
    """
    feed, log = context.feed, context.feed.log
    if missing := log.missing(first, last):
        raise missing_commits(feed.table, missing)
    if context.guard is None and (erasing := log.versions_naming(ERASURE, first, last)):
        raise _erasure_not_configured(context, erasing)
    now = log.metadata(first)
    before = now
    if not begins and first > 0:
        with suppress(VersionsExpired):  # the log may begin at ``first`` itself
            before = log.metadata(first - 1)
    if now.table_id == before.table_id and not now.feed_enabled:
        raise FeedNotEnabled(
            f"the change feed of {feed.table} was off at version {first}, where the changes would begin",
            hint="start from a later version: `deltarelay feed status` shows since when the feed is on",
            condition="DELTA_MISSING_CHANGE_DATA",
            version=first,
        )
    now = before
    for version, metadata in log.metadata_commits(first, last):
        if metadata.table_id != before.table_id:
            raise context.table_replaced(f"was replaced at version {version}")
        if not metadata.feed_enabled:
            raise FeedNotEnabled(
                f"version {version} of {feed.table} turned the change feed off: "
                "changes made while it is off are never recorded",
                hint=f"run with --until {version - 1} to apply everything before it; turn the feed on again, "
                f"then reload the target: `deltarelay run --reload -p {context.name}`",
                condition="DELTA_MISSING_CHANGE_DATA",
                version=version,
            )
        changes = compare(now.schema, metadata.schema)
        check_followed(changes, context.sink, table=feed.table, version=version, key=context.key)
        now = metadata
    return before


def _erasure_not_configured(context: PipelineContext, versions: Sequence[int]) -> ErasureNotConfigured:
    return ErasureNotConfigured(
        f"version {versions[0]} of {context.feed.table} is marked as an erasure of persons, and the pipeline {context.name} "
        "has no erasure register to check this: nothing was applied",
        hint="add the `erasure` block of the project that erases, with its register and keys, to this configuration; "
        "in Python, give the pipeline a `guard`",
        table=context.feed.table,
        versions=list(versions[:20]),
    )
