"""``deltarelay status``: the position and lag of every pipeline. Starts no JVM."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.sink import Controls
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.cli.project import load_project, select_pipelines
from infra.output import DIFFERENCE, DONE, FAILED, TEMPORARY, Output, combine_exit_codes

if TYPE_CHECKING:
    from infra.diagnostics.status import PipelineStatus

__all__ = ["status"]

COLUMNS = ("pipeline", "state", "position", "latest", "lag (versions)", "lag (seconds)", "feed files last (days)")


def status(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh the table until Ctrl-C.")] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval-seconds", min=0.1, help="With --watch: seconds between refreshes.")
    ] = 2.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show position, latest version, lag, and for how many days the feed files that are still needed will exist."""
    from infra.diagnostics.status import read_pipeline_status

    if watch and as_json:
        raise typer.BadParameter(
            "cannot be combined with --json: call `status --json` repeatedly", param_hint="--watch"
        )
    output = Output("status", as_json, debug)
    project = load_project(config)
    names = select_pipelines(project, pipeline)
    try:
        while watch:
            _refresh(output, [read_pipeline_status(project, name) for name in names])
            time.sleep(interval_seconds)
    except KeyboardInterrupt:
        raise typer.Exit(DONE) from None
    statuses = [read_pipeline_status(project, name) for name in names]
    _print_statuses(output, statuses)
    codes = [_exit_code_of(found) for found in statuses]
    output.finish({"pipelines": [found.to_dict() for found in statuses]}, combine_exit_codes(codes))


def _exit_code_of(found: PipelineStatus) -> int:
    if found.code is not None:
        return TEMPORARY if found.transient else FAILED
    return DIFFERENCE if found.state == "stopped_by_brake" else DONE


def _refresh(output: Output, statuses: Sequence[PipelineStatus]) -> None:
    output.clear()
    output.line(time.strftime("%H:%M:%S  (press Ctrl-C to stop)"))
    _print_statuses(output, statuses)


def _print_statuses(output: Output, statuses: Sequence[PipelineStatus]) -> None:
    rows = [
        (
            found.pipeline,
            found.state.replace("_", " "),
            found.position,
            found.latest_version,
            found.lag_versions,
            None if found.lag_seconds is None else f"{found.lag_seconds:.0f}",
            found.feed_files_days,
        )
        for found in statuses
    ]
    output.table(COLUMNS, rows)
    for found in statuses:
        if found.last:
            output.line(f"{found.pipeline}: {_format_last_step(found.last)}")
        for line in _describe_controls(found):
            output.line(f"{found.pipeline}: {line}")
        if found.error:
            output.line(f"{found.pipeline}: {found.error}" + (f" ({found.hint})" if found.hint else ""))
        if found.note:
            output.line(f"{found.pipeline}: {found.note}", style="yellow")


def _describe_controls(found: PipelineStatus) -> Iterator[str]:
    controls = found.controls or Controls()
    if (pause := controls.paused) is not None:
        yield (
            f"paused since {pause.at:%Y-%m-%d %H:%M} UTC by {pause.by}: {pause.reason} "
            f"(`deltarelay resume {found.pipeline}`)"
        )
    if (stop := controls.stopped) is not None and found.state == "stopped_by_brake":
        yield (
            f"since {stop.at:%Y-%m-%d %H:%M} UTC: {stop.message} "
            f"(`deltarelay approve {found.pipeline} --window {stop.first}..{stop.last} --by YOU`, or repair the source)"
        )


def _format_last_step(last: Mapping[str, Any]) -> str:
    """Describe the last step of ``run --follow``: row counts, throughput, and seconds per phase."""
    # Another release may have written the record, with other fields
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in last.get("seconds", {}).items())
    rows = [
        f"{last[name]:,} rows {word}"
        for name, word in (("rows_in", "in"), ("rows_applied", "applied"))
        if last.get(name) is not None
    ]
    speed = [f"{last['rows_per_second']:,.0f} rows/s ({seconds})"] if last.get("rows_per_second") is not None else []
    return f"last step at {last.get('at', '?')}: {', '.join([*rows, *speed])}"
