"""Positions moved by a person. ``plan_move`` refuses what no run could go on from; ``make_move`` does what it said.

set      the target is known to equal another version than its position says. Forward, changes are never applied
rewind   back to a version before: its changes are applied again. What they touch ends as it was, because the last
         change of each key in v+1..w decides; until w is reached again, readers see keys of different versions
adopt    a target that no run has filled is taken over at a version, after it was compared with the source
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cdf.changes.keys import check_key
from cdf.changes.schema_diff import ChangeKind, compare
from cdf.errors import ConfigError, PositionError, TargetNotReady, VerificationError, VersionNotFound, VersionsExpired
from cdf.result import Result
from cdf.sink import Movable, Position, Reloadable, Source
from cdf.verify.verify import verify

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.pipeline.pipeline import Pipeline

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
    """Rows that were found equal on both sides; None where nothing was compared."""
    _source: Source = field(repr=False)
    _before: Position = field(repr=False)
    _to: Position = field(repr=False)


def plan_move(pipeline: Pipeline, action: Action, version: int | None, *, compare: bool = True) -> Move:
    """What the move would do. Writes nothing, takes no lease. Only ``adopt`` may leave out the version: the latest."""
    log, sink = pipeline.feed.log, pipeline.sink
    if version is not None and version < 0:
        raise ConfigError(f"{version} is not a version", hint="versions are whole numbers from 0")
    if not isinstance(sink, Movable):
        raise TargetNotReady(
            f"the sink of {pipeline.name} keeps its position to itself", hint="use the sink's own means"
        )
    pipeline.feed.check_session()
    pipeline.feed.require_enabled()
    latest = log.latest()
    to_version = latest if version is None else version
    if to_version > latest:
        raise VersionNotFound(
            f"{pipeline.feed.table} has no version {to_version}; the latest is {latest}",
            hint=f"choose a version up to {latest}",
            latest=latest,
        )
    before = sink.standing(most_records=0).position
    _check_start(pipeline, action, before, to_version)
    if before.version is not None:
        _check_columns(pipeline, action, before.version, to_version)
    if to_version < latest:
        _check_readable(pipeline, to_version + 1, latest)
    schema = log.metadata(latest).schema
    check_key(schema, pipeline.key, pipeline.feed.table)
    compared = _compared(pipeline, to_version) if action == "adopt" and compare else None
    return Move(
        pipeline=pipeline.name,
        table=pipeline.feed.table,
        action=action,
        from_version=before.version,
        to_version=to_version,
        latest_version=latest,
        compared_rows=compared,
        _source=pipeline.source(schema, log.metadata(to_version).schema),
        _before=before,
        _to=Position(version=to_version, table_id=log.metadata(to_version).table_id),
    )


def make_move(pipeline: Pipeline, move: Move, *, reason: str | None = None) -> None:
    """Do what the plan says; refused where the position is not any more what the plan began with."""
    sink = pipeline.sink
    assert isinstance(sink, Movable)  # plan_move has looked
    sink.move(move._source, move._before, move._to, action=move.action, reason=reason)


def _check_start(pipeline: Pipeline, action: Action, before: Position, version: int) -> None:
    name = pipeline.name
    if action == "adopt":
        if before.version is not None:
            raise PositionError(
                f"the target of {name} has a position already: it stands at version {before.version}",
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
        pipeline.check_position(before)
        if version >= before.version:
            raise ConfigError(
                f"the target of {name} stands at version {before.version}: version {version} is no way back",
                hint="`deltarelay position set` moves a position forward",
            )


def _check_columns(pipeline: Pipeline, action: Action, before: int, after: int) -> None:
    """A target has the columns of its position. Those that were added since may be there already: nothing else may."""
    log, name = pipeline.feed.log, pipeline.name
    first, last = sorted((before, after))
    now: StructType | None = None
    with suppress(VersionsExpired):  # then as far back as the log goes
        now = log.metadata(first).schema
    for version, metadata in log.metadata_commits(first + 1, last):
        drift = [] if now is None else compare(now, metadata.schema)
        now = metadata.schema
        changes = [change.detail for change in drift if change.kind is not ChangeKind.ADD_COLUMN]
        if changes:
            raise PositionError(
                f"the target of {name} has the columns of version {before}, and version {version} of "
                f"{pipeline.feed.table} changed others than by adding some ({'; '.join(changes)}): "
                f"`position {action}` to {after} would leave them as they are",
                hint=f"`deltarelay run --reload -p {name}` makes the target anew, with the columns of today",
                position=before,
                version=version,
                changes=changes,
            )


def _check_readable(pipeline: Pipeline, first: int, last: int) -> None:
    """The next run has to read these versions: their commits, their schemas, and the files of their changes."""
    pipeline.check_ahead(first, last)
    earliest = pipeline.feed.status().earliest_version
    if earliest is None or first < earliest:
        raise VersionsExpired(
            f"the changes of version {first} of {pipeline.feed.table} can no longer be read",
            hint=f"`deltarelay run --reload -p {pipeline.name}` makes the target anew from a snapshot",
            earliest=earliest,
        )


def _compared(pipeline: Pipeline, version: int) -> int:
    found = verify(pipeline, at=version)
    if not found.equal:
        raise VerificationError(
            f"the target of {pipeline.name} does not equal version {version} of {found.table}: {found.missing} rows "
            f"missing, {found.extra} extra, {found.different} different, {found.duplicate} keys twice in the source"
            + ("" if found.complete else " (in the part that was compared)"),
            hint="choose the version that it was filled from"
            + (
                f"; or `position adopt --no-verify`, then `deltarelay run --reload -p {pipeline.name}` makes it equal"
                if isinstance(pipeline.sink, Reloadable)
                else ""
            ),
            **{
                count: getattr(found, count)
                for count in ("source_rows", "target_rows", "missing", "extra", "different", "duplicate", "complete")
            },
        )
    return found.target_rows
