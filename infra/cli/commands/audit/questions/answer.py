"""The answer of a query, printed as table, JSON, CSV or HTML."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from infra.cli.commands.audit.trails import escape_unprintable
from infra.output import Output, escape_formula

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["Format", "flatten_rows", "format_csv_value", "print_answer"]

Format = Literal["table", "json", "csv", "html"]


def flatten_rows(rows: DataFrame) -> DataFrame:
    """Turn the columns of the source into columns of the answer, such as ``row.NAME``."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    columns = []
    for field in rows.schema.fields:
        if field.name in ("key", "row", "before", "after") and isinstance(field.dataType, StructType):
            columns += [F.col(field.name).getField(name).alias(f"{field.name}.{name}") for name in field.dataType.names]
        else:
            columns.append(F.col(f"`{field.name.replace('`', '``')}`"))
    return rows.select(columns)


def print_answer(output: Output, answer: pa.Table, format: str, limit: int, left_out: int = 0) -> None:
    """Print the first ``limit`` rows. ``left_out``: events that the query could not assign to a record."""
    from audit.queries.fields import UNREADABLE

    columns = answer.column_names
    rows = list(zip(*(column.to_pylist() for column in answer.slice(0, limit).columns), strict=True))
    if columns[-1:] == [UNREADABLE]:
        columns, rows = columns[:-1], _insert_reasons(columns[:-1], rows)
    if answer.num_rows > limit:
        output.note(f"only the first {limit} rows are shown: raise --limit to see more")
    if format == "table":
        cells = [[_format_cell(value) for value in row] for row in rows]
        _print_table(output, [escape_unprintable(column) for column in columns], cells)
    elif format == "json":
        named = [dict(zip(columns, map(_to_json, row), strict=True)) for row in rows]
        output.result({"columns": columns, "rows": named, "left_out": left_out})
    elif format == "csv":
        for line in (columns, *rows):
            print(",".join(format_csv_value(value) for value in line))
    else:
        print(_format_html(columns, rows))


def _insert_reasons(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Replace each value that is not shown by the reason, so that it is not taken for NULL.

    ``rows``: the last cell has the reasons by column of the source.
    """
    # An answer also has columns that are not from the source; these may have the same names
    is_from_source = [name.startswith(("row.", "before.", "after.")) for name in columns]
    source_columns = [
        name.removeprefix("row.") if from_source or not any(is_from_source) else None
        for name, from_source in zip(columns, is_from_source, strict=True)
    ]

    def insert(row: Sequence[Any]) -> tuple[Any, ...]:
        reasons = dict(row[-1] or ())
        return tuple(reasons.get(name, value) for name, value in zip(source_columns, row[:-1], strict=True))

    return [insert(row) for row in rows]


def _print_table(output: Output, columns: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
    """Print a table; if the terminal is too narrow for it, print each row as a list of columns."""
    widths = [max(len(cell or "-") for cell in column) for column in zip(columns, *rows, strict=True)]
    if sum(widths) + 2 * len(widths) <= output.width:
        output.table(columns, rows)
        return
    for number, row in enumerate(rows):
        if number:
            output.line()
        for name, cell in zip(columns, row, strict=True):
            output.line(f"{name}: {'-' if cell is None else cell}")


def _format_html(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    from audit.report.html import render

    cells = [[None if value is None else str(_to_scalar(value)) for value in row] for row in rows]
    return render("query_result.html", columns=columns, rows=cells)


def _format_cell(value: Any) -> str | None:
    return None if value is None else escape_unprintable(str(_to_scalar(value)))


def format_csv_value(value: Any) -> str:
    """Format a value for CSV: NULL is empty, an empty text is ``""``."""
    if isinstance(value, str):
        value = escape_formula(value)
    if value is None or isinstance(value, bool | int | float | Decimal):
        return "" if value is None else str(_to_scalar(value))
    return '"' + str(_to_scalar(value)).replace('"', '""') + '"'


def _to_scalar(value: Any) -> Any:
    value = _to_json(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):  # a map is a list of pairs
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        at = value if value.tzinfo is None else value.astimezone(dt.UTC)
        return at.isoformat().replace("+00:00", "Z")
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and value == value and abs(value) != float("inf") else str(value)
