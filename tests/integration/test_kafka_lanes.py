"""Lanes on a real broker: each event once, in order, whoever dies where; read as a consumer of committed records reads."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cdf.errors import Fenced
from connectors.kafka.client import Cluster, TransactionalProducer, get_silent_logger
from connectors.kafka.erasure.records import read_partition
from connectors.kafka.errors import KafkaFault
from connectors.kafka.reader import PartitionReader
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import PendingWindow, PositionReader, State, get_lane_id
from connectors.kafka.topics import create_topic, get_position_topic_settings
from connectors.kafka.write.lane_writer import RUNNER_FENCED, write_lane
from connectors.kafka.write.record_producer import Event, LaneWork
from tests.fixtures.fix_kafka import Kafka, Message

LANES = 2


def event(number: int, *, key: str = "k", size: int = 10) -> Event:
    return Event(f"{key}{number % 7}".encode(), b"v" * size + b"%d" % number, False, "insert", 5, 0, f"id{number}")


EVENTS = [event(number) for number in range(1_000)]


class Lane:
    """A topic with a runner at work on version 5, and what its lane 0 needs to be written."""

    def __init__(self, kafka: Kafka, **client: Any) -> None:
        self.cluster = Cluster(kafka.bootstrap, client)
        self.kafka, self.topic, self.positions = kafka, kafka.topic(), f"{kafka.prefix}-positions"
        create_topic(self.cluster, self.positions, get_position_topic_settings())
        self.runner = self.taken()

    def taken(self) -> Lease:
        return Lease(self.cluster, self.positions, self.topic, pipeline="p", source="s")

    def begins(self, first: int, last: int) -> LaneWork:
        state = self.runner.refresh()
        pending = PendingWindow("window", first, last, "debezium")
        self.runner.write_position(dataclasses.replace(state, lanes=LANES, partitions=3, table_id="t", pending=pending))
        return self.work(first, last)

    def work(self, first: int, last: int, **options: Any) -> LaneWork:
        work = LaneWork(
            cluster=self.cluster,
            topic=self.topic,
            position_topic=self.positions,
            epoch=self.runner.epoch,
            first=first,
            last=last,
            table="s",
            table_id="t",
            pipeline="p",
            max_bytes=1_000_000,
            rejects="refuse",
            dead_letter_topic=None,
            state=State(),
            offset=0,
        )
        return dataclasses.replace(work, **options)

    def state(self) -> State:
        reader = PositionReader(self.cluster, self.positions, self.topic)
        try:
            return reader.read()
        finally:
            reader.close()

    def read(self) -> list[Message]:
        return self.kafka.consume(self.topic)

    def holds(self, events: Iterable[Event]) -> None:
        """Each event once, those of a key in their order."""
        expected: dict[bytes, list[bytes | None]] = {}
        for one in events:
            expected.setdefault(one.key, []).append(one.value)
        found: dict[bytes, list[bytes | None]] = {}
        for message in self.read():
            assert message.key is not None
            found.setdefault(message.key, []).append(message.value)
        assert found == expected


@pytest.fixture
def lane(kafka: Kafka) -> Iterator[Lane]:
    made = Lane(kafka)
    yield made
    made.runner.close()


def failing_at(number: int, events: Iterable[Event] = EVENTS) -> Iterator[Event]:
    for index, one in enumerate(events):
        if index == number:
            raise RuntimeError("stopped")
        yield one


class Sleeper:
    """An attempt in a thread of its own, that stands still before one of its events until it is woken."""

    def __init__(self, work: LaneWork, number: int) -> None:
        self._work, self._number = work, number
        self._asleep, self._wake = threading.Event(), threading.Event()
        self._result: Any = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()
        if self._number:
            assert self._asleep.wait(30)

    def woken(self) -> Any:
        """What becomes of it: what it returns, or its fault."""
        self._wake.set()
        self._thread.join(90)
        return self._result

    def _run(self) -> None:
        try:
            self._result = write_lane(self._work, 0, self._events())
        except KafkaFault as fault:
            self._result = fault

    def _events(self) -> Iterator[Event]:
        for index, one in enumerate(EVENTS):
            if index == self._number:
                self._asleep.set()
                assert self._wake.wait(60)
            yield one


def test_a_lane_is_written_once_whatever_is_tried_again(lane: Lane) -> None:
    work = lane.begins(5, 5)
    with pytest.raises(RuntimeError):
        write_lane(work, 0, failing_at(700))
    assert lane.read() == []
    first = write_lane(work, 0, EVENTS)
    assert (first.events, first.whole, first.changes) == (1_000, True, {"insert": 1_000})
    again = write_lane(work, 0, EVENTS)
    assert again == first
    lane.holds(EVENTS)
    assert lane.state().get_progress(0) == first
    assert lane.state().get_progress(1) is None


def test_a_lane_longer_than_a_transaction_goes_on_in_the_middle(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is durable of it is left out, and nothing else."""
    monkeypatch.setattr("connectors.kafka.write.lane_writer.TRANSACTION_EVENTS", 300)
    monkeypatch.setattr("connectors.kafka.write.lane_writer.CHECK_EVENTS", 100)
    work = lane.begins(5, 5)
    with pytest.raises(RuntimeError):
        write_lane(work, 0, failing_at(700))
    done = lane.state().get_progress(0)
    assert done is not None
    assert (done.events, done.whole, done.changes) == (600, False, {"insert": 600})
    lane.holds(EVENTS[:600])
    assert write_lane(work, 0, EVENTS).changes == {"insert": 1_000}
    lane.holds(EVENTS)


