"""``deltarelay audit sinks``: checks whether every sink of a source has applied a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from cdf.errors import ConfigError
from cdf.result import Result
from infra.cli.commands.audit.options import TrailPipeline
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_project
from infra.output import DIFFERENCE, DONE, FAILED, Output

__all__ = ["ChangeCoverage", "SinkCoverage", "sinks"]


@dataclass(frozen=True, slots=True)
class SinkCoverage(Result):
    pipeline: str
    connection: str
    kind: str
    position: int | None
    """The version that the sink has applied."""
    has: bool | None
    """Whether the sink has the version. None: unknown, because of ``error``."""
    error: str | None


@dataclass(frozen=True, slots=True)
class ChangeCoverage(Result):
    pipeline: str
    source: str
    version: int
    sinks: tuple[SinkCoverage, ...]


def sinks(
    pipeline: TrailPipeline,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="The version of the source; default: the trail's latest.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check that every sink of the trail's source has applied a version: its position is not earlier. Starts no JVM.

    Exit code 0: all sinks have it. 3: a sink does not have it. 1: a sink cannot be reached.
    """
    from infra.diagnostics.status import PipelineStatus, read_pipeline_status

    output = Output("audit sinks", as_json, debug)
    project = load_project(config)
    source = project.pipeline(pipeline).source.table
    statuses: dict[str, PipelineStatus] = {
        name: read_pipeline_status(project, name)
        for name, settings in project.pipelines.items()
        if settings.source.table == source
    }
    wanted = statuses[pipeline].position if version is None else version
    if wanted is None:
        raise ConfigError(
            f"{pipeline} has no version yet: {statuses[pipeline].error or 'it is empty'}",
            hint="name a version with --version",
        )
    covered = []
    for name, status in statuses.items():
        connection = project.pipelines[name].sink.connection
        is_known = status.position is not None or status.state == "empty"
        covered.append(
            SinkCoverage(
                name,
                connection,
                project.connections[connection].kind,
                status.position,
                (status.position is not None and status.position >= wanted) if is_known else None,
                status.error,
            )
        )
    output.line(f"version {wanted} of {source}")
    labels = {True: "yes", False: "NO", None: "unknown"}
    rows = [(sink.pipeline, sink.connection, sink.kind, sink.position, labels[sink.has]) for sink in covered]
    output.table(("pipeline", "connection", "kind", "position", "has it"), rows, numbers=("position",))
    for sink in covered:
        if sink.error:
            output.line(f"{sink.pipeline}: {sink.error}")
    is_unknown = any(sink.has is None for sink in covered)
    code = FAILED if is_unknown else DONE if all(sink.has for sink in covered) else DIFFERENCE
    output.finish(ChangeCoverage(pipeline, source, wanted, tuple(covered)), code)
