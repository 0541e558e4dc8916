"""The questions of ``deltarelay audit``: asked of a trail, answered with rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cdf.errors import ConfigError
from cdf.os_user import os_user
from infra.cli.commands.audit.common import One, loaded, reading, trail_of, visible
from infra.cli.commands.audit.sinks import sinks
from infra.cli.commands.audit.sql import sql
from infra.cli.output import Output, no_formula
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, spark_session
from infra.signals import ctrl_c_counts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from audit.encryption.key_registry import States
    from infra.config.models import Project

__all__ = ["QUESTIONS"]

Key = Annotated[list[str], typer.Option("--key", help="COLUMN=VALUE; once for each column that identifies the record.")]
Moment = Annotated[str, typer.Argument(metavar="VERSION|TIME", help="A version, or a time with its zone.")]
Format = Annotated[
    Literal["table", "json", "csv", "html"],
    typer.Option(
        "--format",
        help="How the rows are printed. csv: a text that a spreadsheet would take for a formula begins with '.",
    ),
]
Decrypt = Annotated[
    bool,
    typer.Option(
        "--decrypt",
        help="Show what is sealed too, by the keys of `erasure.keys`. Each such reading becomes an event of the trail.",
    ),
]
Purpose = Annotated[str | None, typer.Option("--purpose", help="What --decrypt is for; it stands in the trail.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")]


def queries(as_json: Json = False, debug: Debug = False) -> None:
    """List the questions that can be asked of a trail. No JVM."""
    from audit.queries.questions import QUERIES

    output = Output("audit queries", as_json, debug)
    rows = [
        (name, one.question, ", ".join(one.parameters), "yes" if one.shows_values else "no")
        for name, one in QUERIES.items()
    ]
    output.table(("name", "question", "parameters", "shows values"), rows)
    output.result(
        {
            "queries": [
                {"name": name, "question": one.question, "parameters": one.parameters, "shows_values": one.shows_values}
                for name, one in QUERIES.items()
            ]
        }
    )


def query(
    name: Annotated[str, typer.Argument(help="One of `audit queries`.")],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="The pipeline that writes the trail.")],
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            help="NAME=VALUE; `record=COLUMN=VALUE` and `key=COLUMN` once for each column. Left out: the pipeline's key.",
        ),
    ] = None,
    format: Format = "table",
    limit: Limit = 1000,
    decrypt: Decrypt = False,
    purpose: Purpose = None,
    config: Config = DEFAULT_CONFIG,
    debug: Debug = False,
) -> None:
    """Ask a trail one of the questions, by its name. The answer may show values of rows: `audit queries` says which do."""
    given: dict[str, list[str]] = {}
    for parameter, value in _pairs(param or [], "--param"):
        given.setdefault(parameter, []).append(value)
    _ask("audit query", name, pipeline, given, format, limit, config, _purpose(decrypt, purpose), debug=debug)


def history(
    pipeline: One,
    key: Key,
    format: Format = "table",
    limit: Limit = 1000,
    decrypt: Decrypt = False,
    purpose: Purpose = None,
    config: Config = DEFAULT_CONFIG,
    debug: Debug = False,
) -> None:
    """Everything that happened to one record. Shows its values. A renamed column is asked for by each of its names."""
    _ask(
        "audit history",
        "history",
        pipeline,
        {"record": key},
        format,
        limit,
        config,
        _purpose(decrypt, purpose),
        debug=debug,
    )


def as_of(
    pipeline: One,
    at: Moment,
    key: Annotated[
        list[str] | None, typer.Option("--key", help="COLUMN=VALUE: only this record; once for each column of the key.")
    ] = None,
    format: Format = "table",
    limit: Limit = 1000,
    decrypt: Decrypt = False,
    purpose: Purpose = None,
    config: Config = DEFAULT_CONFIG,
    debug: Debug = False,
) -> None:
    """The table, or one record, as it was; also past the source's own retention. Shows values."""
    given = {"when": [at], **({"record": key} if key else {})}
    _ask(
        "audit as-of",
        "record-as-of" if key else "as-of",
        pipeline,
        given,
        format,
        limit,
        config,
        _purpose(decrypt, purpose),
        debug=debug,
    )


