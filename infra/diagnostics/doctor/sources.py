"""Checks of the source tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import FeedNotEnabled, SinkError, SinkUnavailable, TableNotFound, TargetNotReady
from cdf.lag import RETENTION_PROPERTY
from infra.diagnostics.delta_table import SourceTable, explain_spark_only
from infra.diagnostics.doctor.finding import Finding, failed, ok, skipped, warning
from infra.diagnostics.doctor.machine import Machine
from infra.diagnostics.preflight import find_source_problems
from infra.diagnostics.status import read_pipeline_status

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["check_retention", "check_source"]

_SOON_DAYS = 2.0
_REPORTED_ELSEWHERE = {
    kind.code for kind in (SinkError, SinkUnavailable, TargetNotReady, TableNotFound, FeedNotEnabled)
}
_LONGER = f"retain its files longer ({RETENTION_PROPERTY})"


def check_source(address: str, key: tuple[str, ...], table: SourceTable | None, *, name: str) -> Finding:
    if table is None:
        text = f"{address} {explain_spark_only(address)}: only Spark can read it"
        return skipped("source", text, "check it with `deltarelay plan`, which starts Spark", pipeline=name)
    problems = find_source_problems(table, key)
    if problems:
        found = "; ".join(one.message for one in problems)
        return failed("source", found, "; ".join(one.fix for one in problems), pipeline=name)
    return ok("source", f"{address} is at version {table.version}, its change feed is on", pipeline=name)


def check_retention(machine: Machine, project: Project, name: str) -> Finding:
    """Whether VACUUM may remove feed files that are still needed."""
    status = read_pipeline_status(project, name, now=machine.now())
    if status.code is not None:
        if status.code in _REPORTED_ELSEWHERE:
            return skipped("retention", "unknown while source or target cannot be read", pipeline=name)
        return failed("retention", status.error or "", status.hint or "", pipeline=name)
    if status.state in ("empty", "unknown"):
        text = "nothing is applied yet" if status.state == "empty" else "the sink does not report its position"
        return ok("retention", text, pipeline=name)
    days, behind = status.feed_files_days, f"{status.lag_versions} versions behind"
    if days is None:
        return ok("retention", "up to date" if not status.lag_versions else behind, pipeline=name)
    if days < 0:
        text = f"{behind}; for {-days:g} days VACUUM has been able to remove feed files that are still needed"
        fix = (
            f"run `deltarelay run` before the next VACUUM, or `run --reload -p {name}` if they no longer exist; then "
            f"{_LONGER}"
        )
        return failed("retention", text, fix, pipeline=name)
    text = f"{behind}; VACUUM may remove feed files that are still needed in {days:g} days"
    if days < _SOON_DAYS:
        return warning("retention", text, f"run `deltarelay run` now, and more often, or {_LONGER}", pipeline=name)
    return ok("retention", text, pipeline=name)
