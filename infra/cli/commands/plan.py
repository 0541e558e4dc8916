"""``deltarelay plan``: what ``run`` would do. Writes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from infra.cli.batch import each_pipeline
from infra.cli.output import DONE, FAILED, Output, overall
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, Until

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
    from infra.config.load import load
    from infra.diagnostics.status import describe_risk

    output = Output("plan", as_json, debug)
    project = load(config)

    def work(one: Pipeline) -> tuple[Plan, int]:
        found = one.plan(until)
        if (stake := describe_risk(project, one.name)) is not None:
            found = replace(found, warnings=(*found.warnings, stake))
        _show(output, found)
        return found, FAILED if found.problems else DONE

    results, codes = each_pipeline(output, project, pipeline, work)
    code = overall(codes)
    output.result({"pipelines": results}, exit_code=code)
    raise typer.Exit(code)


_WAYS = {"swap": " (by a copy of the table, swapped in)", "merge": " (by a copy of the table, merged)"}


def _show(output: Output, plan: Plan) -> None:
    stands = "empty" if plan.position is None else f"at version {plan.position}"
    output.line(f"{plan.pipeline}: {plan.table} → target {stands}, would go to version {plan.last_version}")
    if plan.load_version is not None:
        output.line(f"  copies the table at version {plan.load_version}: {plan.load_rows} rows")
    rows = [
        (
            f"{window.first}..{window.last}",
            window.commits,
            window.change_bytes,
            _counts(window.changes),
            _counts(window.net) + _WAYS.get(window.way, ""),
        )
        for window in plan.windows
    ]
    if rows:
        output.table(("window", "commits", "bytes", "changes", "net effect"), rows)
    elif plan.load_version is None and not plan.problems:
        output.line("  nothing to do")
    for label, lines in (("DDL", plan.ddl), ("warning", plan.warnings), ("problem", plan.problems)):
        for line in lines:
            output.line(f"  {label}: {line}")


def _counts(counts: object) -> str:
    assert hasattr(counts, "items")
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"
