"""Turns events into the records of a topic: headers, sizes, and dead letters for events that are too large."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from connectors.kafka.client import Cluster, Headers, TransactionalProducer
from connectors.kafka.errors import KafkaFault
from connectors.kafka.state.position import State

__all__ = [
    "AGAIN",
    "PARTITIONS_CHANGED",
    "TOO_LARGE",
    "Event",
    "EventFields",
    "LaneWork",
    "RecordProducer",
    "check_topic",
]

OVERHEAD_BYTES = 200
"""Bytes of a record and its batch besides key, value and headers."""
LONGEST_KEY = 4096
EVENT_ID = "deltarelay.event_id"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TOO_LARGE = "EVENT_TOO_LARGE"
"""Name of a fault, followed by the version."""
PARTITIONS_CHANGED = "PARTITIONS_CHANGED"
AGAIN = "again"
"""Key in the counts of changes: the sum of ``Event.again``."""


class Event(NamedTuple):
    """What forms a record. ``at``: microseconds since 1970."""

    key: bytes
    value: bytes | None
    tombstone: bool
    """Whether it follows the event of a delete, which is the one that counts."""
    change_type: str
    version: int
    at: int | None
    event_id: str
    again: int = 0
    """Number of changes that are impossible for a key that identifies a row; see ``to_envelope``."""


EventFields = tuple[bytes, bytes | None, bool, str, int, int | None, str, int]
"""The fields of an ``Event``. Between the steps events are plain tuples, because naming the fields takes time."""


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What an attempt needs; pickled to the tasks. ``state`` is that of ``offset`` in the position topic."""

    cluster: Cluster
    topic: str
    position_topic: str
    epoch: int
    first: int
    last: int
    table: str
    table_id: str
    pipeline: str
    max_bytes: int
    rejects: Literal["refuse", "dead_letter"]
    dead_letter_topic: str | None
    state: State
    offset: int


def check_topic(work: LaneWork, producer: TransactionalProducer, partitions: int | None) -> None:
    """Check the topic again: during a run of weeks it may have been deleted, or have got more partitions."""
    description = producer.describe_topic(work.topic)
    if description.error is not None:
        raise KafkaFault(description.error.name())
    if partitions not in (None, len(description.partitions)):
        raise KafkaFault(PARTITIONS_CHANGED)


class RecordProducer:
    """Produces events within the open transaction of ``producer``."""

    def __init__(
        self, work: LaneWork, producer: TransactionalProducer, *, rejected: int = 0, changes: Counter[str] | None = None
    ) -> None:
        """``rejected`` and ``changes``: what earlier transactions of the same window have counted."""
        self._work, self._producer = work, producer
        self.rejected = rejected
        self.changes: Counter[str] = Counter(changes)
        """Number of events by change type."""
        self._constant_headers = [
            ("deltarelay.table", work.table.encode()),
            ("deltarelay.table_id", work.table_id.encode()),
            ("deltarelay.pipeline", work.pipeline.encode()),
        ]
        self._shared_headers: dict[tuple[int, str], tuple[list[tuple[str, str | bytes | None]], int]] = {}

    def produce(self, events: Iterable[EventFields], *, max_events: int | None = None, max_bytes: int = 2**63) -> int:
        """Produce these events, or the first ``max_events`` of them, or those up to the first that exceeds ``max_bytes``;
        return their number.

        One loop that calls the client directly: Python spends most of the time of a window here.
        """
        topic, record_bytes, changes = self._work.topic, self._work.max_bytes, self.changes
        shared_headers, send = self._shared_headers, self._producer.raw.produce
        number = produced_bytes = 0
        for key, value, tombstone, change_type, version, at, event_id, again in islice(events, max_events):
            number += 1
            if value is not None or not tombstone:
                changes[change_type] += 1
                if again:
                    changes[AGAIN] += again
            headers, size = shared_headers.get((version, change_type)) or self._build_headers(version, at, change_type)
            headers[-1] = (EVENT_ID, event_id)  # the client copies the headers
            size += len(key) if value is None else len(key) + len(value)
            if size > record_bytes:
                self._write_dead_letter(version, key, headers, size)
            else:
                try:
                    send(topic, value, key, headers=headers)
                except BufferError:
                    self._producer.produce(topic, key, value, headers)
            produced_bytes += size
            if produced_bytes > max_bytes:
                break
        return number

    def _build_headers(
        self, version: int, at: int | None, change_type: str
    ) -> tuple[list[tuple[str, str | bytes | None]], int]:
        """Return the headers that all changes of one type in one version share, with a place for the event's id at the end,
        and the size of a record without key and value."""
        time = None if at is None else EPOCH + dt.timedelta(microseconds=at)
        headers: list[tuple[str, str | bytes | None]] = [
            *self._constant_headers,
            ("deltarelay.commit_version", str(version).encode()),
            ("deltarelay.commit_timestamp", None if time is None else f"{time:%Y-%m-%dT%H:%M:%S.%fZ}".encode()),
            ("deltarelay.change_type", change_type.encode()),
        ]
        size = OVERHEAD_BYTES + sum(len(name) + len(value or b"") for name, value in headers)
        if len(self._shared_headers) > 100:
            self._shared_headers.clear()
        headers.append((EVENT_ID, None))
        found = self._shared_headers[version, change_type] = headers, size
        return found

    def _write_dead_letter(self, version: int, key: bytes, headers: Headers, size: int) -> None:
        work = self._work
        if work.rejects == "refuse" or work.dead_letter_topic is None:
            raise KafkaFault(f"{TOO_LARGE}_{version}")
        value = {"reason": "too large", "topic": work.topic, "bytes": size, "limit": work.max_bytes}
        headers = [*headers, ("deltarelay.reason", b"too large"), ("deltarelay.topic", work.topic.encode())]
        dead_key = key if len(key) <= LONGEST_KEY else None  # the key itself may be too large
        self._producer.produce(work.dead_letter_topic, dead_key, json.dumps(value).encode(), headers)
        self.rejected += 1
