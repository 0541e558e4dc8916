"""A dry run: what a run would do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.changes.window import COUNTED, Window
from cdf.errors import CdfError, ConfigError
from cdf.lag import DEFAULT_RETENTION, RETENTION_PROPERTY, lag, parse_interval
from cdf.pipeline.heed_controls import HeededControls
from cdf.pipeline.preflight import inspect
from cdf.pipeline.windows import list_windows
from cdf.results import Plan, PlannedWindow
from cdf.sink import Position

if TYPE_CHECKING:
    from cdf.pipeline.context import PipelineContext

__all__ = ["make_plan"]


def make_plan(context: PipelineContext, until: int | str | dt.datetime | None) -> Plan:
    """Windows, counts per change type, DDL, problems and warnings. Problems are listed, not raised."""
    last = context.resolve_last_version(until)
    inspection = inspect(context, last)
    position = inspection.position
    problems = list(inspection.problems)
    windows: list[PlannedWindow] = []
    load_version: int | None = None
    load_rows: int | None = None
    try:
        context.check_position(position)
        if position.version is None and context.has_initial_load():
            load_version = min(context.resolve_start_version(), last)
            position = replace(position, version=load_version)
            load_rows = context.snapshot(load_version).count()
        controls, pending = HeededControls(context), position.pending
        controls.read()
        windows = [
            _plan_window(context, window, controls, is_begun=pending is not None and window.first == pending.first)
            for window in list_windows(context, position, last, ends_window=controls.ends_window)
        ]
    except ConfigError:
        raise
    except CdfError as error:
        problems.append(f"{error.message} ({error.hint})" if error.hint else error.message)
    return Plan(
        pipeline=context.name,
        table=context.feed.table,
        position=inspection.position.version,
        last_version=last,
        load_version=load_version,
        load_rows=load_rows,
        windows=tuple(windows),
        ddl=inspection.ddl,
        problems=tuple(problems),
        warnings=(*inspection.warnings, *_list_warnings(context, position, windows)),
    )


def _list_warnings(context: PipelineContext, position: Position, windows: Sequence[PlannedWindow]) -> list[str]:
    found: list[str] = []
    if conflicts := sum(window.conflicts for window in windows):
        found.append(
            f"{conflicts} changes contradict each other within their window: "
            f"the source held a key ({', '.join(context.key)}) more than once"
        )
    log = context.feed.log
    times = log.times()
    if position.version is not None and position.version + 1 in times:
        behind = lag(
            position=position.version,
            latest=log.latest(),
            oldest_unapplied=times[position.version + 1],
            retention=parse_interval(log.metadata().properties.get(RETENTION_PROPERTY, DEFAULT_RETENTION)),
            now=dt.datetime.now(dt.UTC),
        )
        if behind.feed_files_days is not None and behind.feed_files_days < 1:
            found.append(
                f"VACUUM may remove feed files that are still needed in {behind.feed_files_days} days: "
                f"run soon, or raise {RETENTION_PROPERTY}"
            )
    return found


def _plan_window(
    context: PipelineContext, window: Window, controls: HeededControls, *, is_begun: bool
) -> PlannedWindow:
    """``is_begun``: a window that is durable in part must be finished, so no brake stops it."""
    counts: dict[str, int] = {}
    net: dict[str, int] = {}
    conflicts = 0
    if window.has_changes:
        counts = window.count_changes()
        if context.sink.capabilities.holds == "state":
            found, conflicts = window.count_net()
            net = {kind: found[name] for name, kind in COUNTED.items() if found[name]}
    return PlannedWindow(
        first=window.first,
        last=window.last,
        commits=len(window.commits),
        change_bytes=window.change_bytes,
        changes=dict(sorted(counts.items())),
        net=dict(sorted(net.items())),
        conflicts=conflicts,
        columns=len(window.schema.fields),
        way=context.sink.way(window),
        stopped=None if is_begun or (stop := controls.find_stop(window)) is None else stop.message,
    )
