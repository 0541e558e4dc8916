"""Turns events into the records of a topic: headers, sizes, and dead letters for events that are too large."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from connectors.kafka.client import Cluster, Headers, TransactionalProducer
from connectors.kafka.errors import KafkaFault
from connectors.kafka.state.position import State

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AGAIN",
    "PARTITIONS_CHANGED",
    "TOO_LARGE",
    "Event",
    "LaneWork",
    "RecordProducer",
    "check_topic",
    "iterate_events",
]

OVERHEAD_BYTES = 200
"""Bytes of a record and its batch besides key, value and headers."""
LONGEST_KEY = 4096
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TOO_LARGE = "EVENT_TOO_LARGE"
"""Name of a fault, followed by the version."""
PARTITIONS_CHANGED = "PARTITIONS_CHANGED"
AGAIN = "again"
"""Key in the counts of changes: the sum of ``Event.again``."""


class Event(NamedTuple):
    """The columns of ``to_envelope`` that form a record. ``at``: microseconds since 1970."""

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


def iterate_events(batches: Iterable[pa.RecordBatch]) -> Iterator[Event]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in Event._fields)
        yield from map(Event._make, zip(*columns, strict=True))


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
        self.unchecked_bytes = 0
        """Bytes since the caller set this to 0."""
        self._constant_headers = [
            ("deltarelay.table", work.table.encode()),
            ("deltarelay.table_id", work.table_id.encode()),
            ("deltarelay.pipeline", work.pipeline.encode()),
        ]
        self._shared_headers: dict[tuple[int, str], tuple[list[tuple[str, str | bytes | None]], int]] = {}

    def produce(self, event: Event) -> None:
        """Calls the client directly: most of the time of a window is spent here."""
        work = self._work
        if event.value is not None or not event.tombstone:
            self.changes[event.change_type] += 1
            if event.again:
                self.changes[AGAIN] += event.again
        shared, size = self._build_shared_headers(event)
        headers = [*shared, ("deltarelay.event_id", event.event_id.encode())]
        size += len(event.key) + len(event.value or b"")
        self.unchecked_bytes += size
        if size > work.max_bytes:
            self._write_dead_letter(event, headers, size)
            return
        try:
            self._producer.raw.produce(work.topic, event.value, event.key, headers=headers)
        except BufferError:
            self._producer.produce(work.topic, event.key, event.value, headers)

    def _build_shared_headers(self, event: Event) -> tuple[list[tuple[str, str | bytes | None]], int]:
        """Return the headers that all changes of one type in one version share, and the size of a record without key and
        value."""
        found = self._shared_headers.get((event.version, event.change_type))
        if found is None:
            at = None if event.at is None else EPOCH + dt.timedelta(microseconds=event.at)
            headers: list[tuple[str, str | bytes | None]] = [
                *self._constant_headers,
                ("deltarelay.commit_version", str(event.version).encode()),
                ("deltarelay.commit_timestamp", None if at is None else f"{at:%Y-%m-%dT%H:%M:%S.%fZ}".encode()),
                ("deltarelay.change_type", event.change_type.encode()),
            ]
            size = OVERHEAD_BYTES + sum(len(name) + len(value or b"") for name, value in headers)
            if len(self._shared_headers) > 100:
                self._shared_headers.clear()
            found = self._shared_headers[event.version, event.change_type] = headers, size
        return found

    def _write_dead_letter(self, event: Event, headers: Headers, size: int) -> None:
        work = self._work
        if work.rejects == "refuse" or work.dead_letter_topic is None:
            raise KafkaFault(f"{TOO_LARGE}_{event.version}")
        value = {"reason": "too large", "topic": work.topic, "bytes": size, "limit": work.max_bytes}
        headers = [*headers, ("deltarelay.reason", b"too large"), ("deltarelay.topic", work.topic.encode())]
        key = event.key if len(event.key) <= LONGEST_KEY else None  # the key itself may be too large
        self._producer.produce(work.dead_letter_topic, key, json.dumps(value).encode(), headers)
        self.rejected += 1
