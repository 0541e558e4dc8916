"""Runs one query on a trail, and prints the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from cdf.os_user import os_user
from cdf.spark_versions import collect_arrow
from infra.cli.commands.audit.questions.answer import Format, flatten_rows, print_answer
from infra.cli.commands.audit.questions.parameters import parse_parameter
from infra.cli.commands.audit.trails import open_trail, translate_read_errors
from infra.cli.options import DEFAULT_CONFIG, Config, Debug
from infra.cli.project import load_project
from infra.output import Output
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.encryption.key_registry import States
    from infra.config.models import Project

__all__ = ["QuestionOptions", "ask"]


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """The options of every command that runs a query."""

    format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="Output format. csv: a text that a spreadsheet would evaluate as a formula is prefixed with '.",
        ),
    ] = "table"
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows.")] = 1000
    decrypt: Annotated[
        bool,
        typer.Option(
            "--decrypt",
            help="Also show encrypted values, with the keys of `erasure.keys`. Each such access becomes an event of the "
            "trail.",
        ),
    ] = False
    purpose: Annotated[str | None, typer.Option("--purpose", help="The purpose of --decrypt; stored in the trail.")] = (
        None
    )
    config: Config = DEFAULT_CONFIG
    debug: Debug = False


def ask(command: str, name: str, pipeline: str, given: Mapping[str, Sequence[str]], options: QuestionOptions) -> None:
    """Run the query ``name`` with the parameters ``given``."""
    from audit.queries.questions import QUERIES, count_hidden_keys, count_removed_values

    purpose = _check_purpose(options)
    output = Output(command, options.format == "json", options.debug)
    if name not in QUERIES:
        raise ConfigError(
            f"unknown query `{name}`", hint=f"`deltarelay audit queries` lists them: {', '.join(QUERIES)}"
        )
    query = QUERIES[name]
    if unknown := sorted(given.keys() - set(query.parameters)):
        takes = ", ".join(query.parameters) or "none"
        raise ConfigError(f"`{name}` has no parameter {', '.join(unknown)}", hint=f"its parameters: {takes}")
    project = load_project(options.config)
    texts = {"key": project.pipeline(pipeline).source.key, **given}
    values = {parameter: parse_parameter(parameter, texts.get(parameter)) for parameter in query.parameters}
    with spark_session(output, project), raise_interrupt_on_signal():
        trail = open_trail(project, pipeline)
        if purpose is not None:
            trail.states = _read_keys(project, trail.path, name, purpose)
        with translate_read_errors(trail):
            answer = collect_arrow(flatten_rows(query.ask(trail, **values)).limit(options.limit + 1))
            removed = count_removed_values(trail) if query.shows_values else 0
            until = values.get("second", values.get("when"))
            left_out = count_hidden_keys(trail, values["key"], until) if "key" in query.parameters else 0
        print_answer(output, answer, options.format, options.limit, left_out)
        if removed:
            output.note(f"the values of {removed} events were removed; answers about records cannot include them")
        if left_out:
            output.note(
                f"{left_out} events are left out: a column of their key is erased or cannot be decrypted, so their record "
                "is unknown"
            )


def _check_purpose(options: QuestionOptions) -> str | None:
    """Return the purpose of decrypting; None: encrypted values are not decrypted."""
    if options.decrypt and not (options.purpose or "").strip():
        raise ConfigError("--decrypt needs a purpose, which is stored in the trail", hint="--purpose TEXT")
    if options.purpose is not None and not options.decrypt:
        raise ConfigError("--purpose requires --decrypt", hint="give both options, or none")
    return options.purpose


def _read_keys(project: Project, trail: str, question: str, purpose: str) -> States:
    if project.erasure is None or project.erasure.key_registry is None:
        raise ConfigError("cannot decrypt: no key registry is configured", hint="set erasure.keys")
    return project.key_registry().open_reading(trail=trail, reader=os_user(), purpose=purpose, question=question)
