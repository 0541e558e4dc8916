"""Writes one lane of one window: its events and a record of them, in one transaction under the lane's own id.

An attempt fences earlier attempts at this lane, reads how many events the lane already has, and skips that many: the order
of the events is the same each time. A lane that would exceed the time limit of a transaction is split into several.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from connectors.kafka.client import Cluster, Headers, TransactionalProducer, wrap_client_errors
from connectors.kafka.errors import KafkaFault, is_fenced
from connectors.kafka.state.position import (
    LaneProgress,
    PositionReader,
    State,
    encode_lane_key,
    encode_lane_progress,
    get_lane_id,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AGAIN",
    "LANE_FENCED",
    "PARTITIONS_CHANGED",
    "RUNNER_FENCED",
    "TOO_LARGE",
    "Event",
    "LaneWork",
    "OpenLane",
    "iterate_events",
    "write_lane",
]

TRANSACTION_EVENTS = 200_000
"""Maximum number of events in one transaction."""
TRANSACTION_SHARE = 0.4
"""A transaction is committed after this share of its time limit."""
CHECK_EVENTS = 2_000
"""After this many events, the clock is checked and the client may report failures."""
CHECK_BYTES = 16 * 1024 * 1024
OVERHEAD_BYTES = 200
"""Bytes of a record and its batch besides key, value and headers."""
LONGEST_KEY = 4096
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TOO_LARGE = "EVENT_TOO_LARGE"
"""Name of a fault, followed by the version."""
LANE_FENCED = "LANE_FENCED"
"""Another attempt has fenced this one and did not finish."""
RUNNER_FENCED = "RUNNER_FENCED"
PARTITIONS_CHANGED = "PARTITIONS_CHANGED"
AGAIN = "again"
"""Key in the counts of changes: the sum of ``Event.again``."""
FEWER_EVENTS = "FEWER_EVENTS_THAN_BEFORE"
"""More events of the lane are durable than were computed now: they are not the same events."""
SUCCESSOR_SECONDS = 60.0
"""Time limit without progress for another attempt that has fenced this one."""


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


class OpenLane:
    """The producer of a lane, and a reader of the lane's progress."""

    def __init__(self, cluster: Cluster, topic: str, lane: int, *, max_bytes: int) -> None:
        self.producer = TransactionalProducer(cluster, get_lane_id(topic, lane), max_bytes=max_bytes)
        self._reader: PositionReader | None = None

    def get_reader(self, work: LaneWork) -> PositionReader:
        """Return the reader, which continues where it stopped; the first time at ``work.offset``."""
        if self._reader is None:
            self._reader = PositionReader(
                work.cluster, work.position_topic, work.topic, offset=work.offset, state=work.state
            )
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self.producer.close()


def write_lane(
    work: LaneWork, lane: int, events: Iterable[Event], *, open_lane: OpenLane | None = None
) -> LaneProgress:
    """Return once all of the lane's events of the window are durable, whichever attempt wrote them.

    ``open_lane``: kept open by the caller; without it, the lane is opened and closed here. Raises KafkaFault, after which
    ``open_lane`` cannot be used any more.
    """
    current = open_lane or OpenLane(work.cluster, work.topic, lane, max_bytes=work.max_bytes)
    reader = current.get_reader(work)
    try:
        if open_lane is None:
            _check_state(reader.read(), work)  # an outdated attempt must not fence the present ones
            current.producer.init()
        state = _check_state(reader.read(), work)
        progress = state.get_progress(lane) or LaneProgress(work.first, work.last, 0, whole=False)
        if progress.whole:
            return progress
        _check_topic(work, current.producer, state.partitions)
        return _LaneWriter(work, lane, current.producer, progress).write(events)
    except KafkaFault as fault:
        # After its first report the client only says that it has failed for good
        if not is_fenced(fault) and fault.name != "_FATAL":
            raise
        if open_lane is not None:  # the driver makes one attempt, so there is no other one to wait for
            _check_state(reader.read(), work)
            raise KafkaFault(LANE_FENCED) from None
        return _wait_for_successor(work, lane, reader)
    finally:
        if open_lane is None:
            current.close()


def _check_state(state: State, work: LaneWork) -> State:
    """Refuse to write for a runner that was overtaken: its successor may be writing another window."""
    if state.epoch != work.epoch or work.state.holder not in (None, state.holder):
        raise KafkaFault(RUNNER_FENCED)
    pending = state.pending
    if pending is None or (pending.first, pending.last) != (work.first, work.last):
        raise KafkaFault(LANE_FENCED)
    return state


