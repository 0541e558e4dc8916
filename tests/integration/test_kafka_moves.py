"""A topic's position moved by a person: to another number of lanes, back, forward, or taken over."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdf import Limits
from cdf.errors import RowRejected, TargetNotReady, VerificationError
from cdf.pipeline.move_position import Action, make_move, plan_move
from cdf.sink import Movable
from connectors.kafka import Cluster, EventFormat
from connectors.kafka.client import TransactionalProducer
from connectors.kafka.errors import KafkaFault
from connectors.kafka.state.position import get_lane_id
from connectors.kafka.write import window_writer
from tests.fixtures.fix_kafka import Kafka
from tests.integration.test_kafka_pipeline import Topic, people

ROW = EventFormat("row")


def move(topic: Topic, action: Action, version: int | None = None, **options: Any) -> None:
    pipeline = topic.pipeline(**options)
    make_move(pipeline.sink, plan_move(pipeline.context, action, version), reason="a test")


@pytest.mark.parametrize("lanes", [5, 1])
def test_another_number_of_lanes_at_a_clean_border(
    spark: SparkSession, kafka: Kafka, delta_path: str, lanes: int
) -> None:
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    table.sql("update {t} set v = 'b' where id < 5", "delete from {t} where id = 7")
    with pytest.raises(TargetNotReady, match=r"position set 1 -p people"):
        topic.pipeline(lanes=lanes).run()

    # What a lane has open that there is not any more must not come in later
    left = TransactionalProducer(Cluster(kafka.bootstrap), get_lane_id(topic.topic, 2))
    left.init()
    left.begin()
    left.produce(topic.topic, b'{"id":2}', b"from another time")
    left.flush()

    move(topic, "set", 1, lanes=lanes)
    with pytest.raises(KafkaFault):
        left.commit()
    left.close()
    assert topic.pipeline(lanes=lanes).run().position == 3
    topic.holds_the_table()
    assert topic.pipeline(lanes=lanes).verify().equal
    with pytest.raises(TargetNotReady, match="lanes"):
        topic.pipeline().run()

    standing = topic.sink().standing()
    assert (standing.position.version, standing.epoch, standing.lease_holder) == (3, 3, None)
    assert standing.source == table.path
    [record] = standing.records
    assert (record.action, record.from_version, record.to_version, record.reason) == ("set", 1, 1, "a test")


def test_what_is_applied_again_is_written_again_where_last_values_count(
    spark: SparkSession, kafka: Kafka, delta_path: str
) -> None:
    """With the very bounds that a window had before: that its lanes have those already must not hide them."""
    table = people(spark, delta_path)
    topic = Topic(kafka, table, changes="net", format=ROW, config={"cleanup_policy": "compact"})
    table.sql("update {t} set v = 'b' where id < 5", "delete from {t} where id = 7")
    topic.pipeline().run()
    table.sql("insert into {t} values (30, 'c')", "delete from {t} where id = 8")
    topic.pipeline(limits=Limits(max_commits=1)).run()
    assert topic.sink().position().version == 5
    before = len(topic.messages())
    move(topic, "rewind", 3)
    assert topic.pipeline(limits=Limits(max_commits=1)).run().windows == 2
    assert len(topic.messages()) == before + 2
    assert topic.pipeline().verify().equal
    table.sql("delete from {t} where id = 30")
    move(topic, "rewind", 3)
    assert topic.pipeline().run().windows == 1  # in which 30 comes and goes, and the topic has a record of it
    assert 30 not in topic.folded()
    assert topic.pipeline().verify().equal


def test_a_history_goes_forward_only(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    table.sql(
        "insert into {t} values (30, 'c')", "insert into {t} values (31, 'c')", "insert into {t} values (32, 'c')"
    )
    topic.pipeline(limits=Limits(max_commits=1)).run(until=2)
    with pytest.raises(TargetNotReady, match="written twice"):
        move(topic, "rewind", 1)
    move(topic, "set", 3)
    assert topic.pipeline().run().position == 4
    assert {30, 32} <= topic.folded().keys()
    assert 31 not in topic.folded()


def test_a_topic_whose_position_was_lost_is_taken_over(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    table.sql("insert into {t} values (30, 'c')")
    found = Topic(kafka, table, name=topic.topic, position_topic=f"{kafka.prefix}-other")
    with pytest.raises(TargetNotReady, match="no position"):
        found.pipeline().run()
    with pytest.raises(VerificationError, match="1 rows missing"):
        move(found, "adopt")
    table.sql("delete from {t} where id = 30")
    with pytest.raises(TargetNotReady, match=r"last event of .* is of version 1"):
        move(found, "adopt")  # the rows are equal, and the events of two versions would never be written
    move(found, "adopt", 1)
    assert found.pipeline().run().position == 3
    found.holds_the_table()

    empty = Topic(kafka, table, name=kafka.topic("empty"))
    pipeline = empty.pipeline()
    with pytest.raises(TargetNotReady, match="no events"):
        make_move(pipeline.sink, plan_move(pipeline.context, "adopt", 1, compare=False))


def test_in_the_middle_of_a_window_nothing_moves(
    spark: SparkSession, kafka: Kafka, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a window in lanes; few events in one transaction have no middle."""
    monkeypatch.setattr(window_writer, "TRANSACTION_BYTES", 0)
    table = people(spark, delta_path)
    topic = Topic(kafka, table, config={"max_message_bytes": 20_000})
    topic.pipeline().run()
    table.sql("update {t} set v = if(id = 5, repeat('b', 30000), 'b')")
    with pytest.raises(RowRejected):
        topic.pipeline().run()
    with pytest.raises(TargetNotReady, match="finishes it"):
        move(topic, "set", 2)
    with pytest.raises(TargetNotReady, match="finished with that number first"):
        topic.pipeline(lanes=1).run()
    assert topic.sink().standing().records == ()
    assert isinstance(topic.sink(), Movable)