def diff(
    pipeline: One,
    first: Moment,
    second: Moment,
    format: Format = "table",
    limit: Limit = 1000,
    decrypt: Decrypt = False,
    purpose: Purpose = None,
    config: Config = DEFAULT_CONFIG,
    debug: Debug = False,
) -> None:
    """What is different between two moments, the earlier one first. Shows values."""
    _ask(
        "audit diff",
        "diff",
        pipeline,
        {"first": [first], "second": [second]},
        format,
        limit,
        config,
        _purpose(decrypt, purpose),
        debug=debug,
    )


def who(
    pipeline: One,
    column: Annotated[str | None, typer.Option("--column", help="Who changed this column, from what to what.")] = None,
    format: Format = "table",
    limit: Limit = 1000,
    decrypt: Decrypt = False,
    purpose: Purpose = None,
    config: Config = DEFAULT_CONFIG,
    debug: Debug = False,
) -> None:
    """Who has changed the table, or one of its columns (which shows values)."""
    name = "actors" if column is None else "column-changes"
    given = {} if column is None else {"column": [column]}
    _ask("audit who", name, pipeline, given, format, limit, config, _purpose(decrypt, purpose), debug=debug)


QUESTIONS: Mapping[str, Callable[..., None]] = {
    "queries": queries,
    "query": query,
    "history": history,
    "as-of": as_of,
    "diff": diff,
    "who": who,
    "sinks": sinks,
    "sql": sql,
}


# ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _ask(
    command: str,
    name: str,
    pipeline: str,
    given: Mapping[str, Sequence[str]],
    format: str,
    limit: int,
    config: Path,
    purpose: str | None,
    *,
    debug: bool,
) -> None:
    from audit.queries.questions import QUERIES, count_hidden_keys, count_removed_values

    output = Output(command, format == "json", debug)
    if name not in QUERIES:
        raise ConfigError(
            f"there is no question `{name}`", hint=f"`deltarelay audit queries` lists them: {', '.join(QUERIES)}"
        )
    asked = QUERIES[name]
    if unknown := sorted(given.keys() - set(asked.parameters)):
        takes = ", ".join(asked.parameters) or "none"
        raise ConfigError(f"`{name}` has no parameter {', '.join(unknown)}", hint=f"it has: {takes}")
    project = loaded(config)
    said = {"key": project.pipeline(pipeline).source.key, **given}
    values = {parameter: _parsed(parameter, said.get(parameter)) for parameter in asked.parameters}
    with spark_session(output, project), ctrl_c_counts():
        trail = trail_of(project, pipeline)
        if purpose is not None:
            trail.states = _keys(project, trail.path, name, purpose)
        with reading(trail):
            answer = _flat(asked.ask(trail, **values)).limit(limit + 1).toArrow()
            gone = count_removed_values(trail) if asked.shows_values else 0
            until = values.get("second", values.get("when"))
            left_out = count_hidden_keys(trail, values["key"], until) if "key" in asked.parameters else 0
        _print(output, answer, format, limit, left_out)
        if gone:
            output.note(f"the values of {gone} events were removed: an answer about records has nothing of them")
        if left_out:
            output.note(
                f"{left_out} events are left out: a column of their key is erased or cannot be read, and nobody can tell "
                "which record they are of"
            )


def _purpose(decrypt: bool, purpose: str | None) -> str | None:
    """None: what is sealed stays so."""
    if decrypt and not (purpose or "").strip():
        raise ConfigError("--decrypt needs a purpose, which stands in the trail", hint="--purpose TEXT")
    if purpose is not None and not decrypt:
        raise ConfigError("--purpose is that of --decrypt", hint="give both, or none")
    return purpose


def _keys(project: Project, trail: str, question: str, purpose: str) -> States:
    if project.erasure is None or project.erasure.key_registry is None:
        raise ConfigError("nothing can be decrypted: no registry of keys is configured", hint="set erasure.keys")
    return project.key_registry().open_reading(trail=trail, reader=os_user(), purpose=purpose, question=question)


def _parsed(parameter: str, said: Sequence[str] | None) -> Any:
    if said is None:
        if parameter in ("since", "until", "index"):
            return None
        raise ConfigError(f"--param {parameter}=… is missing", hint="`deltarelay audit queries` lists what each needs")
    if parameter == "record":
        return dict(_pairs(said, "--key"))
    if parameter == "key":
        return list(said)
    if len(said) > 1:
        raise ConfigError(f"--param {parameter}=… is given more than once", hint="give it once")
    if parameter in ("when", "first", "second", *_NUMBERS) and said[0].isascii() and said[0].isdecimal():
        return int(said[0])
    if parameter in _NUMBERS:
        raise ConfigError(f"--param {parameter}=… is no whole number", hint="findings and answers show it")
    return _time(parameter, said[0]) if parameter in ("when", "first", "second", "since", "until") else said[0]


