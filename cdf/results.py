"""The results of plans, runs and following."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cdf.result import Result
from cdf.sink import Applied, Conflicts

__all__ = ["Followed", "FollowState", "FollowStatus", "Plan", "PlannedWindow", "RunResult", "Step", "Totals"]


@dataclass(frozen=True, slots=True)
class PlannedWindow(Result):
    first: int
    last: int
    commits: int
    change_bytes: int
    changes: Mapping[str, int]
    """Rows of the feed by change type."""
    net: Mapping[str, int]
    """Net changes by kind; empty for a sink that holds history."""
    conflicts: int
    columns: int
    way: str
    """The strategy by which the sink will apply the window: ``changes``, or one of its own."""
    stopped: str | None = None
    """Why a brake would stop the window; None: it would be applied."""


@dataclass(frozen=True, slots=True)
class Plan(Result):
    pipeline: str
    table: str
    position: int | None
    last_version: int
    load_version: int | None
    """The version at which the run would first load the table; None: no load."""
    load_rows: int | None
    windows: tuple[PlannedWindow, ...]
    ddl: tuple[str, ...]
    problems: tuple[str, ...]
    """Everything that would stop the run; empty: the run can start."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step(Result):
    """One durable step of a run."""

    kind: Literal["load", "window"]
    first: int
    last: int
    until: int
    """The version at which this run will stop."""
    applied: Applied


@dataclass(frozen=True, slots=True)
class RunResult(Result):
    pipeline: str
    table: str
    position: int | None
    latest_version: int
    """The version at which this run was to stop."""
    loaded_rows: int | None
    windows: int
    inserts: int
    updates: int
    deletes: int
    conflicts: Conflicts
    rejected: int
    """Rows that could not be stored and became dead letters; they are included in the counts above."""
    copies: int
    """Windows applied by copying the whole table, which was cheaper: their changes are not counted above."""
    ddl: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Followed(Result):
    """One durable step while a pipeline follows its table; log lines and stored figures have the same fields."""

    pipeline: str
    table: str
    at: dt.datetime
    kind: Literal["load", "window"]
    first: int
    last: int
    rows_in: int | None
    """Rows of the feed (of the table for a load); None: they could not be counted while they were read."""
    rows_applied: int
    """Net changes for a state sink, changes for a history sink."""
    rows_per_second: float
    """``rows_applied`` over ``seconds["total"]``."""
    seconds: Mapping[str, float]
    """By step of the sink; ``total`` includes planning the window."""
    conflicts: Conflicts
    rejected: int
    """Rows that could not be stored and became dead letters; they are included in ``rows_applied``."""
    ddl: tuple[str, ...]
    position: int
    latest_version: int
    lag_versions: int
    lag_seconds: float
    """Age of the oldest commit that is not applied yet; 0 if all are applied."""
    query_id: str | None
    """``query_id``, ``run_id`` and ``batch_id`` are those of Spark's ``StreamingQueryProgress``, in ``foreach_batch``."""
    run_id: str | None
    batch_id: int | None
    inserts: int = 0
    updates: int = 0
    deletes: int = 0


FollowState = Literal[
    "starting", "catching_up", "following", "waiting", "paused", "stopped_by_brake", "stopped", "failed"
]


@dataclass(frozen=True, slots=True)
class FollowStatus(Result):
    """State, position and lag of a pipeline that follows its table, at one moment."""

    pipeline: str
    table: str
    state: FollowState
    """``waiting``: a temporary error occurred and the step will be retried. ``paused`` and ``stopped_by_brake``: a user
    has to decide."""
    position: int | None
    lag_versions: int | None
    lag_seconds: float | None
    """Age of the oldest commit that is not applied yet."""
    windows: int
    """Durable steps since the start; ``rows_applied`` is their sum."""
    rows_applied: int
    last: Followed | None
    code: str | None
    error: str | None


@dataclass(slots=True)
class Totals:
    """Adds up the steps of a run."""

    loaded_rows: int | None = None
    windows: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    conflicts: Conflicts = field(default_factory=Conflicts)
    rejected: int = 0
    copies: int = 0
    ddl: list[str] = field(default_factory=list)

    def add(self, step: Step) -> None:
        applied = step.applied
        self.ddl.extend(applied.ddl)
        self.rejected += applied.rejected
        self.copies += applied.copied is not None and step.kind == "window"
        self.conflicts = self.conflicts + applied.conflicts
        if step.kind == "load":
            self.loaded_rows = applied.inserts
            return
        self.windows += 1
        self.inserts += applied.inserts
        self.updates += applied.updates
        self.deletes += applied.deletes

    def result(self, pipeline: str, table: str, position: int | None, until: int, seconds: float) -> RunResult:
        return RunResult(
            pipeline=pipeline,
            table=table,
            position=position,
            latest_version=until,
            loaded_rows=self.loaded_rows,
            windows=self.windows,
            inserts=self.inserts,
            updates=self.updates,
            deletes=self.deletes,
            conflicts=self.conflicts,
            rejected=self.rejected,
            copies=self.copies,
            ddl=tuple(self.ddl),
            seconds=round(seconds, 3),
        )
