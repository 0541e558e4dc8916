"""``deltarelay validate``: is the configuration file right? No JVM, no connection."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from infra.cli.context import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.output import Output

__all__ = ["validate"]


def validate(
    config: Config = DEFAULT_CONFIG,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the file instead.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the configuration file: every mistake at once, with its line and column."""
    output = Output("validate", as_json, debug)
    if schema:
        from infra.config.schema import schema as file_schema

        print(json.dumps(file_schema(), indent=2))
        return
    from infra.config.load import load
    from infra.config.secrets import describe

    project = load(config)
    output.line(
        f"{config} is valid: {_count(len(project.pipelines), 'pipeline')}, "
        f"{_count(len(project.connections), 'connection')}"
    )
    rows = [
        (name, pipeline.source.table, ", ".join(pipeline.source.key), pipeline.source.start, pipeline.sink.connection)
        for name, pipeline in project.pipelines.items()
    ]
    output.table(("pipeline", "source", "key", "start", "connection"), rows)
    output.result(describe(project))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
