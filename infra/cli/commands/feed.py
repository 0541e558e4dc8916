"""``deltarelay feed``: the change feed of one table, without a pipeline."""

from __future__ import annotations

import csv
import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import ConfigError
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, normalize_table
from infra.cli.project import load_optional_project
from infra.output import Output, escape_formula
from infra.runtime import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Number", "app", "format_csv_value"]

app = typer.Typer(help="Enable, inspect and read the change feed of a Delta table.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(help="Path, URL or catalog name of the Delta table.", callback=normalize_table)]


class Form(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


@app.command()
def enable(table: Table, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Enable the change feed of an existing table; does nothing if it is enabled."""
    output = Output("feed enable", as_json, debug)
    with spark_session(output, load_optional_project(config), tables=(table,), may_be_remote=True) as spark:
        from cdf import ChangeFeed

        result = ChangeFeed(spark, table).enable()
    state = "is enabled from version" if result.changed else "was already enabled, since version"
    output.line(f"the change feed of {table} {state} {result.since_version}")
    for warning in result.warnings:
        output.line(f"warning: {warning}", style="yellow")
    output.result(result)


@app.command()
def status(table: Table, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Show whether the feed is enabled and since when, which versions can be read, and which are missing."""
    output = Output("feed status", as_json, debug)
    with spark_session(output, load_optional_project(config), tables=(table,), may_be_remote=True) as spark:
        from cdf import ChangeFeed

        result = ChangeFeed(spark, table).status()
    output.line(str(result))
    output.result(result)


@app.command()
def show(
    table: Table,
    start: Annotated[
        str, typer.Option("--from", metavar="VERSION|TIME", help="First version, or a time with a time zone.")
    ],
    end: Annotated[
        str | None, typer.Option("--to", metavar="VERSION|TIME", help="Last version or time; default: the latest.")
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="Output format. csv: a text that a spreadsheet would evaluate as a formula is prefixed with '.",
        ),
    ] = Form.table,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of changes to print.")] = 1_000,
    config: Config = DEFAULT_CONFIG,
    debug: Debug = False,
) -> None:
    """Print the changes of a range of versions in commit order; within a version, deletes and old rows come first."""
    output = Output("feed show", form is Form.json, debug)
    with spark_session(output, load_optional_project(config), tables=(table,), may_be_remote=True) as spark:
        from cdf import ChangeFeed
        from cdf.read_errors import translate

        feed = ChangeFeed(spark, table)
        changes = feed.read(**_parse_bound("start", start), **_parse_bound("end", end))
        try:
            rows = _read_in_order(changes, limit + 1)
        except Exception as error:
            raise translate(error, table=table, first=0, last=feed.log.latest()) from error
        columns = changes.columns
    more, rows = len(rows) > limit, rows[:limit]
    if form is Form.json:
        output.result(
            {"columns": columns, "changes": [dict(zip(columns, row, strict=True)) for row in rows], "more": more}
        )
    elif form is Form.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(map(escape_formula, columns))
        writer.writerows([[format_csv_value(value) for value in row] for row in rows])
    else:
        output.table(columns, [[_format_cell(value, null="NULL") for value in row] for row in rows])
    if more:
        output.note(f"only the first {limit} changes are shown: raise --limit or narrow the range")


def _format_cell(value: Any, *, null: str) -> str:
    if value is None:
        return null
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def format_csv_value(value: Any) -> str:
    text = _format_cell(value, null="")
    return text if isinstance(value, int | Number) else escape_formula(text)


class Number(str):
    """A decimal number in its original notation, which a float would round."""


def _parse_bound(side: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    text = text.strip()
    if text.isdecimal():
        return {f"{side}_version": int(text)}
    if text.lstrip("-").isdecimal():
        raise ConfigError(f"{text} is not a version", hint="versions are whole numbers from 0")
    return {f"{side}_timestamp": text}


def _read_in_order(changes: DataFrame, most: int) -> list[list[Any]]:
    """Return the first rows in commit order, with values as in JSON (nested values parsed, others as text or number)."""
    from pyspark.sql import functions as F

    from cdf.changes.canonical import TO_JSON
    from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, UPDATE_PREIMAGE

    new_rows_last = F.when(F.col(CHANGE_TYPE).isin(DELETE, UPDATE_PREIMAGE), 0).otherwise(1)
    ordered = changes.orderBy(F.col(COMMIT_VERSION), new_rows_last).limit(most)
    selected = ordered.select(F.to_json(F.struct("*"), TO_JSON).alias("row")).collect()
    parsed = [json.loads(row["row"], parse_float=Number) for row in selected]
    return [[row.get(column) for column in changes.columns] for row in parsed]
