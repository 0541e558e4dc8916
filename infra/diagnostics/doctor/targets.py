"""Checks of the targets, each through what its own sink offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import SinkError, SinkUnavailable
from cdf.sink import Monitored, Tracked
from infra.diagnostics.delta_table import SourceTable
from infra.diagnostics.doctor.finding import Finding, failed, ok, skipped, warning
from infra.diagnostics.doctor.machine import Machine
from infra.diagnostics.preflight import has_key, look_at_target

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["clock", "target"]

_SKEW_SECONDS = 5.0


def target(project: Project, name: str, table: SourceTable | None) -> Finding:
    """Can it be reached, and is everything there for a run? Without the table's columns only the first can be asked."""
    try:
        if table is None or not has_key(table, project.pipeline(name).source.key):
            return _reached(project, name)
        found = look_at_target(project, name, table)
    except SinkUnavailable as error:
        settings = f"connections.{project.pipeline(name).sink.connection}"
        fix = f"see whether it is up and can be reached from here, and whether {settings} names the right one"
        return failed("target", error.message, fix, pipeline=name)
    if found.problems:
        fix = "put that right, or name another target; `deltarelay validate --connect` lists it with the DDL"
        return failed("target", "; ".join(found.problems), fix, pipeline=name)
    stands = "empty" if found.position.version is None else f"at version {found.position.version}"
    if found.warnings:
        text = f"{stands}; {'; '.join(found.warnings)}"
        return warning("target", text, "see whether that is meant", pipeline=name)
    return ok("target", f"can be reached and written, {stands}", pipeline=name)


def _reached(project: Project, name: str) -> Finding:
    sink = project.build_sink(name)
    if not isinstance(sink, Tracked):
        return skipped("target", "cannot be looked at without the columns of the source", pipeline=name)
    sink.position()
    return ok("target", "can be reached; more can be said once the source is right", pipeline=name)


def clock(machine: Machine, project: Project, name: str) -> Finding:
    """Lag in seconds is told from both clocks. Leases are not: they live on the target's alone."""
    sink = project.build_sink(name)
    if not isinstance(sink, Monitored):
        return skipped("clock", "this sink does not tell the target's time", pipeline=name)
    before = machine.now()
    try:
        theirs = sink.now()
    except SinkError:
        return skipped("clock", "cannot be asked while the target cannot be read", pipeline=name)
    after = machine.now()
    # whatever the round trip took speaks for the clocks
    apart = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if apart <= _SKEW_SECONDS:
        return ok("clock", f"within {_SKEW_SECONDS:g} s of the target's", pipeline=name)
    side = "ahead of" if before > theirs else "behind"
    text = f"this machine's clock is {apart:,.0f} s {side} the target's"
    return warning(
        "clock", text, "set both by NTP (timedatectl set-ntp true): lag is told wrong by that", pipeline=name
    )
