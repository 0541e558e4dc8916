"""Rows in memory reach PostgreSQL in the form in which Spark's do: each step compared with Spark's own."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, StringType, StructType

from cdf.errors import ConfigError
from cdf.testing import SampleTable, delete, insert, update
from connectors.postgres.staging import storability, wire
from connectors.postgres.staging.columns import StagingOptions
from connectors.postgres.staging.in_memory import wire_rows

SCHEMA = StructType().add("id", "long").add("name", "string").add("amount", "decimal(12,3)").add("at", "timestamp")
SCHEMA = SCHEMA.add("local", "timestamp_ntz").add("day", "date").add("yes", "boolean").add("größe", "byte")
KEY = ("id", "name")
MOMENT = dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC)


def row(id_: int, name: str | None, **values: Any) -> dict[str, Any]:
    return {"id": id_, "name": name, **values}


PLAIN = row(1, 'é"\\\n\x1f\U0001f600', amount=Decimal("1.5"), at=MOMENT, local=dt.datetime(1999, 1, 1), yes=True)
OTHER = row(2, "", day=dt.date(1582, 10, 4), at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), größe=-128)
WITH_NUL = row(3, "x\0y", amount=Decimal("-0.001"), yes=False)
EDITS = (
    [
        insert(PLAIN),
        update(OTHER, {**OTHER, "größe": 5}),
        insert(WITH_NUL),
        insert(row(8, "short")),
        insert(row(8, "\0")),
    ],
    [delete(row(9, "gone", größe=1)), delete(row(8, "short")), delete(row(8, "\0")), delete(row(4, "\0 gone"))],
)


def told(table: pa.Table | None) -> tuple[list[tuple[str, str]], list[str]]:
    assert table is not None
    kinds = [(field.name, str(field.type)) for field in table.schema]
    return kinds, sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("transients", [False, True])
@pytest.mark.parametrize(
    "marks", [{}, {"rejects": True}, {"rejects": True, "reject_rows": True}], ids=["", "marks", "rows"]
)
@pytest.mark.parametrize("commit", [False, True])
def test_a_window_is_staged_alike(spark: SparkSession, transients: bool, marks: dict[str, bool], commit: bool) -> None:
    wanted = StagingOptions(commit=commit, transients=transients, **marks)
    one, two = (SampleTable(session, SCHEMA, KEY).window(7, *EDITS) for session in (None, spark))
    of_memory = told(wire.wire_net_on_driver(one, wanted))
    net = wire.wire_net(two.net(transients=transients), SCHEMA, KEY, wanted).toArrow()
    assert of_memory == told(net)
    if marks or not transients:  # a transient key that cannot be copied makes the driver leave the window to the tasks
        assert of_memory == told(wire.wire_net_on_driver(two, wanted))


def test_a_snapshot_is_copied_alike(spark: SparkSession) -> None:
    rows = [PLAIN, OTHER, WITH_NUL, row(5, "nothing")]
    one, two = (SampleTable(session, SCHEMA, KEY).snapshot(7, rows) for session in (None, spark))
    assert told(wire_rows(one.collect(), SCHEMA)) == told(wire.wire_rows(two.read(), SCHEMA).toArrow())


def test_what_cannot_be_stored_is_named_alike(spark: SparkSession) -> None:
    tables = [SampleTable(session, SCHEMA, KEY) for session in (None, spark)]
    named = [storability.describe_unstorable(table.window(7, *EDITS)) for table in tables]
    assert named[0] == named[1]
    assert "column 'name' at version 7 holds text with a NUL" in str(named[0])
    assert len({storability.describe_unstorable(table.snapshot(7, [PLAIN, WITH_NUL])) for table in tables}) == 1
    assert {storability.describe_unstorable(table.snapshot(7, [PLAIN])) for table in tables} == {None}


def test_nested_values_are_refused_by_name() -> None:
    table = SampleTable(None, StructType().add("id", "long").add("tags", ArrayType(StringType())), ("id",))
    with pytest.raises(ConfigError, match="column 'tags' is nested"):
        wire.wire_net_on_driver(table.window(2, [insert({"id": 1, "tags": ["a"]})]), StagingOptions())
