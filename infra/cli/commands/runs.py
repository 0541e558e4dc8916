"""``deltarelay runs``: what was done to each target, step by step, and what failed. No JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import TargetNotReady
from cdf.result import Result
from cdf.sink.contract import Recorded, RunRecord
from infra.cli.batch import each_target
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.output import Output, overall

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["PipelineRuns", "runs"]

COLUMNS = (
    "started",
    "pipeline",
    "step",
    "rows in",
    "inserts",
    "updates",
    "deletes",
    "conflicts",
    "change bytes",
    "seconds",
    "retries",
    "failed",
)


@dataclass(frozen=True, slots=True)
class PipelineRuns(Result):
    pipeline: str
    runs: tuple[RunRecord, ...]
    """The latest first."""


def runs(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many of each pipeline, the latest.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only tries that failed.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the history that the targets keep: each load, window and reload with its figures, and each try that failed."""
    from infra.config.load import load

    output = Output("runs", as_json, debug)
    project = load(config)
    shown: list[RunRecord] = []

    def work(name: str) -> PipelineRuns:
        found = PipelineRuns(name, _runs_of(project, name, limit, failed=failed))
        shown.extend(found.runs)
        return found

    results, codes = each_target(output, project, pipeline, work)
    shown.sort(key=lambda one: one.ended_at, reverse=True)
    if shown:
        output.table(COLUMNS, [_row(one) for one in shown], numbers=COLUMNS[3:11])
    else:
        output.line("nothing failed" if failed else "nothing was done yet")
    code = overall(codes)
    output.result({"pipelines": results}, exit_code=code)
    raise typer.Exit(code)


def _runs_of(project: Project, name: str, limit: int, *, failed: bool) -> tuple[RunRecord, ...]:
    sink = project.build_sink(name)
    if not isinstance(sink, Recorded):
        raise TargetNotReady(f"the sink of {name} keeps no history", hint="leave it out with -p")
    return tuple(sink.runs(limit, failed=failed))


def _row(one: RunRecord) -> tuple[Any, ...]:
    versions = "" if one.first is None else f" {one.first}" if one.first == one.last else f" {one.first}..{one.last}"
    why = None if one.code is None else one.code + (f" ({one.condition})" if one.condition else "")
    return (
        f"{one.started_at.astimezone():%Y-%m-%d %H:%M:%S}",
        one.pipeline,
        one.kind + versions,
        one.rows_in,
        one.inserts,
        one.updates,
        one.deletes,
        one.conflicts,
        one.change_bytes,
        f"{(one.ended_at - one.started_at).total_seconds():.2f}",
        one.retries,
        why,
    )