def _check_topic(work: LaneWork, producer: TransactionalProducer, partitions: int | None) -> None:
    """Check the topic again: during a run of weeks it may have been deleted, or have got more partitions."""
    description = producer.describe_topic(work.topic)
    if description.error is not None:
        raise KafkaFault(description.error.name())
    if partitions not in (None, len(description.partitions)):
        raise KafkaFault(PARTITIONS_CHANGED)


def _wait_for_successor(work: LaneWork, lane: int, reader: PositionReader) -> LaneProgress:
    """Wait for the attempt of the same task that has fenced this one. A failure here would start a third attempt, which
    would fence the second one in turn."""
    seen, since = reader.read().get_progress(lane), time.monotonic()
    while time.monotonic() - since < SUCCESSOR_SECONDS:
        state = _check_state(reader.read(), work)
        progress = state.get_progress(lane)
        if progress is not None and progress.whole:
            return progress
        if progress != seen:
            seen, since = progress, time.monotonic()
        time.sleep(0.2)
    raise KafkaFault(LANE_FENCED)


class _LaneWriter:
    def __init__(self, work: LaneWork, lane: int, producer: TransactionalProducer, progress: LaneProgress) -> None:
        self._work, self._lane, self._producer, self._progress = work, lane, producer, progress
        self._is_open = False
        self._began = 0.0
        self._in_transaction = self._unchecked_bytes = 0
        self._rejected = progress.rejected
        self._constant_headers = [
            ("deltarelay.table", work.table.encode()),
            ("deltarelay.table_id", work.table_id.encode()),
            ("deltarelay.pipeline", work.pipeline.encode()),
        ]
        self._shared_headers: dict[tuple[int, str], tuple[list[tuple[str, str | bytes | None]], int]] = {}

    def write(self, events: Iterable[Event]) -> LaneProgress:
        changes = Counter(self._progress.changes)
        skipped, number = self._progress.events, 0
        try:
            with wrap_client_errors():
                for number, event in enumerate(events, 1):  # ``number`` is used after the loop
                    if number <= skipped:
                        continue
                    if event.value is not None or not event.tombstone:
                        changes[event.change_type] += 1
                        if event.again:
                            changes[AGAIN] += event.again
                    self._produce(event)
                    if self._in_transaction % CHECK_EVENTS == 0 or self._unchecked_bytes > CHECK_BYTES:
                        self._check_limits(number, changes)
                if number < skipped:
                    raise KafkaFault(FEWER_EVENTS)
                self._commit(number, changes, whole=True)
        except BaseException as error:
            cause = self._producer.find_cause(error) if isinstance(error, KafkaFault) else error
            if self._is_open:
                self._producer.abort()
            raise cause from None
        return self._progress

    def _produce(self, event: Event) -> None:
        """Calls the client directly: most of the time of a window is spent here."""
        work = self._work
        if not self._is_open:
            self._producer.begin()
            self._is_open, self._began, self._in_transaction = True, time.monotonic(), 0
        self._in_transaction += 1
        shared, size = self._build_shared_headers(event)
        headers = [*shared, ("deltarelay.event_id", event.event_id.encode())]
        size += len(event.key) + len(event.value or b"")
        self._unchecked_bytes += size
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
        self._rejected += 1

    def _check_limits(self, number: int, changes: Mapping[str, int]) -> None:
        """Report failures of the client, and commit the transaction before it becomes too long."""
        self._unchecked_bytes = 0
        self._producer.poll()
        is_late = time.monotonic() - self._began > self._work.cluster.transaction_seconds * TRANSACTION_SHARE
        if is_late or self._in_transaction >= TRANSACTION_EVENTS:
            self._commit(number, changes, whole=False)

    def _commit(self, number: int, changes: Mapping[str, int], *, whole: bool) -> None:
        if not self._is_open:
            self._producer.begin()
            self._is_open = True
        # The record comes last: until its commit it hides what others write into the position topic
        self._producer.flush()
        work = self._work
        progress = LaneProgress(work.first, work.last, number, whole, self._rejected, dict(changes))
        key = encode_lane_key(work.topic, self._lane)
        self._producer.produce(work.position_topic, key, encode_lane_progress(progress))
        self._producer.commit()
        self._is_open, self._progress = False, progress
