"""Positions moved by a user. ``plan_move`` refuses a move after which no run could continue; ``make_move`` makes it.

set      the target is known to equal another version than its position says. Forward: the changes between are skipped
rewind   back to an earlier version: its changes are applied again. Rows that they touch end as they were, because the
         last change of each key in v+1..w decides; until w is reached again, readers see keys of different versions
adopt    a target that no run has filled gets a position, after it was compared with the source
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cdf.changes.keys import check_key
from cdf.changes.schema_diff import ChangeKind, compare
from cdf.errors import ConfigError, PositionError, TargetNotReady, VerificationError, VersionNotFound, VersionsExpired
from cdf.pipeline.preflight import check_ahead
from cdf.result import Result
from cdf.sink import Movable, Position, Reloadable, Sink, Source
from cdf.verify.verify import verify

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.pipeline.context import PipelineContext

__all__ = ["Action", "Move", "plan_move", "make_move"]

Action = Literal["set", "rewind", "adopt"]


@dataclass(frozen=True, slots=True)
class Move(Result):
    pipeline: str
    table: str
    action: Action
    from_version: int | None
    to_version: int
    latest_version: int
    compared_rows: int | None
    """Rows that were found equal on both sides; None: nothing was compared."""
    _source: Source = field(repr=False)
    _before: Position = field(repr=False)
    _to: Position = field(repr=False)


def plan_move(context: PipelineContext, action: Action, version: int | None, *, compare: bool = True) -> Move:
    """Check a move. Writes nothing, takes no lease. ``version`` None is allowed for ``adopt`` only: the latest version."""
    log, sink = context.feed.log, context.sink
    if version is not None and version < 0:
        raise ConfigError(f"{version} is not a version", hint="versions are whole numbers from 0")
    if not isinstance(sink, Movable):
        raise TargetNotReady(
            f"the position of the sink of {context.name} cannot be moved", hint="use the sink's own tools"
        )
    context.feed.check_session()
    context.feed.require_enabled()
    latest = log.latest()
    to_version = latest if version is None else version
    if to_version > latest:
        raise VersionNotFound(
            f"{context.feed.table} has no version {to_version}; the latest is {latest}",
            hint=f"choose a version up to {latest}",
            latest=latest,
        )
    before = sink.standing(most_records=0).position
    _check_start(context, action, before, to_version)
    if before.version is not None:
        _check_columns(context, action, before.version, to_version)
    if to_version < latest:
        _check_readable(context, to_version + 1, latest)
    schema = log.metadata(latest).schema
    check_key(schema, context.key, context.feed.table)
    compared_rows = _compare(context, to_version) if action == "adopt" and compare else None
    return Move(
        pipeline=context.name,
        table=context.feed.table,
        action=action,
        from_version=before.version,
        to_version=to_version,
        latest_version=latest,
        compared_rows=compared_rows,
        _source=context.describe_source(schema, log.metadata(to_version).schema),
        _before=before,
        _to=Position(version=to_version, table_id=log.metadata(to_version).table_id),
    )


def make_move(sink: Sink, move: Move, *, reason: str | None = None) -> None:
    """Make a planned move. The sink refuses it if its position has changed since the plan."""
    assert isinstance(sink, Movable)  # plan_move has checked it
    sink.move(move._source, move._before, move._to, action=move.action, reason=reason)


def _check_start(context: PipelineContext, action: Action, before: Position, version: int) -> None:
    name = context.name
    if action == "adopt":
        if before.version is not None:
            raise PositionError(
                f"the target of {name} already has a position: version {before.version}",
                hint="`deltarelay position set` or `position rewind` moves it",
                position=before.version,
            )
        return
    if before.version is None:
        raise PositionError(
            f"the target of {name} has no position",
            hint=f"`deltarelay run -p {name}` fills an empty target; "
            f"`deltarelay position adopt -p {name}` takes over one that is filled",
        )
    if action == "rewind":
        context.check_position(before)
        if version >= before.version:
            raise ConfigError(
                f"the target of {name} is at version {before.version}: version {version} is not before that",
                hint="`deltarelay position set` moves a position forward",
            )


def _check_columns(context: PipelineContext, action: Action, before: int, after: int) -> None:
    """Refuse a move across a schema change, other than an added column: the target has the columns of its position."""
    log, name = context.feed.log, context.name
    first, last = sorted((before, after))
    now: StructType | None = None
    with suppress(VersionsExpired):  # then only as far back as the log goes
        now = log.metadata(first).schema
    for version, metadata in log.metadata_commits(first + 1, last):
        drift = [] if now is None else compare(now, metadata.schema)
        now = metadata.schema
        changes = [change.detail for change in drift if change.kind is not ChangeKind.ADD_COLUMN]
        if changes:
            raise PositionError(
                f"the target of {name} has the columns of version {before}, and version {version} of "
                f"{context.feed.table} did more than add columns ({'; '.join(changes)}): "
                f"`position {action}` to {after} would leave the target's columns as they are",
                hint=f"`deltarelay run --reload -p {name}` rebuilds the target with the present columns",
                position=before,
                version=version,
                changes=changes,
            )


def _check_readable(context: PipelineContext, first: int, last: int) -> None:
    """The next run must be able to read these versions: their commits, their schemas, and the files of their changes."""
    check_ahead(context, first, last)
    earliest = context.feed.status().earliest_version
    if earliest is None or first < earliest:
        raise VersionsExpired(
            f"the changes of version {first} of {context.feed.table} can no longer be read",
            hint=f"`deltarelay run --reload -p {context.name}` rebuilds the target from a snapshot",
            earliest=earliest,
        )


def _compare(context: PipelineContext, version: int) -> int:
    """Compare the target with the source at a version; → its rows. Raises VerificationError if they differ."""
    found = verify(context, at=version)
    if not found.equal:
        raise VerificationError(
            f"the target of {context.name} does not equal version {version} of {found.table}: {found.missing} rows "
            f"missing, {found.extra} extra, {found.different} different, {found.duplicate} keys twice in the source"
            + ("" if found.complete else " (in the part that was compared)"),
            hint="choose the version that it was filled from"
            + (
                f"; or `position adopt --no-verify`, then `deltarelay run --reload -p {context.name}` makes it equal"
                if isinstance(context.sink, Reloadable)
                else ""
            ),
            **{
                count: getattr(found, count)
                for count in ("source_rows", "target_rows", "missing", "extra", "different", "duplicate", "complete")
            },
        )
    return found.target_rows
