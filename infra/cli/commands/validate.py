"""``deltarelay validate``: is the configuration file right? No JVM, and no connection unless asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.output import DONE, FAILED, TEMPORARY, Output, counted, overall
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["validate"]


def validate(
    config: Config = DEFAULT_CONFIG,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the file instead.")] = False,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also look at every source and target: problems, DDL. Writes nothing.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the configuration file: every mistake at once, with its line and column.

    With --connect exit code 1 means that a run would be stopped by a problem, 75 that a target cannot be reached now.
    """
    output = Output("validate", as_json, debug)
    if schema:
        from infra.config.json_schema import schema as file_schema

        print(json.dumps(file_schema(), indent=2))
        return
    from infra.config.load import load
    from infra.config.models import describe

    project = load(config)
    output.line(
        f"{config} is valid: {counted(len(project.pipelines), 'pipeline')}, "
        f"{counted(len(project.connections), 'connection')}"
    )
    rows = [
        (name, pipeline.source.table, ", ".join(pipeline.source.key), pipeline.source.start, pipeline.sink.connection)
        for name, pipeline in project.pipelines.items()
    ]
    output.table(("pipeline", "source", "key", "start", "connection"), rows)
    if not connect:
        output.result(describe(project))
        return
    looks, code = _connected(output, project)
    output.result({**describe(project), "connected": looks}, exit_code=code)
    raise typer.Exit(code)


def _connected(output: Output, project: Project) -> tuple[list[dict[str, object]], int]:
    from infra.diagnostics.preflight import check_connections

    found = [check_connections(project, name) for name in project.pipelines]
    for one in found:
        stands = "empty" if one.position is None else f"at version {one.position}"
        ready = f"ready: the source is at version {one.latest_version}, the target {stands}"
        if one.ok and one.latest_version is None:
            ready = "NOT LOOKED AT"
        output.line(f"{one.pipeline}: {ready if one.ok else 'NOT READY'}")
        for label, lines in (("problem", one.problems), ("warning", one.warnings), ("DDL", one.ddl)):
            for line in lines:
                output.line(f"  {label}: {line}")
    codes = [DONE if one.ok else TEMPORARY if one.transient else FAILED for one in found]
    return [one.to_dict() for one in found], overall(codes)
