"""Few events and the position after them are one transaction of the runner: both are there or neither, wherever it dies."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdf.errors import Fenced, RowRejected, SinkUnavailable, VerificationError
from connectors.kafka.client import TransactionalProducer
from connectors.kafka.errors import KafkaFault
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import PendingWindow, State
from connectors.kafka.target import KafkaTarget
from connectors.kafka.verify import open_image
from connectors.kafka.write import window_writer
from connectors.kafka.write.lane_producers import LaneProducers
from connectors.kafka.write.record_producer import Event, RecordProducer
from connectors.kafka.write.strategies import EventBatch, write_at_once
from tests.fixtures.fix_kafka import Kafka
from tests.integration.test_kafka_lanes import EVENTS, LANES, Lane, event
from tests.integration.test_kafka_pipeline import STORY, Topic, people


@pytest.fixture
def lane(kafka: Kafka) -> Iterator[Lane]:
    made = Lane(kafka)
    made.runner.write_position(before(made))
    yield made
    made.runner.close()


def before(lane: Lane) -> State:
    return dataclasses.replace(lane.runner.refresh(), lanes=LANES, partitions=3, table_id="t", version=4)


def write(lane: Lane, events: list[Event]) -> Any:
    assembler: Any = SimpleNamespace(assemble=lambda _: iter(events))
    batch = EventBatch(PendingWindow("window", 5, 5, "debezium"), _Rows, None, assembler)  # type: ignore[arg-type]
    after = dataclasses.replace(before(lane), version=5)
    (written,) = write_at_once(batch, pa.table({}), lane.work(5, 5), lane.runner, after)
    return written


class _Rows:
    table = "s"


def succeed(lane: Lane) -> State:
    """A new runner: it fences the producers of the former one, and reads the position only then, as ``open`` does."""
    lane.runner._stopped.set()
    lane.runner = lane.taken()
    producers = LaneProducers(build_target(lane), 1_000_000)
    producers.fence_lanes(LANES)
    producers.close()
    return lane.runner.refresh()


def build_target(lane: Lane) -> KafkaTarget:
    return KafkaTarget(
        cluster=lane.cluster,
        topic=lane.topic,
        dead_letter_topic=None,
        position_topic=lane.positions,
        new_topic=None,
        format=None,  # type: ignore[arg-type]
        is_net=False,
        lanes=LANES,
        rejects="refuse",
    )


def expire(lease: Lease) -> None:
    """As in a process that stands still: it renews its lease no more, and the lease ends."""
    lease._stopped.set()
    with lease._gate:
        lease._write({}, epoch=lease.epoch, seconds=0.1)


def kinds(kafka: Kafka, positions: str) -> list[str]:
    """The records of the position topic, oldest first; those that renew the lease are left out."""
    keys = [(message.key or b"").decode().partition(" ")[2] for message in kafka.consume(positions)]
    return [kind for kind in keys if kind not in ("lease", "clock")]


def test_a_window_of_few_events_needs_no_record_before_it(spark: SparkSession, kafka: Kafka, delta_path: str) -> None:
    """And none of lanes: the events of all lanes are in the one transaction that moves the position."""
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    positions = f"{kafka.prefix}-positions"
    loaded = kinds(kafka, positions)
    table.sql(*STORY)
    assert topic.pipeline().run().position == 6
    topic.holds_the_table()
    assert kinds(kafka, positions) == [*loaded, "window"]


def test_events_that_are_not_few_enough_go_through_lanes(
    spark: SparkSession, kafka: Kafka, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_writer, "TRANSACTION_BYTES", 100)
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    positions = f"{kafka.prefix}-positions"
    loaded = kinds(kafka, positions)
    table.sql("update {t} set v = 'b'")
    topic.pipeline().run()
    topic.holds_the_table()
    begun, *lanes, done = kinds(kafka, positions)[len(loaded) :]
    assert (begun, sorted(lanes), done) == ("window", ["lane 0", "lane 1", "lane 2"], "window")


def test_a_first_window_that_failed_is_finished_by_the_next_run(
    spark: SparkSession, kafka: Kafka, delta_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its aborted events are in the topic. With no position and no window on record, they would be another application's."""
    topic = Topic(kafka, people(spark, delta_path))
    with monkeypatch.context() as patch:
        patch.setattr(RecordProducer, "produce", _fail_after_an_event)
        with pytest.raises(SinkUnavailable):
            topic.pipeline(start="earliest").run()
    assert kafka.consume(topic.topic, isolation="read_uncommitted")
    assert topic.messages() == []
    assert topic.pipeline(start="earliest").run().position == 1
    topic.holds_the_table()


def _fail_after_an_event(records: RecordProducer, events: Iterable[Event], **_: Any) -> None:
    key, value, *_others = next(iter(events))
    records._producer.produce(records._work.topic, key, value)
    records._producer.flush()
    raise KafkaFault("_TIMED_OUT")


