"""Options that several commands have, each declared once."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from cdf.errors import ConfigError
from infra.durations import parse_duration
from infra.logs import LOG_FORMAT_VARIABLE, LogFormat

__all__ = [
    "DEFAULT_CONFIG",
    "Config",
    "Debug",
    "Json",
    "Logs",
    "OnePipeline",
    "Pipelines",
    "Until",
    "Verbose",
    "Yes",
    "expand_options",
    "normalize_table",
    "read_duration",
]

DEFAULT_CONFIG = Path("deltarelay.yaml")

Config = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.", envvar="DELTARELAY_CONFIG")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout (docs/reference/json.md).")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the stack trace of an error (it may quote row values); keep Spark's log.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show details: the seconds of each phase and the executed DDL.")
]
Logs = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar=LOG_FORMAT_VARIABLE,
        help="Format of log lines on stderr. auto: JSON for long-running commands, unless stderr is a terminal.",
    ),
]
Pipelines = Annotated[
    list[str] | None,
    typer.Option(
        "--pipeline",
        "-p",
        help="Process only this pipeline, or all pipelines of this `tables` entry; can be repeated. Default: all.",
    ),
]
OnePipeline = Annotated[str, typer.Option("--pipeline", "-p", help="The pipeline.")]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="VERSION|TIME", help="Stop at this version, or at this time with a time zone."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")]


def normalize_table(table: str) -> str:
    """Return a table address from the command line in the spelling that the product uses for S3 (``s3a://``)."""
    from infra.s3.address import normalize_address

    try:
        return normalize_address(table)
    except ValueError as error:
        raise ConfigError(f"the table's address {error}") from None


def read_duration(option: str, text: str | None) -> dt.timedelta | None:
    """Read the value of an option such as ``--max-lag 15m``; None where it is not given."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options that it shares with others as one parameter: a dataclass with a field per option.

    Typer reads options from the signature, so the decorated command has the fields of the dataclass in place of the
    parameter.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        annotation = hints[parameter.name]
        if not is_dataclass(annotation):
            parameters.append(parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = annotation
        field_hints = get_type_hints(annotation, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field_hints[field.name],
            )
            for field in fields(annotation)
        ]

    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded
