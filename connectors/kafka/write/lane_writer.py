"""Writes one lane of one window: its events and a record of them, in one transaction under the lane's own id.

An attempt fences earlier attempts at this lane, reads how many events the lane already has, and skips that many: the order
of the events is the same each time. A lane that would exceed the time limit of a transaction is split into several.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice

from connectors.kafka.client import Cluster, TransactionalProducer, wrap_client_errors
from connectors.kafka.errors import KafkaFault, is_fenced
from connectors.kafka.state.position import (
    LaneProgress,
    PositionReader,
    State,
    encode_lane_key,
    encode_lane_progress,
    get_lane_id,
)
from connectors.kafka.write.record_producer import EventFields, LaneWork, RecordProducer, check_topic

__all__ = [
    "LANE_FENCED",
    "RUNNER_FENCED",
    "OpenLane",
    "write_lane",
]

TRANSACTION_EVENTS = 200_000
"""Maximum number of events in one transaction."""
TRANSACTION_SHARE = 0.4
"""A transaction is committed after this share of its time limit."""
CHECK_EVENTS = 2_000
"""After this many events, the clock is checked and the client may report failures."""
CHECK_BYTES = 16 * 1024 * 1024
LANE_FENCED = "LANE_FENCED"
"""Another attempt has fenced this one and did not finish."""
RUNNER_FENCED = "RUNNER_FENCED"
FEWER_EVENTS = "FEWER_EVENTS_THAN_BEFORE"
"""More events of the lane are durable than were computed now: they are not the same events."""
SUCCESSOR_SECONDS = 60.0
"""Time limit without progress for another attempt that has fenced this one."""


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
    work: LaneWork, lane: int, events: Iterable[EventFields], *, open_lane: OpenLane | None = None
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
        check_topic(work, current.producer, state.partitions)
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
        self._records = RecordProducer(work, producer, rejected=progress.rejected, changes=Counter(progress.changes))
        self._is_open = False
        self._began = 0.0
        self._in_transaction = 0

    def write(self, events: Iterable[EventFields]) -> LaneProgress:
        durable, events = self._progress.events, iter(events)
        try:
            with wrap_client_errors():
                number = sum(1 for _ in islice(events, durable))
                if number < durable:
                    raise KafkaFault(FEWER_EVENTS)
                for event in events:  # the transaction begins when there is an event to write
                    if not self._is_open:
                        self._begin()
                    produced = self._records.produce(
                        chain([event], events), max_events=CHECK_EVENTS, max_bytes=CHECK_BYTES
                    )
                    number += produced
                    self._in_transaction += produced
                    self._check_limits(number)
                self._commit(number, whole=True)
        except BaseException as error:
            cause = self._producer.find_cause(error) if isinstance(error, KafkaFault) else error
            if self._is_open:
                self._producer.abort()
            raise cause from None
        return self._progress

    def _begin(self) -> None:
        self._producer.begin()
        self._is_open, self._began, self._in_transaction = True, time.monotonic(), 0

    def _check_limits(self, number: int) -> None:
        """Report failures of the client, and commit the transaction before it becomes too long."""
        self._producer.poll()
        is_late = time.monotonic() - self._began > self._work.cluster.transaction_seconds * TRANSACTION_SHARE
        if is_late or self._in_transaction >= TRANSACTION_EVENTS:
            self._commit(number, whole=False)

    def _commit(self, number: int, *, whole: bool) -> None:
        if not self._is_open:
            self._begin()
        # The record comes last: until its commit it hides what others write into the position topic
        self._producer.flush()
        work, records = self._work, self._records
        progress = LaneProgress(work.first, work.last, number, whole, records.rejected, dict(records.changes))
        key = encode_lane_key(work.topic, self._lane)
        self._producer.produce(work.position_topic, key, encode_lane_progress(progress))
        self._producer.commit()
        self._is_open, self._progress = False, progress
