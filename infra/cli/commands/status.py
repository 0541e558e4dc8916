"""``deltarelay status``: the position and lag of every pipeline. Starts no JVM."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.sink import Controls
from infra.cli.limit_options import StatusLimitOptions
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, expand_options
from infra.cli.project import load_project, select_pipelines
from infra.output import DIFFERENCE, DONE, FAILED, TEMPORARY, Output, combine_exit_codes

if TYPE_CHECKING:
    from infra.diagnostics.status import PipelineStatus
    from infra.monitoring.health import Incident

    Judged = tuple[PipelineStatus, Sequence[Incident]]

__all__ = ["status"]

COLUMNS = ("pipeline", "state", "position", "latest", "lag (versions)", "lag (seconds)", "feed files last (days)")


@expand_options
def status(
    *,
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh the table until Ctrl-C.")] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval-seconds", min=0.1, help="With --watch: seconds between refreshes.")
    ] = 2.0,
    limits: StatusLimitOptions,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show position, latest version, lag, and for how many days the feed files that are still needed will exist.

    With a limit, the command exits with 3 and the reason if a pipeline exceeds it, or is stuck.
    """
    from infra.diagnostics.status import read_pipeline_status
    from infra.monitoring.health import find_incidents

    if watch and as_json:
        raise typer.BadParameter(
            "cannot be combined with --json: call `status --json` repeatedly", param_hint="--watch"
        )
    judged_by = limits.read()
    output = Output("status", as_json, debug)
    project = load_project(config)
    names = select_pipelines(project, pipeline)

    def judge(name: str) -> Judged:
        now = dt.datetime.now(dt.UTC)
        found = read_pipeline_status(project, name, now=now, stuck_after=judged_by.stuck_after)
        return found, find_incidents(found, judged_by, now)

    try:
        while watch:
            _refresh(output, [judge(name) for name in names])
            time.sleep(interval_seconds)
    except KeyboardInterrupt:
        raise typer.Exit(DONE) from None
    judged = [judge(name) for name in names]
    _print_statuses(output, judged)
    codes = [_exit_code_of(found, incidents if limits.given else ()) for found, incidents in judged]
    entries = [{**found.to_dict(), "incidents": [one.to_dict() for one in incidents]} for found, incidents in judged]
    output.finish({"pipelines": entries}, combine_exit_codes(codes))


def _exit_code_of(found: PipelineStatus, incidents: Sequence[Incident]) -> int:
    if found.code is not None:
        return TEMPORARY if found.transient else FAILED
    return DIFFERENCE if incidents or found.state == "stopped_by_brake" else DONE


def _refresh(output: Output, judged: Sequence[Judged]) -> None:
    output.clear()
    output.line(time.strftime("%H:%M:%S  (press Ctrl-C to stop)"))
    _print_statuses(output, judged)


def _print_statuses(output: Output, judged: Sequence[Judged]) -> None:
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
        for found, _ in judged
    ]
    output.table(COLUMNS, rows)
    for found, incidents in judged:
        if found.last:
            output.line(f"{found.pipeline}: {_format_last_step(found.last)}")
        for line in _describe_controls(found):
            output.line(f"{found.pipeline}: {line}")
        if found.error:
            output.line(f"{found.pipeline}: {found.error}" + (f" ({found.hint})" if found.hint else ""))
        for incident in incidents:
            if incident.kind not in ("failed", "unreachable", "stopped_by_brake"):  # the lines above say these
                output.line(f"{found.pipeline}: {incident.kind.replace('_', ' ')}: {incident.text}", style="yellow")
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
