"""What a plan and a run give back."""

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
    """``changes``, or how else the sink will take it in."""


@dataclass(frozen=True, slots=True)
class Plan(Result):
    pipeline: str
    table: str
    position: int | None
    last_version: int
    load_version: int | None
    """Set where the run would begin by copying the table at this version."""
    load_rows: int | None
    windows: tuple[PlannedWindow, ...]
    ddl: tuple[str, ...]
    problems: tuple[str, ...]
    """What would stop the run; empty means that it can go ahead."""
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
    """The version up to which this run was asked to go."""
    loaded_rows: int | None
    windows: int
    inserts: int
    updates: int
    deletes: int
    conflicts: Conflicts
    rejected: int
    """Rows that could not be stored, and were set aside; they are among the counts above."""
    copies: int
    """Windows that were taken in by copying the whole table, which was cheaper: their changes are not counted above."""
    ddl: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Followed(Result):
    """One durable step while a pipeline follows its table; also what a log line or a listener's record holds."""

    pipeline: str
    table: str
    at: dt.datetime
    kind: Literal["load", "window"]
    first: int
    last: int
    rows_in: int | None
    """Rows of the feed (of the table for a load); None where they could not be counted on the way."""
    rows_applied: int
    """Net changes for a state sink, changes for a history sink."""
    rows_per_second: float
    """``rows_applied`` over ``seconds["total"]``."""
    seconds: Mapping[str, float]
    """By step of the sink; ``total`` also has the planning of the window."""
    conflicts: Conflicts
    rejected: int
    """Rows that could not be stored, and were set aside; they are among ``rows_applied``."""
    ddl: tuple[str, ...]
    position: int
    latest_version: int
    lag_versions: int
    lag_seconds: float
    """Age of the oldest commit that is not applied yet; 0 when there is none."""
    query_id: str | None
    """With ``run_id`` and ``batch_id`` the ids of Spark's ``StreamingQueryProgress``; None while catching up."""
    run_id: str | None
    batch_id: int | None


FollowState = Literal["starting", "catching_up", "following", "waiting", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class FollowStatus(Result):
    """Where a pipeline that follows its table stands this moment."""

    pipeline: str
    table: str
    state: FollowState
    """``waiting``: something temporary is in the way and is tried again."""
    position: int | None
    lag_versions: int | None
    lag_seconds: float | None
    """Age of the oldest commit that is not applied, at this moment."""
    windows: int
    """Durable steps since it was started; ``rows_applied`` is the sum of theirs."""
    rows_applied: int
    queries: int
    """Streaming queries started so far."""
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
