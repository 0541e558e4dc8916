"""A topic and a person who is erased: no fresh copy of the row in it, and what is left is found, with the day it goes."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from audit.erasure.commit_marker import erasing_metadata
from audit.erasure.scan.search_terms import SearchTerm, SearchTerms
from audit.erasure.sink_contract import ErasureTask
from cdf import Pipeline
from cdf.errors import WindowOutOfOrder
from cdf.sink.guard import Guard
from connectors.kafka import EventFormat
from tests.fixtures.fix_kafka import Kafka
from tests.integration.delta_table import Table, setting
from tests.integration.erasures import Knows, KnowsOfNone
from tests.integration.test_kafka_pipeline import Topic

pytestmark = pytest.mark.usefixtures("interpreted")

CANARY = "canary.person@example.org"
TERMS = SearchTerms([SearchTerm("R-1", CANARY, "v")])
DAY = 24 * 3600 * 1000


def erasing(table: Table, version: int) -> ErasureTask:
    def nobody(*_: Any) -> Any:
        raise AssertionError("a topic needs no keys: the tombstones came through the feed, which may forget them")

    return ErasureTask("er-1", ("R-1",), table.path, (version,), ("id",), "delete", ("v",), nobody, nobody, TERMS)


def person(spark: SparkSession, path: str) -> Table:
    table = Table(spark, path)
    table.sql("insert into {t} select id, concat('a', id) from range(5)")
    spark.createDataFrame([(700, CANARY)], "id long, v string").write.format("delta").mode("append").save(path)
    return table


def erase(table: Table, key: int) -> int:
    metadata = erasing_metadata("er-1", ["R-1"])
    with setting(table.spark, "spark.databricks.delta.commitInfo.userMetadata", metadata):
        table.sql(f"delete from {{t}} where id = {key}")
    return 3


def guarded(topic: Topic, guard: Guard | None = None) -> Pipeline:
    pipeline = topic.pipeline()
    pipeline.context.guard = guard or Knows()
    return pipeline


@pytest.mark.parametrize("small", [1024 * 1024, -1], ids=["driver", "tasks"])
def test_what_the_topic_gets_and_has_left(spark: SparkSession, kafka: Kafka, delta_path: str, small: int) -> None:
    table = person(spark, delta_path)
    config = {"cleanup.policy": "compact", "max.compaction.lag.ms": DAY, "segment.ms": DAY, "delete.retention.ms": DAY}
    topic = Topic(kafka, table, small_window_bytes=small, config=config)
    topic.pipeline().run()
    version = erase(table, 700)
    sink = topic.sink()
    with pytest.raises(WindowOutOfOrder):
        sink.erasure.erase(erasing(table, version))
    table.sql("delete from {t} where id = 3")  # the control: an ordinary delete has its image, in the same window
    guarded(topic).run()
    assert sink.erasure.erase(erasing(table, version)) == {}

    last = [one for one in topic.messages() if json.loads(one.key or b"")["id"] == 700]
    read, deleted, tombstone = last
    assert json.loads(read.value or b"")["after"]["v"] == CANARY
    told = json.loads(deleted.value or b"")
    assert (told["op"], told["before"], told["after"]) == ("d", None, None)
    assert tombstone.value is None
    assert {(one.key, one.partition) for one in last} == {(read.key, read.partition)}
    [other] = [one for one in topic.messages() if b'"op":"d"' in (one.value or b"") and b'"id":3' in (one.value or b"")]
    assert json.loads(other.value or b"")["before"]["v"] == "a3"

    found = sink.erasure.scan(TERMS)
    assert [(one.request, one.reason, one.count) for one in found.finds] == [("R-1", "record", 1)]
    today = dt.datetime.now(dt.UTC).date()
    [clears_on] = [one.clears_on for one in found.finds]
    assert clears_on is not None
    assert 2 <= (clears_on - today).days <= 3
    assert {one.what: one.count for one in found.checked}[f"records of {topic.topic}"] >= 9
    waiting = sink.erasure.purge(erasing(table, version), now=dt.datetime.now(dt.UTC))
    assert waiting.waits_until is not None
    assert waiting.waits_until.date() == clears_on


def test_a_topic_that_never_forgets(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    table = person(spark, delta_path)
    topic = Topic(kafka, table, config={"cleanup.policy": "compact"})
    topic.pipeline().run()
    version = erase(table, 700)
    erase(table, 3)
    guarded(topic, KnowsOfNone()).run()
    assert [one.clears_on for one in topic.sink().erasure.scan(TERMS).finds] == [None]
    came = topic.sink().erasure.purge(erasing(table, version), now=dt.datetime.now(dt.UTC))
    assert came.waits_until is None
    assert "max.compaction.lag.ms" in came.out_of_reach[0]

    # A key that is an identifier: the tombstone itself tells it; whole numbers count as whole fields only
    found = topic.sink().erasure.scan(SearchTerms([SearchTerm("R-3", "3", "id")]))
    assert {(one.reason, one.request) for one in found.finds} == {("record", "R-3"), ("tombstone key", "R-3")}
    assert (
        topic.sink().erasure.scan(SearchTerms([SearchTerm("R-9", "999", "id"), SearchTerm("R-8", "a99", "v")])).finds
        == ()
    )


@pytest.mark.parametrize("format", [EventFormat(), EventFormat("row", schemas=True)], ids=["debezium", "connect"])
def test_rows_that_hold_no_identifier(spark: SparkSession, kafka: Kafka, delta_path: str, format: EventFormat) -> None:
    """They are found by their keys; who came back under one, and what nobody erased, is not waited for."""
    table = Table(spark, delta_path)
    table.sql("insert into {t} select id, concat('a', id) from range(5)")
    config = {"cleanup.policy": "compact,delete", "max.compaction.lag.ms": DAY, "segment.ms": DAY}
    topic = Topic(kafka, table, config=config, format=format)
    topic.pipeline().run()
    table.sql("update {t} set v = 'b' where id in (2, 3)")
    version = erase(table, 3)
    table.sql("insert into {t} values (3, 'new')", "update {t} set v = 'newer' where id = 3")
    guarded(topic).run()
    now = dt.datetime.now(dt.UTC)
    waiting = topic.sink().erasure.purge(erasing(table, version), now=now)
    assert waiting.waits_until is not None
    assert 2 <= (waiting.waits_until.date() - now.date()).days <= 3
    assert topic.sink().erasure.scan(TERMS).finds == ()

    # What brokers do in their own time
    ends = {(one.partition, one.offset) for one in topic.messages() if one.value is None}
    [(partition, offset)] = ends
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for done in admin.delete_records([TopicPartition(topic.topic, partition, offset)]).values():
        done.result(30)
    assert [one for one in topic.messages() if one.partition == partition]
    assert topic.sink().erasure.purge(erasing(table, version), now=now).waits_until is None


@pytest.mark.parametrize("knows", [True, False])
def test_a_key_that_comes_back_at_once(spark: SparkSession, kafka: Kafka, delta_path: str, *, knows: bool) -> None:
    """Of several changes of a key in one window a topic of net changes has the last alone: the erasing commit ends it."""
    table = Table(spark, delta_path)
    table.sql("insert into {t} select id, concat('a', id) from range(5)")
    config = {"cleanup.policy": "compact", "max.compaction.lag.ms": DAY, "segment.ms": DAY}
    topic = Topic(kafka, table, config=config, changes="net", format=EventFormat("row"))
    topic.pipeline().run()
    table.sql("update {t} set v = 'b' where id = 3", "insert into {t} values (9, 'c')")
    metadata = erasing_metadata("er-1", ["R-1"])
    with setting(table.spark, "spark.databricks.delta.commitInfo.userMetadata", metadata):
        table.sql("delete from {t} where id = 3")  # 4
    table.sql("insert into {t} values (3, 'new')")
    guarded(topic, Knows() if knows else KnowsOfNone()).run()
    came = topic.sink().erasure.purge(erasing(table, 4), now=dt.datetime.now(dt.UTC))
    assert (came.waits_until is not None) is knows


def test_rows_without_identifiers_where_nothing_is_compacted(
    spark: SparkSession, kafka: Kafka, delta_path: str
) -> None:
    table = Table(spark, delta_path)
    table.sql("insert into {t} select id, concat('a', id) from range(5)", "update {t} set v = 'b'")
    topic = Topic(kafka, table, config={"cleanup.policy": "compact"})
    topic.pipeline().run()
    came = topic.sink().erasure.purge(erasing(table, erase(table, 3)), now=dt.datetime.now(dt.UTC))
    assert not came.out_of_reach  # its tombstone is not there yet: there is no later record
    guarded(topic, KnowsOfNone()).run()
    came = topic.sink().erasure.purge(erasing(table, 3), now=dt.datetime.now(dt.UTC))
    assert came.waits_until is None
    assert "max.compaction.lag.ms" in came.out_of_reach[0]
