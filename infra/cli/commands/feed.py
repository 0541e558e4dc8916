"""``deltarelay feed``: the change feed of a table, without any pipeline."""

from __future__ import annotations

import csv
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import ConfigError
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, address, spark_session
from infra.output import Output, no_formula

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.config.models import Project

__all__ = ["app"]

app = typer.Typer(help="Turn on, look at and read the change feed of a Delta table.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(help="Path, URL or catalog name of the Delta table.", callback=address)]


class Form(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


def _settings(config: Path) -> Project | None:
    """These commands need no file; where the default one is there, its Spark settings are used."""
    if config == DEFAULT_CONFIG and not config.exists():
        return None
    from infra.config.load import load

    return load(config, look_for_tables=False)


@app.command()
def enable(table: Table, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Turn the change feed on for an existing table; does nothing where it is on."""
    output = Output("feed enable", as_json, debug)
    with spark_session(output, _settings(config), tables=(table,)) as spark:
        from cdf import ChangeFeed

        result = ChangeFeed(spark, table).enable()
    what = "is on from version" if result.changed else "was on already, since version"
    output.line(f"the change feed of {table} {what} {result.since_version}")
    for warning in result.warnings:
        output.line(f"warning: {warning}", style="yellow")
    output.result(result)


@app.command()
def status(table: Table, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Is the feed on and since when, which versions can be read, what is missing."""
    output = Output("feed status", as_json, debug)
    with spark_session(output, _settings(config), tables=(table,)) as spark:
        from cdf import ChangeFeed

        result = ChangeFeed(spark, table).status()
    output.line(str(result))
    output.result(result)


@app.command()
def show(
    table: Table,
    start: Annotated[str, typer.Option("--from", metavar="VERSION|TIME", help="First version, or a time with a zone.")],
    end: Annotated[
        str | None, typer.Option("--to", metavar="VERSION|TIME", help="Last version or time; default: the latest.")
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="How the changes are printed. csv: a text that a spreadsheet would take for a formula begins with '.",
        ),
    ] = Form.table,
    limit: Annotated[int, typer.Option(min=1, help="Print at most so many changes.")] = 1_000,
    config: Config = DEFAULT_CONFIG,
    debug: Debug = False,
) -> None:
    """Print the changes of a range of versions, in commit order: removes before puts within a version."""
    output = Output("feed show", form is Form.json, debug)
    with spark_session(output, _settings(config), tables=(table,)) as spark:
        from cdf import ChangeFeed
        from cdf.read_errors import translate

        feed = ChangeFeed(spark, table)
        changes = feed.read(**_bound("start", start), **_bound("end", end))
        try:
            rows = _in_order(changes, limit + 1)
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
        writer.writerow(map(no_formula, columns))
        writer.writerows([[_csv(value) for value in row] for row in rows])
    else:
        output.table(columns, [[_cell(value, null="NULL") for value in row] for row in rows])
    if more:
        output.note(f"only the first {limit} changes are shown: raise --limit, or narrow the range")


def _cell(value: Any, *, null: str) -> str:
    if value is None:
        return null
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _csv(value: Any) -> str:
    text = _cell(value, null="")
    return text if isinstance(value, int | _Number) else no_formula(text)


class _Number(str):
    """A number with a fraction, as it was written: what a float would round."""


def _bound(side: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    text = text.strip()
    if text.isdecimal():
        return {f"{side}_version": int(text)}
    if text.lstrip("-").isdecimal():
        raise ConfigError(f"{text} is not a version", hint="versions are whole numbers from 0")
    return {f"{side}_timestamp": text}


def _in_order(changes: DataFrame, most: int) -> list[list[Any]]:
    """The first rows in commit order, every value as JSON has it (nested ones parsed, the rest as text or number)."""
    from pyspark.sql import functions as F

    from cdf.changes.canonical import TO_JSON
    from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, UPDATE_PREIMAGE

    puts_last = F.when(F.col(CHANGE_TYPE).isin(DELETE, UPDATE_PREIMAGE), 0).otherwise(1)
    ordered = changes.orderBy(F.col(COMMIT_VERSION), puts_last).limit(most)
    found = ordered.select(F.to_json(F.struct("*"), TO_JSON).alias("row")).collect()
    parsed = [json.loads(row["row"], parse_float=_Number) for row in found]
    return [[row.get(column) for column in changes.columns] for row in parsed]
