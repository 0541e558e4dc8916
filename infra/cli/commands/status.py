"""``deltarelay status``: where every pipeline stands. No JVM."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.output import DONE, FAILED, TEMPORARY, Output, overall
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, chosen

__all__ = ["status"]


if TYPE_CHECKING:
    from infra.diagnostics.status import PipelineStatus

COLUMNS = ("pipeline", "state", "position", "latest", "lag (versions)", "lag (seconds)", "feed files last (days)")


def status(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew until Ctrl-C.")] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval-seconds", min=0.1, help="With --watch: how often.")
    ] = 2.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show position, latest version, lag, and how long the feed files that are still needed will last."""
    from infra.config.load import load
    from infra.diagnostics.status import read_pipeline_status

    if watch and as_json:
        raise typer.BadParameter("is for people: call status --json again instead", param_hint="--watch")
    output = Output("status", as_json, debug)
    project = load(config)
    names = chosen(project, pipeline)
    try:
        while watch:
            _draw(output, [read_pipeline_status(project, name) for name in names])
            time.sleep(interval_seconds)
    except KeyboardInterrupt:
        raise typer.Exit(DONE) from None
    found = [read_pipeline_status(project, name) for name in names]
    _show(output, found)
    code = overall((TEMPORARY if one.transient else FAILED) if one.code is not None else DONE for one in found)
    output.result({"pipelines": [one.to_dict() for one in found]}, exit_code=code)
    raise typer.Exit(code)


def _draw(output: Output, found: Sequence[PipelineStatus]) -> None:
    output.clear()
    output.line(time.strftime("%H:%M:%S  (Ctrl-C ends)"))
    _show(output, found)


def _show(output: Output, found: Sequence[PipelineStatus]) -> None:
    rows = [
        (
            one.pipeline,
            one.state.replace("_", " "),
            one.position,
            one.latest_version,
            one.lag_versions,
            None if one.lag_seconds is None else f"{one.lag_seconds:.0f}",
            one.feed_files_days,
        )
        for one in found
    ]
    output.table(COLUMNS, rows)
    for one in found:
        if one.last:
            output.line(f"{one.pipeline}: {_step(one.last)}")
        if one.error:
            output.line(f"{one.pipeline}: {one.error}" + (f" ({one.hint})" if one.hint else ""))
        if one.note:
            output.line(f"{one.pipeline}: {one.note}", style="yellow")


def _step(last: Mapping[str, Any]) -> str:
    """The figures of the last step while it was followed: rows, speed, and where its time went."""
    # Another release may have written it, with other figures
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in last.get("seconds", {}).items())
    rows = [
        f"{last[name]:,} rows {word}"
        for name, word in (("rows_in", "in"), ("rows_applied", "applied"))
        if last.get(name) is not None
    ]
    speed = [f"{last['rows_per_second']:,.0f} rows/s ({seconds})"] if last.get("rows_per_second") is not None else []
    return f"last step at {last.get('at', '?')}: {', '.join([*rows, *speed])}"
