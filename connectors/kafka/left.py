"""What is left of somebody in the topics: every record from the beginning, also those of transactions that were given up."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from audit.erasure.finds import Gathered
from audit.erasure.places import Checked, Scanned
from connectors.kafka import topics
from connectors.kafka.client import ANSWER_SECONDS, Cluster, bounds, faults
from connectors.kafka.errors import KafkaFault

if TYPE_CHECKING:
    from confluent_kafka import Message

    from audit.erasure.needles import Needles

__all__ = ["NEVER", "goes_after", "scan_topics"]

NEVER = dt.timedelta.max
_WEEK = 7 * 24 * 3600 * 1000
_DAY = 24 * 3600 * 1000
_UNBOUNDED = 2**63 - 1


def goes_after(topic: topics.Topic) -> dt.timedelta:
    """So long after it was written a record whose key has a later one is on the brokers' disks at most.

    A segment that is still written to is neither compacted nor dropped, hence ``segment.ms``. NEVER where a setting puts no
    end to it.
    """
    told: Mapping[str, int] = {
        name: int(topic.config.get(name, default))
        for name, default in (("segment.ms", _WEEK), ("max.compaction.lag.ms", _UNBOUNDED), ("retention.ms", _WEEK))
    }
    ways = []
    if topic.compacted and told["max.compaction.lag.ms"] < _UNBOUNDED:
        ways.append(told["max.compaction.lag.ms"])
    if topic.deleted and told["retention.ms"] >= 0:
        ways.append(told["retention.ms"])
    if not ways:
        return NEVER
    return dt.timedelta(milliseconds=min(ways) + told["segment.ms"])


def _tombstone_goes_after(topic: topics.Topic) -> dt.timedelta:
    after = goes_after(topic)
    if after == NEVER or not topic.compacted:
        return after
    return after + dt.timedelta(milliseconds=int(topic.config.get("delete.retention.ms", _DAY)))


def scan_topics(cluster: Cluster, names: tuple[str, ...], needles: Needles) -> Scanned:
    """Up to the ends as they are now. Raises KafkaFault."""
    found = Gathered()
    checked = []
    for topic in topics.described(cluster, *names).values():
        count = size = 0
        record, tombstone = goes_after(topic), _tombstone_goes_after(topic)
        for partition in range(topic.partitions):
            for message in _records(cluster, topic.name, partition):
                parts = [message.key(), message.value()]
                headers: Any = message.headers() or ()
                parts += [value if isinstance(value, bytes) else str(value or "").encode() for _, value in headers]
                count, size = count + 1, size + sum(len(part) for part in parts if part)
                hits = set(needles.find(b"\n".join(part for part in parts if part)))
                hits |= _cells(needles, message)
                if hits:
                    deleted = message.value() is None
                    found.add(
                        f"{topic.name}/{partition}",
                        "tombstone key" if deleted else "record",
                        Counter(hits),
                        clears_on=_day(message, tombstone if deleted else record),
                    )
        checked.append(Checked(f"records of {topic.name}", count, size))
    return Scanned(found.finds(), tuple(checked))


def _cells(needles: Needles, message: Message) -> set[tuple[str, str]]:
    """Short values are whole fields of the JSON."""
    from audit.record import object_in

    if not needles.short_columns:
        return set()
    hits: set[tuple[str, str]] = set()
    for part in (message.key(), message.value()):
        hits |= _fields(needles, object_in(part if isinstance(part, bytes) else None))
    return hits


def _fields(needles: Needles, value: Mapping[str, Any]) -> set[tuple[str, str]]:
    hits: set[tuple[str, str]] = set()
    for name, inner in value.items():
        hits |= _fields(needles, inner) if isinstance(inner, dict) else needles.cell(name, inner)
    return hits


def _day(message: Message, after: dt.timedelta) -> dt.date | None:
    _, milliseconds = message.timestamp()
    if after == NEVER or not milliseconds or milliseconds < 0:
        return None
    written = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return (written + after).date() + dt.timedelta(days=1)


def _records(cluster: Cluster, topic: str, partition: int) -> Iterator[Message]:
    from confluent_kafka import KafkaError, TopicPartition

    consumer = cluster.consumer(**{"isolation.level": "read_uncommitted"})
    try:
        at, end = bounds(consumer, topic, partition)
        if at >= end:
            return
        with faults():
            consumer.assign([TopicPartition(topic, partition, at)])
        deadline = time.monotonic() + ANSWER_SECONDS
        while at < end:
            with faults():
                message = consumer.poll(0.2)
            if message is None:
                if time.monotonic() > deadline:
                    raise KafkaFault("_TIMED_OUT")
                continue
            error = message.error()
            if error is None:
                at = int(message.offset() or 0) + 1
                deadline = time.monotonic() + ANSWER_SECONDS
                if at <= end:
                    yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, int(message.offset() or 0))  # the last offsets are marks of transactions
            elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaFault(error.name())
    finally:
        consumer.close()
