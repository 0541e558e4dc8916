"""One lane of one window: its events and the record of them, in one transaction under the lane's own id.

An attempt first shuts out whoever wrote this lane before it, then looks what the lane has, and leaves out that many events:
they come in the same order each time. A lane that would take longer than a transaction may is cut into several.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from connectors.kafka.client import Cluster, Headers, Transactional, faults
from connectors.kafka.errors import KafkaFault, is_fenced
from connectors.kafka.position import LaneDone, Ledger, State, lane_key, lane_name, lane_record

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
    "events_of",
    "write_lane",
]

TRANSACTION_EVENTS = 200_000
"""At most so many events in one transaction."""
TRANSACTION_SHARE = 0.4
"""Of the time that a transaction may take: then it is committed."""
LOOK_EVENTS = 2_000
"""So often is the clock looked at, and the client given a chance to tell what failed."""
LOOK_BYTES = 16 * 1024 * 1024
OVERHEAD_BYTES = 200
"""What a record batch and a record need beside key, value and headers."""
LONGEST_KEY = 4096
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TOO_LARGE = "EVENT_TOO_LARGE"
"""With the version behind it."""
LANE_FENCED = "LANE_FENCED"
"""Another attempt has shut this one out, and came to no end."""
RUNNER_FENCED = "RUNNER_FENCED"
PARTITIONS_CHANGED = "PARTITIONS_CHANGED"
AGAIN = "again"
"""Among the counts of changes: what ``Event.again`` adds up to."""
FEWER_EVENTS = "FEWER_EVENTS_THAN_BEFORE"
"""More of the lane is durable than it has events now: they are not those that it was begun with."""
SUCCESSOR_SECONDS = 60.0
"""So long without any progress may another attempt take that has shut this one out."""


class Event(NamedTuple):
    """The columns of ``to_envelope`` that make a record. ``at``: microseconds since 1970."""

    key: bytes
    value: bytes | None
    tombstone: bool
    """It follows the event of a delete, which was counted."""
    change_type: str
    version: int
    at: int | None
    event_id: str
    again: int = 0
    """How often its key was changed as a key that identifies a row cannot be; see ``to_envelope``."""


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What an attempt has to know; travels to the tasks. ``state``, as of ``offset`` of the position topic."""

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


def events_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Event]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in Event._fields)
        yield from map(Event._make, zip(*columns, strict=True))


class OpenLane:
    """What writes a lane: its producer, which has shut out every other one, and a reader of what the lane has."""

    def __init__(self, cluster: Cluster, topic: str, lane: int, *, max_bytes: int) -> None:
        self.producer = Transactional(cluster, lane_name(topic, lane), max_bytes=max_bytes)
        self._ledger: Ledger | None = None

    def ledger(self, work: LaneWork) -> Ledger:
        """Reads on from where it stood; at first from where the work says."""
        if self._ledger is None:
            self._ledger = Ledger(work.cluster, work.position_topic, work.topic, offset=work.offset, state=work.state)
        return self._ledger

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
        self.producer.close()


def write_lane(work: LaneWork, lane: int, events: Iterable[Event], *, kept: OpenLane | None = None) -> LaneDone:
    """→ once all of the lane's events of the window are durable, whoever wrote them. Raises KafkaFault, after which what was
    ``kept`` from window to window is of no use any more."""
    opened = kept or OpenLane(work.cluster, work.topic, lane, max_bytes=work.max_bytes)
    ledger = opened.ledger(work)
    try:
        if kept is None:
            _checked(ledger.read(), work)  # who comes too late must not shut out those at work
            opened.producer.init()
        state = _checked(ledger.read(), work)
        done = state.done_of(lane) or LaneDone(work.first, work.last, 0, whole=False)
        if done.whole:
            return done
        _check_topic(work, opened.producer, state.partitions)
        return _Writer(work, lane, opened.producer, done).write(events)
    except KafkaFault as fault:
        # After the first word of it the client says no more than that it is at its end
        if not is_fenced(fault) and fault.name != "_FATAL":
            raise
        if kept is not None:  # the driver makes one attempt: there is no end of another one to wait for
            _checked(ledger.read(), work)
            raise KafkaFault(LANE_FENCED) from None
        return _by_the_successor(work, lane, ledger)
    finally:
        if kept is None:
            opened.close()


def _checked(state: State, work: LaneWork) -> State:
    """A task of a runner that was overtaken must not write: its window may be another one by now."""
    if state.epoch != work.epoch or work.state.holder not in (None, state.holder):
        raise KafkaFault(RUNNER_FENCED)
    begun = state.begun
    if begun is None or (begun.first, begun.last) != (work.first, work.last):
        raise KafkaFault(LANE_FENCED)
    return state


def _check_topic(work: LaneWork, producer: Transactional, partitions: int | None) -> None:
    """The topic may have gone since it was opened, or a key may have another place in it: a follower runs for weeks."""
    about = producer.topic(work.topic)
    if about.error is not None:
        raise KafkaFault(about.error.name())
    if partitions not in (None, len(about.partitions)):
        raise KafkaFault(PARTITIONS_CHANGED)


