"""``deltarelay audit queries``, ``query``, ``history``, ``as-of``, ``diff`` and ``who``.

They are in one file because the last four only name a query of ``audit query`` and fill in its parameters.
"""

from __future__ import annotations

from typing import Annotated

import typer

from infra.cli.commands.audit.options import TrailPipeline
from infra.cli.commands.audit.questions.ask import QuestionOptions, ask
from infra.cli.commands.audit.questions.parameters import parse_pairs
from infra.cli.options import Debug, Json, expand_options
from infra.output import Output

__all__ = ["as_of", "diff", "history", "queries", "query", "who"]

Moment = Annotated[str, typer.Argument(metavar="VERSION|TIME", help="A version, or a time with a time zone.")]


def queries(as_json: Json = False, debug: Debug = False) -> None:
    """List the queries that `audit query` can run on a trail. Starts no JVM."""
    from audit.queries.questions import QUERIES

    output = Output("audit queries", as_json, debug)
    rows = [
        (name, query.question, ", ".join(query.parameters), "yes" if query.shows_values else "no")
        for name, query in QUERIES.items()
    ]
    output.table(("name", "question", "parameters", "shows values"), rows)
    output.result(
        {
            "queries": [
                {
                    "name": name,
                    "question": query.question,
                    "parameters": query.parameters,
                    "shows_values": query.shows_values,
                }
                for name, query in QUERIES.items()
            ]
        }
    )


@expand_options
def query(
    name: Annotated[str, typer.Argument(help="The name of a query; `audit queries` lists them.")],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="The pipeline that writes the trail.")],
    options: QuestionOptions,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            help="NAME=VALUE. Repeat `record=COLUMN=VALUE` and `key=COLUMN` for each column. Default of key: the "
            "pipeline's key.",
        ),
    ] = None,
) -> None:
    """Run a query on a trail. The answer may show values of rows: `audit queries` shows which queries do."""
    parameters: dict[str, list[str]] = {}
    for parameter, value in parse_pairs(param or [], "--param"):
        parameters.setdefault(parameter, []).append(value)
    ask("audit query", name, pipeline, parameters, options)


@expand_options
def history(
    pipeline: TrailPipeline,
    key: Annotated[
        list[str], typer.Option("--key", help="COLUMN=VALUE; repeat it for each column that identifies the record.")
    ],
    options: QuestionOptions,
) -> None:
    """Show all changes of one record. Shows values. If a column was renamed, repeat the command with each of its names."""
    ask("audit history", "history", pipeline, {"record": key}, options)


@expand_options
def as_of(
    pipeline: TrailPipeline,
    at: Moment,
    options: QuestionOptions,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="COLUMN=VALUE: show only this record; repeat it for each column of the key."),
    ] = None,
) -> None:
    """Show the table, or one record, as it was at a moment, even beyond the source's retention. Shows values."""
    parameters = {"when": [at], **({"record": key} if key else {})}
    ask("audit as-of", "record-as-of" if key else "as-of", pipeline, parameters, options)


@expand_options
def diff(pipeline: TrailPipeline, first: Moment, second: Moment, options: QuestionOptions) -> None:
    """Show the differences between two moments; name the earlier one first. Shows values."""
    ask("audit diff", "diff", pipeline, {"first": [first], "second": [second]}, options)


@expand_options
def who(
    pipeline: TrailPipeline,
    options: QuestionOptions,
    column: Annotated[
        str | None, typer.Option("--column", help="Show who changed this column, with old and new values.")
    ] = None,
) -> None:
    """Show who changed the table, or one of its columns (which shows values)."""
    name = "actors" if column is None else "column-changes"
    ask("audit who", name, pipeline, {} if column is None else {"column": [column]}, options)
