"""The sample sink of a third party passes the suite, from its own file and with the public kit alone."""

from __future__ import annotations

import datetime as dt
import decimal
import importlib.util
import sqlite3
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

from cdf.errors import RowRejected, TargetNotReady, TypeNotSupported
from cdf.sink import Capabilities, Sink
from cdf.testing import SampleTable, SinkConformance, insert, update
from cdf.testing.conformance.state import StatePromises
from connectors.registry import ENTRY_POINT_GROUP, SinkKind

FOLDER = Path(__file__).parents[2] / "examples" / "deltarelay-sqlite"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deltarelay_sqlite", FOLDER / "deltarelay_sqlite.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SqliteHarness:
    def __init__(self, example: ModuleType, path: Path) -> None:
        self._example = example
        self.path = path
        self.made: list[Any] = []

    @property
    def capabilities(self) -> Capabilities:
        return self.new_sink().capabilities

    def new_sink(self, **overrides: Any) -> Sink:
        self.made.append(self._example.SqliteSink(str(self.path), "orders", **overrides))
        return self.made[-1]

    def read_rows(self) -> list[dict[str, Any]]:
        if not self.query("select 1 from sqlite_schema where name = 'orders'"):
            return []
        return self.query("select * from orders")

    def expire_lease(self) -> None:
        self.query("update _deltarelay_position set lease_until = 0")

    def query(self, statement: str) -> list[dict[str, Any]]:
        db = sqlite3.connect(self.path, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(statement)]
        finally:
            db.close()


@pytest.fixture
def harness(example: ModuleType, tmp_path: Path) -> Iterator[SqliteHarness]:
    made = SqliteHarness(example, tmp_path / "target.sqlite")
    yield made
    for sink in made.made:
        sink.close()


class TestSqlite(SinkConformance):
    @pytest.fixture
    def spark(self) -> None:
        """The suite's windows and snapshots are in memory."""


class TestSqliteWithSpark(StatePromises):
    pass


def test_the_entry_point_names_a_sink_kind(example: ModuleType, tmp_path: Path) -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][ENTRY_POINT_GROUP] == {"sqlite": "deltarelay_sqlite:SQLITE"}
    kind = example.SQLITE
    assert isinstance(kind, SinkKind)
    assert kind.name == "sqlite"
    sink = kind.build(kind.connection(path=str(tmp_path / "x")), kind.options(table="t"), pipeline="p")
    assert isinstance(sink, Sink)
    assert not list(tmp_path.iterdir())
    for model in (kind.connection, kind.options):
        assert (model.model_config["extra"], model.model_config["frozen"]) == ("forbid", True)


def test_it_stays_short_enough_to_read() -> None:
    lines = (FOLDER / "deltarelay_sqlite.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 240


@pytest.fixture
def typed() -> SampleTable:
    schema = StructType().add("id", "long").add("real", "double").add("yes", "boolean").add("day", "date")
    schema.add("sum", spark_types.DecimalType(38, 4))
    return SampleTable(None, schema, ("id",))


def test_values_arrive_as_they_were(typed: SampleTable, harness: SqliteHarness) -> None:
    row = {"id": 2**63 - 1, "real": 0.1, "yes": True, "day": dt.date(1, 1, 1)}
    row["sum"] = decimal.Decimal("12345678901234567890123456789012.3400")
    sink = harness.new_sink()
    sink.open(typed.source())
    sink.load(typed.snapshot(1, [row, {"id": 1}]))
    sink.close()
    text = {"day": "0001-01-01", "sum": "12345678901234567890123456789012.3400", "yes": 1}
    empty = dict.fromkeys(typed.schema.names) | {"id": 1}
    assert sorted(harness.read_rows(), key=lambda row: row["id"]) == [empty, {**row, **text}]


def test_what_has_no_faithful_image_is_refused(typed: SampleTable, harness: SqliteHarness) -> None:
    sink = harness.new_sink()
    sink.open(typed.source())
    sink.load(typed.snapshot(1, []))
    with pytest.raises(RowRejected, match="NaN"):
        sink.apply(typed.window(2, [insert({"id": 1, "real": float("nan")})]))
    later = typed.with_schema(StructType([*typed.schema.fields]).add("at", "timestamp").add("raw", "binary"))
    with pytest.raises(TypeNotSupported, match="'at'"):
        sink.apply(later.window(2, [update({"id": 1}, {"id": 1, "yes": True})]))
    sink.close()
    problems = harness.new_sink().inspect(later.source()).problems
    assert len(problems) == 2
    with pytest.raises(TargetNotReady):
        harness.new_sink().open(later.source())
    assert harness.read_rows() == []


def test_rows_of_others_are_not_overwritten(typed: SampleTable, harness: SqliteHarness) -> None:
    harness.query("create table orders (id integer, real real, yes integer, day text, sum text)")
    harness.query("insert into orders (id) values (1)")
    with pytest.raises(TargetNotReady, match="another writer"):
        harness.new_sink().open(typed.source())
