"""``deltarelay plan``: shows what ``run`` would do. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from infra.cli.batch import process_pipelines
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, Until
from infra.cli.project import load_project
from infra.output import DIFFERENCE, DONE, FAILED, Output, combine_exit_codes

if TYPE_CHECKING:
    from cdf import Pipeline, Plan

__all__ = ["plan"]


def plan(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    until: Until = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what a run would do: windows, counts per change type, DDL, problems and warnings. Writes nothing."""
    from infra.diagnostics.status import describe_risk

    output = Output("plan", as_json, debug)
    project = load_project(config)

    def plan_pipeline(current: Pipeline) -> tuple[Plan, int]:
        found = current.plan(until)
        if (warning := describe_risk(project, current.name)) is not None:
            found = replace(found, warnings=(*found.warnings, warning))
        _print_plan(output, found)
        is_stopped = any(window.stopped for window in found.windows)
        return found, FAILED if found.problems else DIFFERENCE if is_stopped else DONE

    results, codes = process_pipelines(output, project, pipeline, plan_pipeline)
    output.finish({"pipelines": results}, combine_exit_codes(codes))


_STRATEGIES = {"swap": " (by a copy of the table, swapped in)", "merge": " (by a copy of the table, merged)"}


def _print_plan(output: Output, plan: Plan) -> None:
    position = "empty" if plan.position is None else f"at version {plan.position}"
    output.line(f"{plan.pipeline}: {plan.table} → target is {position}, would advance to version {plan.last_version}")
    if plan.load_version is not None:
        output.line(f"  copies the table at version {plan.load_version}: {plan.load_rows} rows")
    rows = [
        (
            f"{window.first}..{window.last}",
            window.commits,
            window.change_bytes,
            _format_counts(window.changes),
            _format_counts(window.net) + _STRATEGIES.get(window.way, ""),
        )
        for window in plan.windows
    ]
    if rows:
        output.table(("window", "commits", "bytes", "changes", "net effect"), rows)
    elif plan.load_version is None and not plan.problems:
        output.line("  nothing to do")
    stopped = [window.stopped for window in plan.windows if window.stopped]
    for label, lines in (
        ("stopped", stopped),
        ("DDL", plan.ddl),
        ("warning", plan.warnings),
        ("problem", plan.problems),
    ):
        for line in lines:
            output.line(f"  {label}: {line}")


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"
