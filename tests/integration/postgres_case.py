"""What the PostgreSQL sink's tests share: sources made of queries, sinks that get closed, errors searched for values."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.changes.commits import Commit
from cdf.changes.window import Snapshot, Window
from cdf.errors import CdfError
from cdf.sink import Source
from cdf.testing import SampleTable
from cdf.testing.changes import Row
from connectors.postgres import PostgresSink
from tests.fixtures.fix_postgres import Pg

ON_BOTH_PATHS = pytest.mark.parametrize("path", [{}, {"small_window_bytes": 0}], ids=["driver", "tasks"])
"""Through the driver, as every small window goes, or from the tasks."""


def sink_of(pg: Pg, table: str = "target", **options: Any) -> PostgresSink:
    return PostgresSink(options.pop("dsn", pg.dsn), table=f"{pg.schema}.{table}", **options)


@contextmanager
def opened(pg: Pg, source: Source, **options: Any) -> Iterator[PostgresSink]:
    sink = sink_of(pg, **options)
    try:
        sink.open(source)
        yield sink
    finally:
        sink.close()


@contextmanager
def loaded(pg: Pg, table: SampleTable, rows: Sequence[Row], **options: Any) -> Iterator[PostgresSink]:
    """An open sink whose target holds ``rows`` at version 1."""
    with opened(pg, table.source(), **options) as sink:
        sink.load(table.snapshot(1, rows))
        yield sink


def people(spark: SparkSession | None = None) -> SampleTable:
    """Without a session its windows and snapshots are in memory: they pass through the driver."""
    return SampleTable(spark, StructType().add("id", "long").add("name", "string"), ("id",), table="people")


def person(index: int, name: str | None) -> Row:
    return {"id": index, "name": name}


def names(pg: Pg, table: str = "target") -> dict[int, str | None]:
    """id → name, as the target holds them."""
    rows = pg.query(f"select id, name from {{schema}}.{table}")
    found = dict(rows)
    assert len(found) == len(rows)
    return found


def position(pg: Pg, table: str = "target") -> int | None:
    rows = pg.query("select version from deltarelay.position where target = %s", f"{pg.schema}.{table}")
    return rows[0][0] if rows else None


def left_of(pg: Pg, sink: PostgresSink) -> list[str]:
    """Tables and indexes that the sinks of this target keep for the time of a step, by name."""
    named = "select relname from pg_class where relname ~ %s and relkind in ('r', 'i') order by relname"
    return [name for (name,) in pg.query(named, f"^(stage|load|ahead)_{sink._session._tag}_")]


class QueryTable:
    """A source whose rows are a query's, for values that rows of Python cannot carry."""

    def __init__(self, spark: SparkSession, query: str, *, key: str = "id") -> None:
        self.spark, self.query, self.key = spark, query, (key,)
        self.schema = spark.sql(query).schema

    def source(self) -> Source:
        return Source("queried", "query-table", self.schema, self.key, "test")

    def snapshot(self, version: int) -> Snapshot:
        read = lambda: self.spark.sql(self.query)  # noqa: E731
        return Snapshot("queried", "query-table", self.schema, self.key, version, read=read)

    def window(self, version: int, query: str | None = None) -> Window:
        """The query's rows, all inserted in one commit."""
        feed = (
            f"select *, 'insert' as _change_type, {version}L as _commit_version,"
            f" timestamp'2026-01-01 00:00:00Z' as _commit_timestamp from ({query or self.query})"
        )
        made = Commit(version, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), change_files=1, change_bytes=1000)
        return Window(
            table="queried",
            table_id="query-table",
            schema=self.schema,
            key=self.key,
            commits=(made,),
            read=lambda: self.spark.sql(feed),
        )


def tells(error: CdfError) -> str:
    """Everything that an error says, or that somebody who follows its chain can find."""
    parts: list[str] = []
    seen: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        parts += [str(one), repr(one), repr(one.args), repr(vars(one)), *traceback.format_exception(one)]
        todo += [one.__cause__, one.__context__]
    return "\n".join([*parts, repr(error.to_dict()), str(error.hint)])