def test_a_slow_lane_is_cut_before_its_transaction_is_given_up(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.kafka.write.lane_writer.CHECK_EVENTS", 50)
    lane = Lane(kafka, **{"transaction.timeout.ms": 5_000})

    def slowly() -> Iterator[Event]:
        for index, one in enumerate(EVENTS):
            if index % 50 == 0:
                time.sleep(0.35)  # seven seconds in all, and the brokers end a transaction after five to six
            yield one

    try:
        assert write_lane(lane.begins(5, 5), 0, slowly()).events == 1_000
        lane.holds(EVENTS)
    finally:
        lane.runner.close()


def test_an_attempt_that_was_overtaken_cannot_commit_and_waits_for_the_other(lane: Lane) -> None:
    """A task that was given up wakes: what it wrote is never seen, and it does not shut the other one out in turn."""
    work = lane.begins(5, 5)
    sleeper = Sleeper(work, 500)
    sleeper.start()
    second = write_lane(work, 0, EVENTS)
    assert sleeper.woken() == second
    lane.holds(EVENTS)


@pytest.mark.parametrize("asleep_at", [0, 500], ids=["before its first event", "in the middle"])
def test_a_task_of_a_runner_before_writes_nothing(lane: Lane, asleep_at: int) -> None:
    """Its window may be another one by now."""
    work, former = lane.begins(5, 5), lane.runner
    sleeper = Sleeper(work, asleep_at)
    if asleep_at:
        sleeper.start()
    former._stopped.set()  # as in a process that stands still: nobody renews
    with former._gate:
        former._write({}, epoch=former.epoch, seconds=0.1)
    lane.runner = lane.taken()
    taken = TransactionalProducer(lane.cluster, get_lane_id(lane.topic, 0))
    taken.init()
    if not asleep_at:
        sleeper.start()
    assert str(sleeper.woken()) == str(KafkaFault(RUNNER_FENCED))
    assert lane.read() == []
    with pytest.raises(Fenced):
        former.refresh()
    former.close()
    taken.close()


def test_what_lies_behind_an_open_transaction_is_not_missed(lane: Lane) -> None:
    """Another lane's open transaction hides this lane's record in the position topic from a reader of committed ones. Taken
    for a lane that was not written, it would be written twice."""
    work = lane.begins(5, 5)
    other = TransactionalProducer(lane.cluster, get_lane_id(lane.topic, 1))
    other.init()
    other.begin()
    other.produce(lane.positions, b"somebody lane 1", b"{}")
    other.raw.flush(10)
    ends = threading.Timer(2.0, other.abort)
    ends.start()
    written = write_lane(work, 0, EVENTS)
    ends.join()
    lane.holds(EVENTS)

    other.begin()
    other.produce(lane.positions, b"somebody lane 1", b"{}")
    other.raw.flush(10)
    ends = threading.Timer(2.0, other.abort)
    ends.start()
    assert write_lane(work, 0, EVENTS) == written
    ends.join()
    lane.holds(EVENTS)
    other.close()


def test_what_is_committed_while_one_reads_is_read_the_next_time(lane: Lane) -> None:
    """A record behind the end that was asked for must not be passed over: a lane would be written twice."""
    lane.runner._stopped.set()  # nobody else writes there
    producer = TransactionalProducer(lane.cluster, "late")
    producer.init()
    reader = PartitionReader(lane.cluster, lane.positions)
    list(reader.read())
    before = reader.offset
    for value in (b"1", b"2"):
        producer.begin()
        producer.produce(lane.positions, b"somebody window", value)
        producer.commit()
    first = list(reader.stream(before + 2))  # the first record and the sign of its commit
    assert [message.value() for message in first] == [b"1"]
    assert [message.value() for message in reader.read()] == [b"2"]
    reader.close()
    producer.close()


def test_a_lane_with_fewer_events_than_are_durable_is_refused(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.kafka.write.lane_writer.TRANSACTION_EVENTS", 300)
    monkeypatch.setattr("connectors.kafka.write.lane_writer.CHECK_EVENTS", 100)
    work = lane.begins(5, 5)
    with pytest.raises(RuntimeError):
        write_lane(work, 0, failing_at(700))
    with pytest.raises(KafkaFault, match="FEWER_EVENTS"):
        write_lane(work, 0, EVENTS[:400])
    lane.holds(EVENTS[:600])


def test_an_event_larger_than_the_topic_takes(lane: Lane, kafka: Kafka) -> None:
    letters = kafka.topic("letters", 1)
    events = [*EVENTS[:10], event(10, size=200_000), *EVENTS[11:20]]
    work = dataclasses.replace(lane.begins(5, 5), max_bytes=100_000)
    with pytest.raises(KafkaFault, match="EVENT_TOO_LARGE_5"):
        write_lane(work, 0, events)
    assert lane.read() == []
    done = write_lane(dataclasses.replace(work, rejects="dead_letter", dead_letter_topic=letters), 0, events)
    assert (done.events, done.rejected) == (20, 1)
    lane.holds([*events[:10], *events[11:]])
    (letter,) = kafka.consume(letters)
    headers = dict(letter.headers)
    assert (headers["deltarelay.commit_version"], headers["deltarelay.event_id"]) == (b"5", b"id10")
    assert json.loads(letter.value or b"")["limit"] == 100_000
    assert b"vvv" not in (letter.value or b"")


def test_a_start_reads_past_ten_thousand_positions_of_others(lane: Lane) -> None:
    producer = Producer({"bootstrap.servers": lane.cluster.bootstrap_servers})
    for number in range(10_000):
        producer.produce(lane.positions, b'{"epoch": 1}', f"other-{number} lease".encode())
    producer.flush(30)
    began = time.monotonic()
    state = lane.state()
    print(f"10,000 positions read in {time.monotonic() - began:.2f} s")
    assert state.epoch == lane.runner.epoch


def test_what_was_read_before_the_brokers_went_is_not_passed_over(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a lane would count as not written: its events would be written again."""
    work = lane.begins(5, 5)
    for number in range(LANES):
        write_lane(work, number, EVENTS)
    whole = PartitionReader.stream

    def breaks_off(reader: PartitionReader, end: int, **known: Any) -> Iterator[Any]:
        yield from itertools.islice(whole(reader, end, **known), 1)
        raise KafkaFault("_TRANSPORT")

    reader = PositionReader(lane.cluster, lane.positions, lane.topic)
    monkeypatch.setattr(PartitionReader, "stream", breaks_off)
    for _ in range(20):
        with pytest.raises(KafkaFault):
            reader.read()
    monkeypatch.undo()
    found = reader.read()
    reader.close()
    assert [found.get_progress(number) for number in range(LANES)] == [
        lane.state().get_progress(number) for number in range(LANES)
    ]
    assert found.get_progress(0) is not None


# ── processes that are killed ────────────────────────────────────────────────────────────────────────────────────────

CHILD = """
import dataclasses, sys, time
from connectors.kafka.client import Cluster
from connectors.kafka.write.lane_writer import write_lane
from connectors.kafka.write.record_producer import Event, LaneWork
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import PendingWindow, PositionReader, State, get_lane_id
from connectors.kafka.reader import PartitionReader
bootstrap, topic, positions, epoch, stop = sys.argv[1:]
work = LaneWork(Cluster(bootstrap), topic, positions, int(epoch), 5, 5, "s", "t", "p", 1_000_000, "refuse", None, State(), 0)
def events():
    for number in range(1_000):
        if number == int(stop):
            print("there", flush=True)
            time.sleep(300)
        yield Event(b"k%d" % (number % 7), b"v" * 10 + b"%d" % number, False, "insert", 5, 0, f"id{number}")
write_lane(work, 0, events())
print("there", flush=True)
time.sleep(300)
"""


def killed(lane: Lane, stop: int) -> None:
    """A process that writes the lane, killed once it has handed over so many events (1000: after its commit)."""
    words = [sys.executable, "-c", CHILD, lane.cluster.bootstrap_servers, lane.topic, lane.positions]
    child = subprocess.Popen([*words, str(lane.runner.epoch), str(stop)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "there\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait(30)
    child.stdout.close()


@pytest.mark.parametrize(("stop", "left"), [(0, 0), (700, 0), (1_000, 1_000)], ids=["before", "during", "after"])
def test_a_writer_is_killed(lane: Lane, stop: int, left: int) -> None:
    work = lane.begins(5, 5)
    killed(lane, stop)
    if left:
        lane.holds(EVENTS[:left])
    write_lane(work, 0, EVENTS)
    lane.holds(EVENTS)


@pytest.mark.parametrize("reads", ["position", "scan"])
def test_records_that_retention_removes_while_they_are_read_are_passed_over(kafka: Kafka, reads: str) -> None:
    topic = kafka.topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 200_000})
    for number in range(100):  # each a batch of its own: a reader has only some of them in its hands
        producer.produce(topic, os.urandom(100_000), str(number))
        producer.flush(30)
    small: dict[str, int] = {"queued.min.messages": 1, "queued.max.messages.kbytes": 1, "fetch.message.max.bytes": 1000}
    cluster = Cluster(kafka.bootstrap, small)
    reader = PartitionReader(cluster, topic)
    records = reader.read() if reads == "position" else read_partition(cluster, topic, 0)
    assert next(records).offset() == 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    removed = admin.delete_records([TopicPartition(topic, 0, 80)])
    assert next(iter(removed.values())).result(30).low_watermark == 80
    offsets = [record.offset() for record in records]
    reader.close()
    assert offsets[-20:] == list(range(80, 100))
    assert len(offsets) < 99, "the reader had all records already: nothing was tested"


def test_clients_share_one_log_handler(kafka: Kafka) -> None:
    for _ in range(3):
        PartitionReader(Cluster(kafka.bootstrap), "no such topic").close()
    assert sum(isinstance(one, logging.NullHandler) for one in get_silent_logger().handlers) == 1
