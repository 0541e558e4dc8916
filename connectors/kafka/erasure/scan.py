"""What is left of somebody in the topics: every record from the beginning, also those of transactions that were given up."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from audit.erasure.scan.findings import Gathered
from audit.erasure.sink_contract import Checked, Scanned
from connectors.kafka import topics
from connectors.kafka.client import ANSWER_SECONDS, Cluster, wrap_client_errors
from connectors.kafka.errors import KafkaFault
from connectors.kafka.reader import find_resume_offset, read_commit_version, read_watermarks

if TYPE_CHECKING:
    from confluent_kafka import Message

    from audit.erasure.scan.search_terms import Needles

__all__ = ["NEVER", "days_of_going", "goes_after", "scan_topics"]

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
    if topic.is_compacted and told["max.compaction.lag.ms"] < _UNBOUNDED:
        ways.append(told["max.compaction.lag.ms"])
    if topic.has_retention and told["retention.ms"] >= 0:
        ways.append(told["retention.ms"])
    if not ways:
        return NEVER
    return dt.timedelta(milliseconds=min(ways) + told["segment.ms"])


def _tombstone_goes_after(topic: topics.Topic) -> dt.timedelta:
    after = goes_after(topic)
    if after == NEVER or not topic.is_compacted:
        return after
    return after + dt.timedelta(milliseconds=int(topic.config.get("delete.retention.ms", _DAY)))


def scan_topics(cluster: Cluster, names: tuple[str, ...], needles: Needles) -> Scanned:
    """Up to the ends as they are now. Raises KafkaFault."""
    found = Gathered()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    described = topics.describe_topics(cluster, *names)
    for topic, partition, message in _walk(cluster, described):
        parts = _parts(message)
        counts[topic.name] += 1
        sizes[topic.name] += sum(map(len, parts))
        if hits := _hits(needles, message, parts):
            found.add(
                f"{topic.name}/{partition}",
                "tombstone key" if message.value() is None else "record",
                Counter(hits),
                clears_on=_day(topic, message),
            )
    checked = (Checked(f"records of {name}", counts[name], sizes[name]) for name in described)
    return Scanned(found.finds(), tuple(checked))


def days_of_going(
    cluster: Cluster, names: tuple[str, ...], needles: Needles, versions: Collection[int]
) -> set[dt.date | None]:
    """Of the records that hold somebody, and of those that say what a row was before ``versions`` erased it: one without any
    identifier is the person's as well. None: no setting puts a date to it. Raises KafkaFault.

    The topic itself tells which keys were erased, also when the source has forgotten them: by its records of these versions.
    Where brokers have removed one, they have removed what stood before it.
    """
    described = topics.describe_topics(cluster, *names)
    erased: dict[bytes, int] = {}
    for _, _, message in _walk(cluster, described) if versions else ():
        version = read_commit_version(message)
        # A copy of the table has all keys but the erased ones
        if version in versions and version is not None and _header(message, "deltarelay.change_type") != b"snapshot":
            erased[_digest(message)] = max(version, erased.get(_digest(message), 0))
    days = set()
    for topic, _, message in _walk(cluster, described):
        version = read_commit_version(message)
        former = message.value() is not None and version is not None and version < erased.get(_digest(message), 0)
        if former or _hits(needles, message, _parts(message)):
            days.add(_day(topic, message))
    return days


def _walk(cluster: Cluster, described: Mapping[str, topics.Topic]) -> Iterator[tuple[topics.Topic, int, Message]]:
    for topic in described.values():
        for partition in range(topic.partitions):
            for message in _records(cluster, topic.name, partition):
                yield topic, partition, message


def _header(message: Message, name: str) -> Any:
    headers: Any = message.headers() or ()
    return dict(headers).get(name)


def _digest(message: Message) -> bytes:
    """Of the key: short, for all keys of a run are held at once."""
    key = message.key()
    return hashlib.blake2b(key if isinstance(key, bytes) else b"", digest_size=16).digest()


def _parts(message: Message) -> list[bytes]:
    parts = [message.key(), message.value()]
    headers: Any = message.headers() or ()
    parts += [value if isinstance(value, bytes) else str(value or "").encode() for _, value in headers]
    return [part for part in parts if part]


def _hits(needles: Needles, message: Message, parts: list[bytes]) -> set[tuple[str, str]]:
    return set(needles.find(b"\n".join(parts))) | _cells(needles, message)


def _cells(needles: Needles, message: Message) -> set[tuple[str, str]]:
    """Short values are whole fields of the JSON."""
    from audit.trail.redaction import parse_object

    if not needles.short_columns:
        return set()
    hits: set[tuple[str, str]] = set()
    for part in (message.key(), message.value()):
        hits |= _fields(needles, parse_object(part if isinstance(part, bytes) else None))
    return hits


def _fields(needles: Needles, value: Mapping[str, Any]) -> set[tuple[str, str]]:
    hits: set[tuple[str, str]] = set()
    for name, inner in value.items():
        hits |= _fields(needles, inner) if isinstance(inner, dict) else needles.cell(name, inner)
    return hits


def _day(topic: topics.Topic, message: Message) -> dt.date | None:
    after = _tombstone_goes_after(topic) if message.value() is None else goes_after(topic)
    _, milliseconds = message.timestamp()
    if after == NEVER or not milliseconds or milliseconds < 0:
        return None
    written = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return (written + after).date() + dt.timedelta(days=1)


def _records(cluster: Cluster, topic: str, partition: int) -> Iterator[Message]:
    from confluent_kafka import KafkaError, TopicPartition

    consumer = cluster.create_consumer(**{"isolation.level": "read_uncommitted"})
    try:
        at, end = read_watermarks(consumer, topic, partition)
        if at >= end:
            return
        with wrap_client_errors():
            consumer.assign([TopicPartition(topic, partition, at)])
        deadline = time.monotonic() + ANSWER_SECONDS
        while at < end:
            with wrap_client_errors():
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
            elif (low := find_resume_offset(error, consumer, topic, partition, at)) is not None:
                at = low
                with wrap_client_errors():
                    consumer.assign([TopicPartition(topic, partition, at)])
            elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaFault(error.name())
    finally:
        consumer.close()
