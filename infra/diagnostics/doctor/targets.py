"""Checks of the targets, through their sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import SinkError, SinkUnavailable
from cdf.sink import Monitored, Tracked
from infra.diagnostics.delta_table import SourceTable
from infra.diagnostics.doctor.finding import Finding, failed, ok, skipped, warning
from infra.diagnostics.doctor.machine import Machine
from infra.diagnostics.preflight import has_key, inspect_target

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["check_clock", "check_target"]

_SKEW_SECONDS = 5.0


def check_target(project: Project, name: str, table: SourceTable | None) -> Finding:
    """Whether the target is reachable and ready for a run; without the source's columns only whether it is reachable."""
    try:
        if table is None or not has_key(table, project.pipeline(name).source.key):
            return _check_reachable(project, name)
        found = inspect_target(project, name, table)
    except SinkUnavailable as error:
        settings = f"connections.{project.pipeline(name).sink.connection}"
        fix = f"check that it is running and reachable from this machine, and that {settings} names the right one"
        return failed("target", error.message, fix, pipeline=name)
    if found.problems:
        fix = "correct this, or name another target; `deltarelay validate --connect` lists the problems and the DDL"
        return failed("target", "; ".join(found.problems), fix, pipeline=name)
    state = "empty" if found.position.version is None else f"at version {found.position.version}"
    if found.warnings:
        text = f"{state}; {'; '.join(found.warnings)}"
        return warning("target", text, "check that this is intended", pipeline=name)
    return ok("target", f"reachable and writable, {state}", pipeline=name)


def _check_reachable(project: Project, name: str) -> Finding:
    sink = project.build_sink(name)
    if not isinstance(sink, Tracked):
        return skipped("target", "cannot be checked without the columns of the source", pipeline=name)
    sink.position()
    return ok("target", "reachable; not checked further until the source is readable", pipeline=name)


def check_clock(machine: Machine, project: Project, name: str) -> Finding:
    """Lag in seconds is computed from both clocks. Leases use the clock of the target only."""
    sink = project.build_sink(name)
    if not isinstance(sink, Monitored):
        return skipped("clock", "this sink does not report the target's time", pipeline=name)
    before = machine.now()
    try:
        theirs = sink.now()
    except SinkError:
        return skipped("clock", "unknown while the target cannot be read", pipeline=name)
    after = machine.now()
    # the time of the round trip is not counted as a difference
    apart = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if apart <= _SKEW_SECONDS:
        return ok("clock", f"within {_SKEW_SECONDS:g} s of the target's", pipeline=name)
    side = "ahead of" if before > theirs else "behind"
    text = f"this machine's clock is {apart:,.0f} s {side} the target's"
    return warning(
        "clock",
        text,
        "synchronise both by NTP (timedatectl set-ntp true): the reported lag is wrong by this difference",
        pipeline=name,
    )
