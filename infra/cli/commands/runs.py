"""``deltarelay runs``: the recorded steps of each target, and failed attempts. Starts no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import TargetNotReady
from cdf.listing import list_some
from cdf.result import Result
from cdf.sink import Monitored, RunRecord
from infra.cli.batch import process_targets
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.cli.project import load_project
from infra.output import Output, combine_exit_codes

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
    """Latest first."""


def runs(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of steps per pipeline; the latest are shown.")
    ] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Show only failed attempts.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the run history stored in each target: loads, windows and reloads with row counts, and failed attempts."""
    output = Output("runs", as_json, debug)
    project = load_project(config)
    records: list[RunRecord] = []

    def read_runs(name: str) -> PipelineRuns:
        found = PipelineRuns(name, _read_runs(project, name, limit, failed=failed))
        records.extend(found.runs)
        return found

    results, codes = process_targets(output, project, pipeline, read_runs)
    records.sort(key=lambda record: record.ended_at, reverse=True)
    if records:
        has_changes = any(record.schema_changes for record in records)
        columns = (*COLUMNS, "schema changes") if has_changes else COLUMNS
        rows = [_format_row(record)[: len(columns)] for record in records]
        output.table(columns, rows, numbers=COLUMNS[3:11])
    else:
        output.line("no failed attempts" if failed else "no runs yet")
    output.finish({"pipelines": results}, combine_exit_codes(codes))


def _read_runs(project: Project, name: str, limit: int, *, failed: bool) -> tuple[RunRecord, ...]:
    sink = project.build_sink(name)
    if not isinstance(sink, Monitored):
        raise TargetNotReady(f"the sink of {name} keeps no run history", hint="select other pipelines with -p")
    return tuple(sink.runs(limit, failed=failed))


def _format_row(record: RunRecord) -> tuple[Any, ...]:
    if record.first is None:
        versions = ""
    else:
        versions = f" {record.first}" if record.first == record.last else f" {record.first}..{record.last}"
    failure = None if record.code is None else record.code + (f" ({record.condition})" if record.condition else "")
    return (
        f"{record.started_at.astimezone():%Y-%m-%d %H:%M:%S}",
        record.pipeline,
        record.kind + versions,
        record.rows_in,
        record.inserts,
        record.updates,
        record.deletes,
        record.conflicts,
        record.change_bytes,
        f"{(record.ended_at - record.started_at).total_seconds():.2f}",
        record.retries,
        failure,
        list_some(record.schema_changes) or None,
    )
