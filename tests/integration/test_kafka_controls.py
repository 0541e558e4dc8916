"""Pauses and approvals of a topic: no decision is lost, none fences a runner, and a brake stops windows of a topic too."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from cdf import ChangeFeed, Pipeline
from cdf.errors import BrakeStopped, Paused
from cdf.sink import Approval, Controls
from cdf.sink.controls import approve_window, pause, resume
from connectors.kafka import Cluster, KafkaSink
from connectors.kafka.state.lease import Lease
from tests.fixtures.fix_kafka import Kafka
from tests.integration.delta_table import Table

NOW = dt.datetime(2026, 3, 1, 9, tzinfo=dt.UTC)


def sink_of(kafka: Kafka, topic: str) -> KafkaSink:
    return KafkaSink(Cluster(kafka.bootstrap), topic=topic, lanes=2, position_topic=f"{kafka.prefix}-positions")


def test_decisions_at_the_same_time_are_all_kept_and_the_runner_keeps_its_lease(kafka: Kafka) -> None:
    topic = kafka.topic()
    assert sink_of(kafka, topic).controls() == Controls()
    sink_of(kafka, topic).change_controls(lambda controls: controls)  # creates the position topic
    lease = Lease(Cluster(kafka.bootstrap), f"{kafka.prefix}-positions", topic, pipeline="p", source="s")
    try:

        def decide(number: int) -> None:
            approval = Approval(number, number, "id", NOW, f"user {number}")
            sink_of(kafka, topic).change_controls(lambda controls: approve_window(controls, approval))

        with ThreadPoolExecutor(3) as threads:
            list(threads.map(decide, range(6)))
        seen = lease.refresh().controls
        lease.write_position(lease.refresh())  # not fenced
    finally:
        lease.close()
    assert sorted(approval.first for approval in seen.approvals) == [0, 1, 2, 3, 4, 5]
    assert sink_of(kafka, topic).controls() == seen


def test_a_runner_that_moves_nothing_is_seen(kafka: Kafka) -> None:
    topic = kafka.topic()
    sink_of(kafka, topic).change_controls(lambda controls: controls)  # creates the position topic
    assert sink_of(kafka, topic).activity().runner_seen_at is None
    seen = []
    for _ in range(2):
        lease = Lease(Cluster(kafka.bootstrap), f"{kafka.prefix}-positions", topic, pipeline="p", source="s")
        alive = sink_of(kafka, topic).activity()
        lease.close()
        ended = sink_of(kafka, topic).activity()
        assert (alive.has_runner, ended.has_runner, ended.moved_at) == (True, False, None)
        seen += [alive.runner_seen_at, ended.runner_seen_at]
    assert None not in seen
    assert len(set(seen)) == 4
    assert seen == sorted(seen, key=str)


def test_a_topic_that_was_never_written_can_be_paused(kafka: Kafka, spark: SparkSession, delta_path: str) -> None:
    topic = kafka.topic()
    table = Table(spark, delta_path)
    table.sql("insert into {t} values (1, 'a')")
    sink_of(kafka, topic).change_controls(lambda found: pause(found, now=NOW, by="maria", reason="migration"))
    pipeline = Pipeline(ChangeFeed(spark, delta_path), sink_of(kafka, topic), key="id")
    with pytest.raises(Paused, match="by maria: migration"):
        pipeline.run()
    assert kafka.consume(topic) == []
    sink_of(kafka, topic).change_controls(lambda found: resume(found, now=NOW, by="maria"))
    pipeline.run()
    assert len(kafka.consume(topic)) == 1


def test_a_brake_stops_a_window_before_its_first_event(kafka: Kafka, spark: SparkSession, delta_path: str) -> None:
    topic = kafka.topic()
    table = Table(spark, delta_path)
    table.sql("insert into {t} select id, 'a' from range(12000)")
    Pipeline(ChangeFeed(spark, delta_path), sink_of(kafka, topic), key="id").run()
    table.sql("delete from {t} where id < 6001")
    with pytest.raises(BrakeStopped, match=r"delete 6,001 of 12,000 rows"):
        Pipeline(ChangeFeed(spark, delta_path), sink_of(kafka, topic), key="id").run()
    assert len(kafka.consume(topic, isolation="read_uncommitted")) == 12_000
    table_id = ChangeFeed(spark, delta_path).log.metadata().table_id
    approval = Approval(2, 2, table_id, NOW, "maria")
    sink_of(kafka, topic).change_controls(lambda controls: approve_window(controls, approval))
    Pipeline(ChangeFeed(spark, delta_path), sink_of(kafka, topic), key="id").run()
    assert len(kafka.consume(topic)) == 12_000 + 2 * 6_001  # a tombstone follows each delete
    controls = sink_of(kafka, topic).controls()
    assert (controls.approvals, controls.stopped) == ((), None)
