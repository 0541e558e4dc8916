"""Compares the two tables row by row in plain Python, without the code that replicates or verifies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from infra.demo.history import WATCHED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.demo.screen import Screen

__all__ = ["EPOCH", "KEY", "Row", "Side", "format_row", "read_source", "read_target", "print_comparison"]

KEY = "customer_id"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """All rows of one table, by key. Timestamps are microseconds since 1970, arrays are lists."""

    columns: tuple[str, ...]
    count: int
    rows: Mapping[int, Row]

    def by_country(self) -> dict[str, tuple[int, Decimal]]:
        found: dict[str, tuple[int, Decimal]] = {}
        for row in self.rows.values():
            count, balance = found.get(row["country"], (0, Decimal(0)))
            found[row["country"]] = (count + 1, balance + row["balance"])
        return dict(sorted(found.items()))


def read_source(spark: SparkSession, table: str) -> Side:
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    frame = spark.read.format("delta").load(table)
    shown = [
        F.unix_micros(F.col(field.name)).alias(field.name)
        if isinstance(field.dataType, TimestampType)
        else F.col(field.name)
        for field in frame.schema.fields
    ]
    rows = [row.asDict() for row in frame.select(*shown).collect()]
    return Side(tuple(frame.columns), len(rows), {row[KEY]: row for row in rows})


def read_target(dsn: str) -> Side:
    from audit.postgres_session import connect

    with connect(dsn) as connection:
        cursor = connection.execute("select * from public.customers")
        columns = tuple(column.name for column in cursor.description or ())
        rows = [dict(zip(columns, map(_plain, row), strict=True)) for row in cursor]
    return Side(columns, len(rows), {row[KEY]: row for row in rows})


def _plain(value: Any) -> Any:
    return (value - EPOCH) // dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else value


def print_comparison(output: Screen, source: Side, target: Side) -> None:
    """Print some rows by key, then counts and sums per country, of source and target."""
    rows = [
        (
            key,
            what,
            format_row(source.rows.get(key)),
            format_row(target.rows.get(key)),
            _same(source.rows.get(key) == target.rows.get(key)),
        )
        for key, what in WATCHED.items()
    ]
    output.table(("key", "what happened", "Delta", "PostgreSQL", "same"), rows, numbers=("key",))
    output.line()
    here, there = source.by_country(), target.by_country()
    nothing = (0, Decimal(0))
    totals = []
    for country in sorted(here.keys() | there.keys()):
        left, right = here.get(country, nothing), there.get(country, nothing)
        totals.append((country, left[0], right[0], f"{left[1]:,}", f"{right[1]:,}", _same(left == right)))
    columns = ("country", "rows: Delta", "PostgreSQL", "balance: Delta", "PostgreSQL", "same")
    output.table(columns, totals, numbers=columns[1:5])
    output.line()


def format_row(row: Row | None) -> str:
    if row is None:
        return "no such row"
    first_name = row["name"].split()[0]
    return f"{first_name:<6}{row['balance']:>9,} {row.get('loyalty') or '-':<6}"


def _same(equal: bool) -> str:
    return "yes" if equal else "NO"