_NUMBERS = ("version", "index")


def _time(parameter: str, said: str) -> dt.datetime:
    from cdf.source.bounds import parse_timestamp

    return parse_timestamp(said, name=parameter)


def _pairs(given: Sequence[str], option: str) -> list[tuple[str, str]]:
    """What is given may be a value alone: it is not told again."""
    pairs = [one.partition("=") for one in given]
    if not all(equals and name for name, equals, _ in pairs):
        raise ConfigError(f"what is given to {option} is no pair", hint=f"write {option} NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


# ── printing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _flat(rows: DataFrame) -> DataFrame:
    """Each column of a row as ``row.NAME``."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    columns = []
    for field in rows.schema.fields:
        if field.name in ("key", "row", "before", "after") and isinstance(field.dataType, StructType):
            columns += [F.col(field.name).getField(one).alias(f"{field.name}.{one}") for one in field.dataType.names]
        else:
            columns.append(F.col(f"`{field.name.replace('`', '``')}`"))
    return rows.select(columns)


def _print(output: Output, rows: pa.Table, format: str, limit: int, left_out: int = 0) -> None:
    from audit.queries.fields import UNREADABLE
    from audit.report.html import render

    columns = rows.column_names
    shown = list(zip(*(column.to_pylist() for column in rows.slice(0, limit).columns), strict=True))
    if columns[-1:] == [UNREADABLE]:
        columns, shown = columns[:-1], _told(columns[:-1], shown)
    if rows.num_rows > limit:
        output.note(f"only the first {limit} rows are shown: --limit raises that")
    if format == "table":
        _table(output, [visible(column) for column in columns], [[_cell(value) for value in row] for row in shown])
    elif format == "json":
        named = [dict(zip(columns, map(_json, row), strict=True)) for row in shown]
        output.result({"columns": columns, "rows": named, "left_out": left_out})
    elif format == "csv":
        for line in (columns, *shown):
            print(",".join(_csv(value) for value in line))
    else:
        cells = [[None if value is None else str(_plain(value)) for value in row] for row in shown]
        print(render("query_result.html", columns=columns, rows=cells))


def _told(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """In the place of what is not shown stands why; never NULL. ``rows``: their last cell has the reasons, by column."""
    # Beside those of the source an answer has columns of its own, which may be called the same
    of_source = [name.startswith(("row.", "before.", "after.")) for name in columns]
    places = [
        name.removeprefix("row.") if theirs or not any(of_source) else None
        for name, theirs in zip(columns, of_source, strict=True)
    ]

    def told(row: Sequence[Any]) -> tuple[Any, ...]:
        why = dict(row[-1] or ())
        return tuple(why.get(place, value) for place, value in zip(places, row[:-1], strict=True))

    return [told(row) for row in rows]


def _table(output: Output, columns: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
    """Where the terminal is too narrow for it, row by row."""
    widths = [max(len(cell or "-") for cell in column) for column in zip(columns, *rows, strict=True)]
    if sum(widths) + 2 * len(widths) <= output.width:
        output.table(columns, rows)
        return
    for at, row in enumerate(rows):
        if at:
            output.line()
        for name, cell in zip(columns, row, strict=True):
            output.line(f"{name}: {'-' if cell is None else cell}")


def _cell(value: Any) -> str | None:
    return None if value is None else visible(str(_plain(value)))


def _csv(value: Any) -> str:
    """NULL is empty, an empty text is ``""``."""
    if isinstance(value, str):
        value = no_formula(value)
    if value is None or isinstance(value, bool | int | float | Decimal):
        return "" if value is None else str(_plain(value))
    return '"' + str(_plain(value)).replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    value = _json(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):  # a map is a list of pairs
        return [_json(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        at = value if value.tzinfo is None else value.astimezone(dt.UTC)
        return at.isoformat().replace("+00:00", "Z")
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and value == value and abs(value) != float("inf") else str(value)
