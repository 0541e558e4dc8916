"""Windows and snapshots in memory mean what those of a Delta table mean: the same changes, made both ways, compared."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdf.changes.canonical import key_digest, plain_decimals
from cdf.changes.columns import COMMIT_TIMESTAMP
from cdf.changes.in_memory import key_digests
from cdf.changes.row_count import count_rows
from cdf.changes.window import Window
from cdf.errors import ConfigError, KeyViolation
from cdf.source.table import ChangeFeed
from cdf.spark_versions import collect_arrow
from cdf.testing import SampleTable, delete, insert, update
from cdf.testing.changes import Row

SCHEMA = (
    StructType()
    .add("id", "long")
    .add("part", "string")
    .add("amount", "decimal(12,3)")
    .add("at", "timestamp")
    .add("local", "timestamp_ntz")
    .add("day", "date")
    .add("raw", "binary")
    .add("ratio", "double")
    .add("yes", "boolean")
    .add("small", "byte")
)
KEY = ("id", "part")
MOMENT = dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC)


def row(id_: int, part: str, **values: Any) -> Row:
    return {"id": id_, "part": part, **values}


A = row(1, "a", amount=Decimal("1.500"), at=MOMENT, local=dt.datetime(1999, 1, 1, 5), day=dt.date(1582, 10, 4))
B = row(2, "é\U0001f600", raw=b"\x00\xff", ratio=-0.0, yes=False, small=-128)
C, D = row(3, "c", yes=True), row(4, "")
START = [A, B, C]
SECOND = [insert(D), update(A, {**A, "ratio": 0.1}), delete(C)]
THIRD = [update(D, {**D, "part": "moved"}), insert(row(9, "short"))]
FOURTH = [delete(row(9, "short")), insert(row(3, "c", small=5)), delete(B)]


def written(spark: SparkSession, path: str) -> ChangeFeed:
    """The same changes in a Delta table: START is version 1, the others follow."""
    put = lambda rows: spark.createDataFrame([tuple(one.get(name) for name in SCHEMA.names) for one in rows], SCHEMA)  # noqa: E731
    spark.sql(
        f"create table delta.`{path}` ({', '.join(f'`{f.name}` {f.dataType.simpleString()}' for f in SCHEMA.fields)}) "
        "using delta tblproperties (delta.enableChangeDataFeed = true)"
    )
    put(START).write.format("delta").mode("append").save(path)
    kept = StructType(list(SCHEMA.fields)).add("kind", "string").add("was", "string")
    for edits in (SECOND, THIRD, FOURTH):  # one commit each; ``was`` finds the row whose key changes
        after = [
            (*(edit[-1].row.get(name) for name in SCHEMA.names), edit[-1].type, edit[0].row["part"]) for edit in edits
        ]
        (
            DeltaTable.forPath(spark, path)
            .alias("t")
            .merge(spark.createDataFrame(after, kept).alias("s"), "t.id = s.id and t.part = s.was")
            .whenMatchedDelete("s.kind = 'delete'")
            .whenMatchedUpdate(set={name: f"s.{name}" for name in SCHEMA.names})
            .whenNotMatchedInsert("s.kind = 'insert'", {name: f"s.{name}" for name in SCHEMA.names})
            .execute()
        )
    return ChangeFeed(spark, path)


def rows_of(table: pa.Table) -> list[str]:
    """Values and their Arrow types, in one order. The times of commits are another matter."""
    assert table.schema.names
    kinds = {field.name: str(field.type) for field in table.schema}
    told = [
        {name: (kinds[name], value) for name, value in one.items() if name != COMMIT_TIMESTAMP}
        for one in table.to_pylist()
    ]
    return sorted(map(repr, told))


def plain(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Spark gives binary values as ``bytearray``."""
    told = lambda value: bytes(value) if isinstance(value, bytearray) else value  # noqa: E731
    return sorted(repr({name: told(value) for name, value in one.items() if name != COMMIT_TIMESTAMP}) for one in rows)


def as_window(table: SampleTable, feed: ChangeFeed, like: Window) -> Window:
    read = lambda: feed.read(start_version=like.first, end_version=like.last)  # noqa: E731
    return Window(table.table, table.table_id, table.schema, table.key, like.commits, read, like.source)


