"""The events that Python builds of sorted images, compared with what Spark's window functions and expressions build of them.

Spark's version is the former one of the product: the events of a topic must not change by a release.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Collection
from typing import Any, Literal

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdf.changes.columns import COMMIT_TIMESTAMP
from cdf.changes.net_spark import net_effect
from cdf.testing.model import KEY, random_history
from connectors.kafka import EventFormat
from connectors.kafka.connect_schema import build_envelope_schema, build_key_schema, build_row_schema
from connectors.kafka.event_format import select_table_columns
from connectors.kafka.write.event_assembler import ADDED, AFTER, BEFORE, REMOVED
from connectors.kafka.write.event_builder import EventBuilder
from tests.integration.test_kafka_envelope import HISTORIES, _feed_of

FORMATS = [EventFormat(envelope, schemas) for envelope in ("debezium", "row") for schemas in (False, True)]
NAMES = ["case_id", *KEY]
SOURCE = {"connector": "deltarelay", "name": "flow", "table": "sample", "table_id": "id-1"}
COLUMNS = ["lane", "key", "value", "op", "version", "timestamp", "change_type", "again", "event_id"]


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def build_in_spark(
    images: DataFrame, rows: DataFrame, format: EventFormat, kind: str, withheld: Collection[int]
) -> DataFrame:
    texts = images.select(
        "lane", "version", "side", "again", F.timestamp_micros("at").alias("timestamp"),
        F.col("key").cast("string").alias("key"), F.col("image").cast("string").alias("image"),
    )  # fmt: skip
    over = Over.partitionBy("lane", "version", "key").orderBy("side", "image")
    texts = texts.withColumn("number", F.row_number().over(over))  # rows that are equal are written one after the other
    side, nothing = F.col("side"), F.lit(None).cast("string")
    if kind == "net":
        op = F.when(side == ADDED, "c").when(side == AFTER, "u").when(side == REMOVED, "d")
        changes = texts.withColumns({"op": op, "before": nothing})
    elif kind == "snapshot":
        changes = texts.withColumns({"op": F.lit("r"), "before": nothing, "again": F.lag(F.lit(1), 1, 0).over(over)})
    else:
        before, after = F.lag(side).over(over), F.lead(side).over(over)
        repeated = ((side >= AFTER) & (before >= AFTER)) | ((side < AFTER) & (after < AFTER))
        marked = texts.withColumns(
            {
                "joined": F.coalesce((side == BEFORE) & (after == AFTER), F.lit(False)),
                "update": F.coalesce((side == AFTER) & (before == BEFORE), F.lit(False)),
                "neighbour": F.lag("image").over(over),
                "again": F.coalesce(repeated, F.lit(False)).cast("int"),
            }
        ).where("not joined")
        image = F.when(F.col("update"), F.col("neighbour")).when(side < AFTER, F.col("image"))
        if withheld:
            image = F.when(~F.col("version").isin(*withheld), image)
        op = F.when(F.col("update"), "u").when(side >= AFTER, "c").otherwise("d")
        changes = marked.withColumns({"op": op, "before": image})
    return _build_records(changes, rows, format, is_snapshot=kind == "snapshot")


def _build_records(changes: DataFrame, rows: DataFrame, format: EventFormat, *, is_snapshot: bool) -> DataFrame:
    schema, is_debezium, op = select_table_columns(rows.schema), format.envelope == "debezium", F.col("op")
    if is_debezium:
        ops = F.when(op == "d", F.array(F.lit("d"), F.lit("t"))).otherwise(F.array(op))
    else:
        ops = F.array(F.when(op == "d", "t").otherwise(op))
    found = changes.select("*", F.posexplode(ops).alias("place", "new")).drop("op").withColumnRenamed("new", "op")

    def with_schema(payload: Column, description: dict[str, Any]) -> Column:
        if not format.schemas:
            return payload
        return F.concat(F.lit(f'{{"schema":{dump(description)},"payload":'), payload, F.lit("}"))

    value = F.col("image")
    if is_debezium:
        time = F.coalesce(F.unix_millis("timestamp").cast("string"), F.lit("null"))
        source = dump({**SOURCE, "snapshot": str(is_snapshot).lower()}).removesuffix("}")
        value = F.concat(
            F.lit('{"before":'), F.coalesce("before", F.lit("null")),
            F.lit(',"after":'), F.coalesce(F.when(op != "d", F.col("image")), F.lit("null")),
            F.lit(f',"source":{source},"ts_ms":'), time,
            F.lit(',"commit_version":'), F.col("version").cast("string"),
            F.lit('},"op":"'), op, F.lit('","ts_ms":'), time, F.lit("}"),
        )  # fmt: skip
    describe = build_envelope_schema if is_debezium else build_row_schema
    side = F.col("side")
    kinds = F.when((side == AFTER) & (op == "c"), "update_postimage")
    kinds = kinds.when((side == BEFORE) & op.isin("d", "t"), "update_preimage")
    for code, name in (("c", "insert"), ("u", "update"), ("d", "delete"), ("t", "delete"), ("r", "snapshot")):
        kinds = kinds.when(op == code, name)
    records = found.withColumns(
        {
            "text": F.col("key"),
            "key": with_schema(F.col("key"), build_key_schema(schema, NAMES, "flow")),
            "value": F.when(op != "t", with_schema(value, describe(schema, NAMES, "flow"))),
            "change_type": kinds,
        }
    )
    parts = (F.lit("id-1"), F.col("version").cast("string"), op, F.col("key"), F.coalesce("value", F.lit("")))
    ids = records.withColumn("event_id", F.md5(F.concat_ws("\n", *parts).cast("binary")))
    bytes_of = {name: F.col(name).cast("binary") for name in ("key", "value")}
    return ids.orderBy("lane", "version", "text", "number", "place").withColumns(bytes_of).select(*COLUMNS)


@pytest.mark.parametrize("kind", ["changes", "withheld", "net", "snapshot"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_events_are_those_that_spark_builds(
    spark: SparkSession, format: EventFormat, kind: Literal["changes", "withheld", "net", "snapshot"]
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    feed, _, _ = _feed_of(spark, [random_history(source) for _ in range(HISTORIES // 2)])
    # Keys that are held twice or three times, and special characters; times before 1970 and unknown ones
    again = feed.where("case_id % 3 = 0").withColumn("name", F.concat(F.lit('é"\\\n\u0001\U0001f600'), "name"))
    time = F.when(F.col("case_id") < 40, F.timestamp_micros(F.lit(source.randrange(-(10**15), 10**15))))
    if kind != "net":  # its input may not hold a key more than once
        feed = feed.unionAll(again).unionAll(again.where("case_id % 2 = 0"))
    feed = feed.withColumn(COMMIT_TIMESTAMP, time)
    feed = (net_effect(feed, NAMES) if kind == "net" else feed).localCheckpoint()
    builder = EventBuilder(feed, NAMES, "sample", "id-1", "flow", format, 3)
    withheld = {2, 3} if kind == "withheld" else set()
    if kind == "net":
        rows = builder.build_net()
    elif kind == "snapshot":
        rows = builder.build_snapshot(7, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC))
    else:
        rows = builder.build_changes(withheld)
    found = rows.build_events().select(*COLUMNS).collect()
    expected = build_in_spark(rows.images.localCheckpoint(), feed, format, kind, withheld).collect()
    assert len(found) > 100
    assert found == expected
