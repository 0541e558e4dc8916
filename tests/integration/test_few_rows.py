"""What passes through the driver is bounded by its size in memory, not by the size of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import cdf.changes.few_rows
from audit.audit_trail import Trail
from audit.trail.tables import PAYLOAD
from cdf import ChangeFeed, Pipeline
from cdf.changes.few_rows import DRIVER_BYTES, DRIVER_ROWS, few_rows
from connectors.delta_audit.sink import DeltaAuditSink
from connectors.kafka import Cluster, EventFormat, KafkaSink
from tests.fixtures.fix_kafka import Kafka
from tests.fixtures.fix_postgres import Pg
from tests.integration.delta_table import Table
from tests.integration.postgres_case import sink_of

LARGE = "repeat('x', 1000000)"
LOGGED = "the rows are too many for the driver"


@pytest.fixture(scope="module")
def wide(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """40 rows of a megabyte, in a few kilobytes of one file."""
    path = str(tmp_path_factory.mktemp("wide") / "rows")
    spark.range(40, numPartitions=1).selectExpr("id", f"{LARGE} as v").write.parquet(path)
    return spark.read.parquet(path)


def test_few_rows_are_returned_unchanged_and_in_order(spark: SparkSession) -> None:
    rows = spark.range(2000, numPartitions=1).selectExpr(
        "2000 - id as id",
        "if(id % 7 = 0, null, repeat('é', cast(id / 10 as int))) as `te``xt`",
        "if(id % 5 = 0, null, cast(repeat('b', 50) as binary)) as `b.in`",
        "if(id % 2 = 0, null, struct(nullif(id, 1) as n)) as nested",
        "map('k', array(struct(id as n, null as nothing))) as deep",
    )
    found = few_rows(rows)
    assert found is not None
    assert found.equals(rows.toArrow())
    empty = few_rows(rows.where("id < 0"))
    assert empty is not None
    assert (empty.num_rows, empty.column_names) == (0, rows.columns)


@pytest.mark.parametrize(
    ("value", "most"),
    [
        ("v", 33),
        ("cast(v as binary)", 33),
        ("struct(cast(v as binary) as b, 1 as n)", 33),
        ("array(v)", 11),
        ("array(map(v, 1))", 3),
    ],
)
def test_the_limit_of_bytes(wide: DataFrame, value: str, most: int) -> None:
    found = few_rows(wide.where(f"id < {most}").selectExpr("id", f"{value} as v"))
    assert found is not None
    assert (found.num_rows, found.nbytes <= DRIVER_BYTES) == (most, True)
    assert few_rows(wide.where(f"id <= {most}").selectExpr("id", f"{value} as v")) is None


def test_rows_of_many_columns(spark: SparkSession) -> None:
    """The sum of 500 sizes overflowed the stack of Spark's parser."""
    rows = spark.range(2, numPartitions=1).selectExpr("id", *(f"concat('{n}-', id) as `c{n}`" for n in range(1000)))
    found = few_rows(rows)
    assert found is not None
    assert (found.num_rows, found["c999"].to_pylist()) == (2, ["999-0", "999-1"])


def test_the_limit_of_rows_and_of_one_row(spark: SparkSession) -> None:
    found = few_rows(spark.range(DRIVER_ROWS, numPartitions=3))
    assert found is not None
    assert found.num_rows == DRIVER_ROWS
    assert few_rows(spark.range(DRIVER_ROWS + 1, numPartitions=3)) is None
    assert few_rows(spark.range(1).selectExpr("repeat(cast(id as string), 34000000)")) is None


