"""``deltarelay status``: where every pipeline stands. No JVM."""

from __future__ import annotations

import typer

from infra.cli.context import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, chosen
from infra.cli.output import DONE, FAILED, TEMPORARY, Output, overall

__all__ = ["status"]


def status(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Show position, latest version, lag, and how long the feed files that are still needed will last."""
    from infra.config.load import load
    from infra.status import pipeline_status

    output = Output("status", as_json, debug)
    project = load(config)
    found = [pipeline_status(project, name) for name in chosen(project, pipeline)]
    columns = ("pipeline", "state", "position", "latest", "lag (versions)", "lag (seconds)", "feed files last (days)")
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
    output.table(columns, rows)
    for one in found:
        if one.error:
            output.line(f"{one.pipeline}: {one.error}" + (f" ({one.hint})" if one.hint else ""))
    code = overall((TEMPORARY if one.transient else FAILED) if one.state == "failed" else DONE for one in found)
    output.result({"pipelines": [one.to_dict() for one in found]}, exit_code=code)
    raise typer.Exit(code)