def _by_the_successor(work: LaneWork, lane: int, ledger: Ledger) -> LaneDone:
    """Another attempt of the same task has shut this one out. Failing now would begin a third one, which shuts that out in
    turn: its end is waited for instead."""
    seen, since = ledger.read().done_of(lane), time.monotonic()
    while time.monotonic() - since < SUCCESSOR_SECONDS:
        state = _checked(ledger.read(), work)
        done = state.done_of(lane)
        if done is not None and done.whole:
            return done
        if done != seen:
            seen, since = done, time.monotonic()
        time.sleep(0.2)
    raise KafkaFault(LANE_FENCED)


class _Writer:
    def __init__(self, work: LaneWork, lane: int, producer: Transactional, done: LaneDone) -> None:
        self._work, self._lane, self._producer, self._done = work, lane, producer, done
        self._open = False
        self._began = 0.0
        self._in_transaction = self._unseen_bytes = 0
        self._rejected = done.rejected
        self._constant = [
            ("deltarelay.table", work.table.encode()),
            ("deltarelay.table_id", work.table_id.encode()),
            ("deltarelay.pipeline", work.pipeline.encode()),
        ]
        self._shared: dict[tuple[int, str], tuple[list[tuple[str, str | bytes | None]], int]] = {}

    def write(self, events: Iterable[Event]) -> LaneDone:
        changes = Counter(self._done.changes)
        skipped, number = self._done.events, 0
        try:
            with faults():
                for number, event in enumerate(events, 1):  # counted past the loop
                    if number <= skipped:
                        continue
                    if event.value is not None or not event.tombstone:
                        changes[event.change_type] += 1
                        if event.again:
                            changes[AGAIN] += event.again
                    self._put(event)
                    if self._in_transaction % LOOK_EVENTS == 0 or self._unseen_bytes > LOOK_BYTES:
                        self._look(number, changes)
                if number < skipped:
                    raise KafkaFault(FEWER_EVENTS)
                self._commit(number, changes, whole=True)
        except BaseException as error:
            reason = self._producer.reason(error) if isinstance(error, KafkaFault) else error
            if self._open:
                self._producer.abort()
            raise reason from None
        return self._done

    def _put(self, event: Event) -> None:
        """A loop of its own around the client's call: this is where the time goes."""
        work = self._work
        if not self._open:
            self._producer.begin()
            self._open, self._began, self._in_transaction = True, time.monotonic(), 0
        self._in_transaction += 1
        shared, size = self._headers(event)
        headers = [*shared, ("deltarelay.event_id", event.event_id.encode())]
        size += len(event.key) + len(event.value or b"")
        self._unseen_bytes += size
        if size > work.max_bytes:
            self._set_aside(event, headers, size)
            return
        try:
            self._producer.raw.produce(work.topic, event.value, event.key, headers=headers)
        except BufferError:
            self._producer.produce(work.topic, event.key, event.value, headers)

    def _headers(self, event: Event) -> tuple[list[tuple[str, str | bytes | None]], int]:
        """Those that all changes of one kind in one version have, and the bytes of a record without key and value."""
        found = self._shared.get((event.version, event.change_type))
        if found is None:
            at = None if event.at is None else EPOCH + dt.timedelta(microseconds=event.at)
            headers: list[tuple[str, str | bytes | None]] = [
                *self._constant,
                ("deltarelay.commit_version", str(event.version).encode()),
                ("deltarelay.commit_timestamp", None if at is None else f"{at:%Y-%m-%dT%H:%M:%S.%fZ}".encode()),
                ("deltarelay.change_type", event.change_type.encode()),
            ]
            size = OVERHEAD_BYTES + sum(len(name) + len(value or b"") for name, value in headers)
            if len(self._shared) > 100:
                self._shared.clear()
            found = self._shared[event.version, event.change_type] = headers, size
        return found

    def _set_aside(self, event: Event, headers: Headers, size: int) -> None:
        work = self._work
        if work.rejects == "refuse" or work.dead_letter_topic is None:
            raise KafkaFault(f"{TOO_LARGE}_{event.version}")
        said = {"reason": "too large", "topic": work.topic, "bytes": size, "limit": work.max_bytes}
        letter = [*headers, ("deltarelay.reason", b"too large"), ("deltarelay.topic", work.topic.encode())]
        key = event.key if len(event.key) <= LONGEST_KEY else None  # it may be the key that is too large
        self._producer.produce(work.dead_letter_topic, key, json.dumps(said).encode(), letter)
        self._rejected += 1

    def _look(self, number: int, changes: Mapping[str, int]) -> None:
        self._unseen_bytes = 0
        self._producer.poll()
        late = time.monotonic() - self._began > self._work.cluster.transaction_seconds * TRANSACTION_SHARE
        if late or self._in_transaction >= TRANSACTION_EVENTS:
            self._commit(number, changes, whole=False)

    def _commit(self, number: int, changes: Mapping[str, int], *, whole: bool) -> None:
        if not self._open:
            self._producer.begin()
            self._open = True
        # The record last: as long as it is not committed it hides what others write into the position topic
        self._producer.flush()
        work = self._work
        done = LaneDone(work.first, work.last, number, whole, self._rejected, dict(changes))
        self._producer.produce(work.position_topic, lane_key(work.topic, self._lane), lane_record(done))
        self._producer.commit()
        self._open, self._done = False, done