def test_no_type_takes_more_in_arrow_than_is_counted(spark: SparkSession) -> None:
    elements = {
        "double": "1.0D",
        "long": "1L",
        "decimal": "cast(0 as decimal(38, 0))",
        "timestamp": "timestamp'2020-01-01 00:00:00'",
        "boolean": "true",
        "interval": "interval 1 day",
        "no text": "cast(null as string)",
        "empty": "''",
        "empty list": "cast(array() as array<int>)",
        "no struct": "cast(null as struct<a: decimal(38, 0), b: struct<c: decimal(38, 0), d: string>, e: array<int>>)",
        "map": "map(1L, 1.0D)",
        "variant": "parse_json('1')",
    }
    lists = [
        f"transform(sequence(1, 1000 + cast(id as int)), x -> {one}) as `{name}`" for name, one in elements.items()
    ]
    rows = spark.range(20, numPartitions=1).selectExpr(*lists)
    few = cdf.changes.few_rows
    sizes = [f"sum({few._width(field.dataType)}L + {few._text_size(field) or 0})" for field in rows.schema.fields]
    counted = rows.selectExpr(*sizes).collect()[0]
    taken = [rows.select(f"`{name}`").toArrow().nbytes for name in rows.columns]
    # Beside the rows there are the bits that say which of them are null, and one offset more than elements
    wrong = [name for name, size, most in zip(elements, taken, counted, strict=True) if size > most * 1.05 + 1024]
    assert not wrong


# ── into the targets ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("into", ["postgres", "kafka", "trail"])
def test_a_small_file_of_large_rows_goes_by_the_tasks(
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    into: str,
) -> None:
    table = Table(spark, str(tmp_path / "source"))
    sink, rows = _target(into, spark, tmp_path, request)
    pipeline = Pipeline(ChangeFeed(spark, table.path), sink, key=("id",), name="large")
    pipeline.run()
    few = [33] if into == "trail" else []  # the others read the few rows from the file, without a query
    collected: list[int | None] = []
    noting = _noting(collected)
    monkeypatch.setattr("cdf.changes.few_rows.collect_few", noting)
    monkeypatch.setattr("connectors.kafka.write.strategies.collect_few", noting)
    with caplog.at_level("INFO", "deltarelay"):
        table.sql(f"insert into {{t}} select id, {LARGE} from range(33)")
        assert pipeline.run().position == 1
        assert (collected, LOGGED in caplog.text) == (few, False)
        table.sql(f"insert into {{t}} select id, {LARGE} from range(100, 134)")
        assert pipeline.run().position == 2
        assert (collected, LOGGED in caplog.text) == ([*few, None], True)
    assert rows() == dict.fromkeys((*range(33), *range(100, 134)), 1_000_000)


def _noting(collected: list[int | None]) -> Callable[[DataFrame], Any]:
    collect = cdf.changes.few_rows.collect_few

    def noting(rows: DataFrame) -> Any:
        found = collect(rows)
        collected.append(None if found is None else found.num_rows)
        return found

    return noting


def _target(
    into: str, spark: SparkSession, folder: Path, request: pytest.FixtureRequest
) -> tuple[Any, Callable[[], dict[int, int]]]:
    """A sink, and what reads id and length of each row from its target; a row that is there twice fails."""
    if into == "postgres":
        pg: Pg = request.getfixturevalue("pg")
        return sink_of(pg), lambda: _once(pg.query("select id, length(v) from {schema}.target"))
    if into == "kafka":
        kafka: Kafka = request.getfixturevalue("kafka")
        topic = kafka.topic()
        sink = KafkaSink(
            Cluster(kafka.bootstrap),
            topic=topic,
            lanes=2,
            position_topic=f"{kafka.prefix}-positions",
            format=EventFormat("row"),
        )
        return sink, lambda: _once([_read(one) for one in kafka.consume(topic)])
    trail = Trail(spark, str(folder / "trail"))

    def payload() -> dict[int, int]:
        assert trail.verify()[0].findings == ()
        return _once(trail.tables.read(PAYLOAD).selectExpr("row.id", "length(row.v)").collect())

    return DeltaAuditSink(trail.path, spark=spark), payload


def _read(message: Any) -> tuple[int, int]:
    row = json.loads(message.value)
    return row["id"], len(row["v"])


def _once(rows: Any) -> dict[int, int]:
    found = {row[0]: row[1] for row in rows}
    assert len(found) == len(rows)
    return found
