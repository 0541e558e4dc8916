"""``audit sinks``: has every sink this change?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from cdf.errors import ConfigError
from cdf.result import Result
from infra.cli.commands.audit.common import One, loaded
from infra.cli.output import DIFFERENCE, DONE, FAILED, Output
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json

__all__ = ["Reached", "SinkReached", "sinks"]


@dataclass(frozen=True, slots=True)
class SinkReached(Result):
    pipeline: str
    connection: str
    kind: str
    position: int | None
    """The version at which the sink stands."""
    has: bool | None
    """Whether the sink has the version. None: it cannot be told; ``error`` says why."""
    error: str | None


@dataclass(frozen=True, slots=True)
class Reached(Result):
    pipeline: str
    source: str
    version: int
    sinks: tuple[SinkReached, ...]


def sinks(
    pipeline: One,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="The version of the source. Left out: the trail's newest.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Tell whether every sink of the trail's source has a change: its position is at that version or beyond. No JVM.

    Exit code 0: all have it. 3: one has not. 1: one cannot be asked.
    """
    from infra.diagnostics.status import PipelineStatus, read_pipeline_status

    output = Output("audit sinks", as_json, debug)
    project = loaded(config)
    source = project.pipeline(pipeline).source.table
    found: dict[str, PipelineStatus] = {
        name: read_pipeline_status(project, name)
        for name, one in project.pipelines.items()
        if one.source.table == source
    }
    wanted = found[pipeline].position if version is None else version
    if wanted is None:
        raise ConfigError(
            f"{pipeline} has no version yet: {found[pipeline].error or 'it is empty'}", hint="name one with --version"
        )
    reached = []
    for name, status in found.items():
        connection = project.pipelines[name].sink.connection
        known = status.position is not None or status.state == "empty"
        reached.append(
            SinkReached(
                name,
                connection,
                project.connections[connection].kind,
                status.position,
                (status.position is not None and status.position >= wanted) if known else None,
                status.error,
            )
        )
    output.line(f"version {wanted} of {source}")
    rows = [(one.pipeline, one.connection, one.kind, one.position, _said(one)) for one in reached]
    output.table(("pipeline", "connection", "kind", "position", "has it"), rows, numbers=("position",))
    for one in reached:
        if one.error:
            output.line(f"{one.pipeline}: {one.error}")
    code = (
        FAILED if any(one.has is None for one in reached) else DONE if all(one.has for one in reached) else DIFFERENCE
    )
    output.result(Reached(pipeline, source, wanted, tuple(reached)), exit_code=code)
    raise typer.Exit(code)


def _said(one: SinkReached) -> str:
    return {True: "yes", False: "NO", None: "cannot be told"}[one.has]
