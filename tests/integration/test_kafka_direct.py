"""Events of a small window that is read without a Spark job are, byte for byte, those of the same window read by Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdf.changes.window import Window
from cdf.source.direct_reader import read_directly
from connectors.kafka import EventFormat
from connectors.kafka.write import window_writer
from connectors.kafka.write.event_builder import EventBuilder, EventRows
from tests.fixtures.fix_kafka import Kafka
from tests.integration.delta_table import Table
from tests.integration.test_direct_reader import columns_of, insert, refuse_spark, window_of
from tests.integration.test_kafka_pipeline import Topic

WITHHELD = {2}


def build(window: Window, format: EventFormat, *, net: bool) -> EventRows:
    rows = window.net(transients=True) if net else window.read()
    builder = EventBuilder(rows, window.key, "t", "id", "flow", format, 3)
    return builder.build_net() if net else builder.build_changes(WITHHELD)


@pytest.mark.parametrize("net", [False, True], ids=["changes", "net"])
@pytest.mark.parametrize("envelope", ["debezium", "row"])
@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schemas"])
def test_images_and_events_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, seed: int, envelope: str, schemas: bool, net: bool
) -> None:
    chance = random.Random(f"{seed} {envelope} {schemas} {net}")
    columns = columns_of(chance)
    if schemas:  # Connect reads NaN and infinities as 0, so they are refused
        columns = {name: kind for name, kind in columns.items() if kind not in ("float", "double")}
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    table = Table(spark, str(tmp_path / "t"), f"id long, {ddl}")
    insert(table, columns, range(30), chance)
    table.sql("update {t} set id = id + 1000 where id % 3 = 0")
    table.sql("update {t} set id = -id where id % 4 = 1", "delete from {t} where id < 10")
    if not net:
        insert(table, columns, range(10, 15), chance)  # keys twice
    window = window_of(table, 1)
    direct = read_directly(window, times=True)
    assert direct is not None
    format = EventFormat(envelope, schemas=schemas)  # type: ignore[arg-type]
    read, found = build(window, format, net=net), build(direct, format, net=net)
    expected, images = read.images.coalesce(1).toArrow(), found.collect_images()
    assert images.num_rows > 30
    assert images == expected.cast(images.schema)
    events = [list(one.assembler.assemble(of.to_batches())) for one, of in ((read, expected), (found, images))]
    assert events[0] == events[1]


def test_a_window_without_rows_has_no_images(spark: SparkSession) -> None:
    feed = spark.createDataFrame([], "id long, _change_type string, _commit_version long, _commit_timestamp timestamp")
    rows = EventBuilder(feed, ("id",), "t", "id", "flow", EventFormat(), 3).build_changes(())
    assert rows.collect_images().equals(pa.Table.from_batches([], rows.collect_images().schema))


def copied_topic(spark: SparkSession, kafka: Kafka, folder: Path, rows: int, **options: Any) -> Topic:
    """A topic with the copy of a table of so many rows."""
    table = Table(spark, str(folder / "t"))
    table.sql(f"insert into {{t}} select id, 'a' from range({rows})")
    topic = Topic(kafka, table, **options)
    topic.pipeline().run()
    return topic


@pytest.mark.parametrize("envelope", ["debezium", "row"])
def test_a_small_window_reaches_kafka_without_reading_it_by_spark(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, envelope: str
) -> None:
    topic = copied_topic(spark, kafka, tmp_path, 4, format=EventFormat(envelope))  # type: ignore[arg-type]
    topic.table.sql(
        "update {t} set v = 'b' where id = 1", "delete from {t} where id = 2", "insert into {t} values (9, null)"
    )
    with monkeypatch.context() as patched:
        refuse_spark(patched)
        result = topic.pipeline().run()
    assert (result.inserts, result.updates, result.deletes) == (1, 1, 1)
    topic.holds_the_table()


def test_rows_whose_text_may_be_large_are_read_by_spark(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = copied_topic(spark, kafka, tmp_path, 4)
    topic.table.sql("insert into {t} select id + 10, 'a' from range(4)")
    monkeypatch.setattr(window_writer, "DRIVER_BYTES", 4 * 100)
    monkeypatch.setattr(window_writer, "collect_images", lambda *_: pytest.fail("the rows were rendered in memory"))
    assert topic.pipeline().run().inserts == 4
    topic.holds_the_table()


def test_updates_of_more_rows_than_the_driver_reads_reach_kafka(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """An update is two rows and one event."""
    topic = copied_topic(spark, kafka, tmp_path, 11_000)
    topic.table.sql("update {t} set v = 'b'")
    assert topic.pipeline().run().updates == 11_000
    topic.holds_the_table()


def test_the_estimate_of_the_text_is_not_too_small(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "t"), "id long, v string, b binary, n decimal(38,18), t timestamp, d double")
    table.sql(
        "insert into {t} select -id, repeat('\\u0001', 50), unhex(repeat('ff', 50)),"
        " -99999999999999999999.123456789012345678, timestamp'1999-12-31 23:59:59.123456', -1.2345678901234567e-300"
        " from range(100)"
    )
    window = window_of(table, 1)
    direct = read_directly(window, times=True)
    assert direct is not None
    images = build(direct, EventFormat("debezium"), net=False).collect_images()
    assert sum(map(len, images["image"].to_pylist())) <= window_writer._estimate_json_bytes(direct)