def same_windows(one: Window, other: Window) -> None:
    assert rows_of(one.collect()) == rows_of(other.collect())
    assert plain(one.iterate()) == plain(other.iterate())
    for transients in (False, True):
        assert rows_of(one.collect_net(transients=transients)) == rows_of(other.collect_net(transients=transients))
        assert plain(one.iterate_net(transients=transients)) == plain(other.iterate_net(transients=transients))
    assert one.count_net() == other.count_net()
    names = {"part": "section", "id": "number", "amount": "sum"}
    schema = StructType().add("section", "string").add("number", "long").add("sum", "decimal(12,3)")
    mine, yours = one.project(names, schema), other.project(names, schema)
    assert (mine.key, mine.schema) == (yours.key, yours.schema) == (("number", "section"), schema)
    assert rows_of(mine.collect_net()) == rows_of(yours.collect_net())


def refusal(window: Window) -> tuple[str, Any] | None:
    try:
        window.refuse_key_changes()
    except KeyViolation as error:
        return error.message, error.fields
    return None


def test_changes_in_memory_are_those_that_delta_records(spark: SparkSession, delta_path: str) -> None:
    feed = written(spark, delta_path)
    table = SampleTable(None, SCHEMA, KEY)
    for first, commits in ((2, [SECOND]), (2, [SECOND, THIRD, FOURTH]), (3, [THIRD, FOURTH]), (4, [FOURTH])):
        window = table.window(first, *commits)
        of_delta = as_window(table, feed, window)
        same_windows(window, of_delta)
        refused = refusal(window)
        assert refused == refusal(of_delta)
        assert (refused is not None) is (first <= 3 <= window.last)


def test_snapshots_in_memory_are_those_of_spark(spark: SparkSession) -> None:
    table, other = SampleTable(None, SCHEMA, KEY), SampleTable(spark, SCHEMA, KEY)
    rows = [*START, D]
    one, two = table.snapshot(7, rows), other.snapshot(7, rows)
    assert rows_of(one.collect()) == rows_of(two.collect())
    assert plain(one.iterate()) == plain(two.iterate())
    same_windows(one.as_inserts(), two.as_inserts())
    assert one.key_faults() == two.key_faults()
    faulty = [A, A, B, B, B, {"part": "no id"}, {"id": 5}, {"id": 5}]
    assert table.snapshot(7, faulty).key_faults() == other.snapshot(7, faulty).key_faults()
    assert str(table.snapshot(7, faulty).key_violation()) == str(other.snapshot(7, faulty).key_violation())
    few = [
        rows_of(of.with_keys(key_digests(table.snapshot(7, [A, D]).collect(), SCHEMA, KEY)).collect())
        for of in (one, two)
    ]
    assert few[0] == few[1] == rows_of(table.snapshot(7, [A, D]).collect())


def test_a_keys_digest_is_the_same_in_memory(spark: SparkSession) -> None:
    rows = [
        *START,
        D,
        row(-1, "x", amount=Decimal("-0.001"), ratio=float("nan"), at=dt.datetime(1900, 1, 1, tzinfo=dt.UTC)),
    ]
    rows.append(row(2**62, "y", small=127, ratio=1e300, local=dt.datetime(2020, 1, 1, 0, 0, 10, 120000)))
    snapshot = SampleTable(spark, SCHEMA, KEY).snapshot(1, rows)
    for key in [KEY, *((name,) for name in SCHEMA.names)]:
        with plain_decimals(spark):
            found = collect_arrow(snapshot.read().select(key_digest(SCHEMA, key)))[0].to_pylist()
        assert key_digests(snapshot.collect(), SCHEMA, key) == found, key


def test_what_a_key_refuses_it_refuses_in_the_same_words(spark: SparkSession) -> None:
    for edits in ([insert(D), insert(D)], [insert({"id": 1}), delete(A)]):
        told = []
        for session in (None, spark):
            with pytest.raises(KeyViolation) as caught:
                SampleTable(session, SCHEMA, KEY).window(7, [insert(B)], edits).collect_net()
            told.append((str(caught.value), caught.value.to_dict()))
        assert told[0] == told[1]


def test_there_is_no_dataframe_in_memory() -> None:
    table = SampleTable(None, SCHEMA, KEY)
    for ask in (table.window(2, SECOND).read, table.window(2, SECOND).net, table.snapshot(1, START).read):
        with pytest.raises(ConfigError, match="no Spark session to create a DataFrame"):
            ask()


def test_the_rows_of_a_window_in_memory_are_counted() -> None:
    assert count_rows(SampleTable(None, SCHEMA, KEY).window(2, SECOND, [], THIRD)).rows_in() == 7
