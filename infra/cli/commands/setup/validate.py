"""``deltarelay validate``: checks the configuration file. Starts no JVM, and connects only with --connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_project
from infra.output import DONE, FAILED, TEMPORARY, Output, combine_exit_codes, format_count

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["validate"]


def validate(
    config: Config = DEFAULT_CONFIG,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the file instead.")] = False,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect", help="Also check every source and target, and show problems and DDL. Writes nothing."
        ),
    ] = False,
    no_env: Annotated[
        bool,
        typer.Option(
            "--no-env",
            help="For CI without secrets: variables that are not set and secret files that do not exist are no mistakes. "
            "Tables of `tables` are not listed.",
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the configuration file, and report all mistakes at once, each with line and column.

    With --connect, exit code 1 means that a problem would stop a run, 75 that a target is unavailable at the moment.
    """
    output = Output("validate", as_json, debug)
    if schema:
        from infra.config.json_schema import schema as file_schema

        print(json.dumps(file_schema(), indent=2))
        return
    from infra.config.models import describe

    if no_env and connect:
        raise typer.BadParameter("cannot be combined with --connect, which needs every value", param_hint="--no-env")
    if no_env:
        _check_without_secrets(output, config)
        return
    project = load_project(config)
    output.line(f"{config} is valid: {_count_parts(project)}")
    _print_pipelines(output, project)
    if not connect:
        output.result(describe(project))
        return
    checks, code = _check_connections(output, project)
    output.finish({**describe(project), "connected": checks}, code)


def _check_without_secrets(output: Output, config: Path) -> None:
    from infra.config.load import check_without_secrets

    found = check_without_secrets(config)
    parts = "" if found.project is None else f": {_count_parts(found.project)}"
    if found.unset:
        output.line(f"{config} has no mistakes{parts}; {format_count(len(found.unset), 'reference')} NOT CHECKED:")
        output.line(f"  {', '.join(found.unset)}")
    else:
        output.line(f"{config} is valid{parts}")
    if found.project is not None:
        _print_pipelines(output, found.project)
        for name, pipeline in found.project.pipelines.items():
            if pipeline.source.tables is not None:
                output.line(f"{name}: its tables were not listed")
    output.result({"not_checked": found.unset})


def _count_parts(project: Project) -> str:
    return f"{format_count(len(project.pipelines), 'pipeline')}, {format_count(len(project.connections), 'connection')}"


def _print_pipelines(output: Output, project: Project) -> None:
    rows = [
        (name, pipeline.source.table, ", ".join(pipeline.source.key), pipeline.source.start, pipeline.sink.connection)
        for name, pipeline in project.pipelines.items()
    ]
    output.table(("pipeline", "source", "key", "start", "connection"), rows)


def _check_connections(output: Output, project: Project) -> tuple[list[dict[str, object]], int]:
    from infra.diagnostics.preflight import check_connections

    checks = [check_connections(project, name) for name in project.pipelines]
    for check in checks:
        target = "empty" if check.position is None else f"at version {check.position}"
        ready = f"ready: the source is at version {check.latest_version}, the target is {target}"
        if check.ok and check.latest_version is None:
            ready = "NOT CHECKED"
        output.line(f"{check.pipeline}: {ready if check.ok else 'NOT READY'}")
        for label, lines in (("problem", check.problems), ("warning", check.warnings), ("DDL", check.ddl)):
            for line in lines:
                output.line(f"  {label}: {line}")
    codes = [DONE if check.ok else TEMPORARY if check.transient else FAILED for check in checks]
    return [check.to_dict() for check in checks], combine_exit_codes(codes)