def test_the_position_of_a_topic_is_read_when_no_transaction_is_open(lane: Lane) -> None:
    """A reader up to the present ends would wait for it, and read events of a version after the position."""
    runner, after = lane.runner, dataclasses.replace(before(lane), version=5)
    sent, go_on = threading.Event(), threading.Event()

    def write_events(producer: TransactionalProducer) -> None:
        producer.produce(lane.topic, b"k", b"v")
        producer.flush()
        sent.set()
        assert go_on.wait(30)

    writer = threading.Thread(target=lambda: runner.write_window(after, write_events))
    writer.start()
    assert sent.wait(30)
    source: Any = None
    caught: list[BaseException] = []

    def verify() -> None:
        try:
            open_image(build_target(lane), source)
        except VerificationError as error:
            caught.append(error)

    reader = threading.Thread(target=verify)
    reader.start()
    reader.join(3)
    assert reader.is_alive()  # it waits
    go_on.set()
    writer.join(30)
    reader.join(30)
    assert "while the comparison started" in str(caught)


def test_what_is_written_and_counted(lane: Lane) -> None:
    written = write(lane, EVENTS)
    assert (written.events, written.changes) == (1_000, {"insert": 1_000})
    lane.holds(EVENTS)
    state = lane.state()
    assert (state.version, state.pending, dict(state.lane_progress)) == (5, None, {})


def test_an_event_that_is_too_large_leaves_nothing(lane: Lane) -> None:
    with pytest.raises(RowRejected, match="version 5 of s"):
        write(lane, [*EVENTS[:500], event(500, size=1_000_000), *EVENTS[501:]])
    assert lane.read() == []
    assert (lane.state().version, lane.state().pending) == (4, None)
    write(lane, EVENTS)  # the producer is usable again
    lane.holds(EVENTS)


def test_a_runner_that_was_overtaken_commits_neither_events_nor_position(lane: Lane) -> None:
    """It stands still between its last event and its commit, for longer than its lease."""
    former, asleep, wake, caught = lane.runner, threading.Event(), threading.Event(), []
    after = dataclasses.replace(before(lane), version=5)
    expire(former)

    def write_events(producer: TransactionalProducer) -> None:
        for one in EVENTS:
            producer.produce(lane.topic, one.key, one.value)
        producer.raw.flush(10)
        asleep.set()
        assert wake.wait(60)

    def run() -> None:
        try:
            former.write_window(after, write_events)
        except Fenced as error:
            caught.append(error)

    sleeper = threading.Thread(target=run)
    sleeper.start()
    assert asleep.wait(30)
    assert len(lane.kafka.consume(lane.topic, isolation="read_uncommitted")) == len(EVENTS)
    assert succeed(lane).version == 4
    wake.set()
    sleeper.join(60)
    assert len(caught) == 1
    assert lane.read() == []
    write(lane, EVENTS)
    lane.holds(EVENTS)
    former.close()


# ── processes that are killed ────────────────────────────────────────────────────────────────────────────────────────

CHILD = """
import dataclasses, sys, time
from connectors.kafka.client import Cluster, TransactionalProducer
from connectors.kafka.state import lease as leases
from connectors.kafka.errors import KafkaFault
from connectors.kafka.state.lease import Lease

bootstrap, topic, positions, point = sys.argv[1:]
Lease._write.__kwdefaults__["seconds"] = 1.0
leases.RUNNER_SECONDS = 3.0
writes_window = False

def stop(at):
    if at == point:
        print("there", flush=True)
        time.sleep(300)

class Watched(TransactionalProducer):
    def commit(self):
        if writes_window:
            self.flush()
            stop("before the commit")
        super().commit()

leases.TransactionalProducer = Watched
lease = Lease(Cluster(bootstrap), positions, topic, pipeline="p", source="s")
state = lease.refresh()

def write_events(producer):
    global writes_window
    writes_window = True
    for number in range(1_000):
        producer.produce(topic, b"k%d" % (number % 7), b"v" * 10 + b"%d" % number)
        if number == 500:
            producer.flush()
            stop("in the middle")

lease.write_window(dataclasses.replace(state, version=5), write_events)
stop("after the commit")
"""


@pytest.mark.parametrize(
    ("point", "sent", "records", "left"),
    [
        ("in the middle", 501, 0, 0),
        ("before the commit", 1_000, 1, 0),
        ("after the commit", 1_000, 1, 1_000),
    ],
)
def test_a_runner_is_killed(lane: Lane, point: str, sent: int, records: int, left: int) -> None:
    """``sent`` events and ``records`` of the position were at the brokers when it died: that is where it died."""
    lane.runner.close()
    start = len([kind for kind in kinds(lane.kafka, lane.positions) if kind == "window"])
    words = [sys.executable, "-c", CHILD, lane.cluster.bootstrap_servers, lane.topic, lane.positions, point]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "there\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait(30)
    child.stdout.close()
    assert len(lane.kafka.consume(lane.topic, isolation="read_uncommitted")) == sent
    keys = [message.key for message in lane.kafka.consume(lane.positions, isolation="read_uncommitted")]
    assert keys.count(f"{lane.topic} window".encode()) - start == records

    state = succeed(lane)
    assert (state.version, state.pending) == (5 if left else 4, None)
    assert len(lane.read()) == left
    if not left:
        write(lane, EVENTS)
    lane.holds(EVENTS)
