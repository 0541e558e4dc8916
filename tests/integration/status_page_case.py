"""Pipelines in every state for the tests of the status page: tables by delta-rs, targets in PostgreSQL, no Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from cdf.changes.schema_diff import SchemaChange
from cdf.errors import SinkUnavailable
from cdf.sink import BrakeStop, Sink
from cdf.sink.controls import pause, record_stop
from cdf.testing import SampleTable, delete, insert, update
from infra.config.load import load
from infra.config.models import Project
from tests.fixtures.fix_postgres import Pg

CANARY = "xanadu-7c1f"
"""Part of every row value, key and secret of this case: it must be on no page."""
KEY = 74_219_883
"""The first key; keys are numbers."""
SCHEMA = StructType().add("id", "long").add("name", "string")


class StatusCase:
    """A folder with a configuration, and what its pipelines did."""

    def __init__(self, folder: Path, pg: Pg) -> None:
        self.folder, self.pg = folder, pg
        self._pipelines: dict[str, dict[str, Any]] = {}
        self._connections = {"warehouse": pg.dsn}

    @property
    def config(self) -> Path:
        return self.folder / "deltarelay.yaml"

    def connect(self, name: str, dsn: str) -> None:
        self._connections[name] = dsn

    def add(self, name: str, *, connection: str = "warehouse", table: str | None = None, feed: bool = True) -> None:
        """A pipeline, with a table of its own unless ``table`` names another pipeline's."""
        self._pipelines[name] = {"table": self.path(table or name), "connection": connection}
        if table is None:
            properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
            write_deltalake(self.path(name), _arrow(3), configuration=properties)

    def path(self, name: str) -> Path:
        return self.folder / "lake" / name

    def commit(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            write_deltalake(self.path(name), _arrow(2), mode="append")

    def load_project(self) -> Project:
        pipelines = "".join(
            f"  {name}:\n    source: {{table: {one['table']}, key: [id]}}\n"
            f"    sink: {{connection: {one['connection']}, table: {self.pg.schema}.{name}, rejects: dead_letter}}\n"
            for name, one in self._pipelines.items()
        )
        connections = "".join(
            f"  {name}: {{kind: postgres, dsn: '{dsn}'}}\n" for name, dsn in self._connections.items()
        )
        self.config.write_text(f"version: 1\nconnections:\n{connections}pipelines:\n{pipelines}")
        return load(self.config)

    @contextmanager
    def opened(self, project: Project, name: str) -> Iterator[tuple[Any, SampleTable]]:
        table = self.path(name)
        sample = SampleTable(None, SCHEMA, ("id",), table=str(table), table_id=str(DeltaTable(table).metadata().id))
        sink: Any = project.build_sink(name)
        try:
            sink.open(sample.source(name))
            yield sink, sample
        finally:
            sink.close()

    def copy(self, project: Project, name: str, windows: int = 0, *, drift: tuple[SchemaChange, ...] = ()) -> None:
        """Copy version 0, and apply windows of one commit each; the first one has the schema changes ``drift``."""
        with self.opened(project, name) as (sink, sample):
            sink.load(sample.snapshot(0, [_row(index) for index in range(3)]))
            for number in range(1, windows + 1):
                edits = [insert(_row(number * 100 + index)) for index in range(2 + number * number % 17)]
                if number % 2:
                    edits += [update(_row(1), _row(1, "new")), update(_row(2), _row(2, "new"))]
                if number == 3:
                    edits.append(delete(_row(0)))
                sink.apply(replace(sample.window(number, edits), drift=drift if number == 1 else ()))
        self._record_rows(name)

    def _record_rows(self, name: str) -> None:
        """Windows in memory do not count the rows of the feed, which the history of a run with Spark has."""
        counted = "update deltarelay.runs set rows_in = inserts + 2 * updates + deletes where target = %s"
        self.pg.query(counted, f"{self.pg.schema}.{name}")


def _row(index: int, name: str = "") -> dict[str, Any]:
    return {"id": KEY + index, "name": f"{CANARY}-{name}{index}"}


def _arrow(rows: int) -> pa.Table:
    values = [_row(index) for index in range(rows)]
    return pa.table(
        {"id": pa.array([one["id"] for one in values], pa.int64()), "name": [one["name"] for one in values]}
    )


def make_every_state(folder: Path, pg: Pg) -> StatusCase:
    """One pipeline in each state; the connection ``archive`` has no server."""
    case = StatusCase(folder, pg)
    case.connect("archive", f"postgresql://relay:{CANARY}@127.0.0.1:1/archive")
    for name in ("orders", "customers", "invoices", "payments", "stock", "returns"):
        case.add(name)
    case.add("visits", feed=False)
    case.add("orders_archive", connection="archive", table="orders")
    project = case.load_project()
    case.commit("orders", 6)
    case.copy(project, "orders", 6)  # up to date
    case.commit("customers", 5)
    case.copy(project, "customers", 2)  # behind
    case.commit("invoices", 3)
    case.copy(project, "invoices", 1)  # paused
    now = dt.datetime.now(dt.UTC)
    reason = "index rebuild until noon"
    _sink(project, "invoices").change_controls(lambda one: pause(one, now=now, by="maria", reason=reason))
    case.commit("payments", 4)
    case.copy(project, "payments", 1)  # stopped by a brake
    stop = BrakeStop(now, 2, 3, "the window 2..3 would delete 80,000 of 100,000 rows (80%)")
    _sink(project, "payments").change_controls(lambda one: record_stop(one, stop))
    case.commit("stock", 2)
    pg.query("create table {schema}.stock (id bigint primary key, name text check (name not like '%%-refused%%'))")
    case.copy(project, "stock", 1)
    with case.opened(project, "stock") as (sink, sample):  # up to date, with dead letters
        sink.apply(sample.window(2, [insert(_row(900, "refused")), insert(_row(901))]))
        sink.record_failure(SinkUnavailable("the server ended the connection"), pipeline="stock", source="s", retries=2)
    return case  # `returns` is empty, `visits` has failed: no change feed


def _sink(project: Project, name: str) -> Any:
    sink: Sink = project.build_sink(name)
    return sink


def crawl(get: Any, paths: Sequence[str]) -> str:
    return "\n".join(get(path) for path in paths)
