"""The lease of a runner on a topic. Its holder is the only writer of the position."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cdf.errors import CdfError, Fenced, LeaseHeld
from cdf.os_user import os_user
from cdf.sink import PositionRecord
from cdf.sink.runner_id import create_runner_id
from connectors.kafka.client import (
    ANSWER_SECONDS,
    Cluster,
    TransactionalProducer,
    get_silent_logger,
    wrap_client_errors,
)
from connectors.kafka.errors import KafkaFault, build_fenced_error, is_fenced
from connectors.kafka.state.position import (
    PositionReader,
    State,
    encode_lane_key,
    encode_lane_progress,
    encode_window,
    get_runner_id,
)

__all__ = ["LEASE_SECONDS", "Lease"]

log = logging.getLogger("deltarelay.kafka")

LEASE_SECONDS = 15.0
RENEW_SECONDS = 5.0
RUNNER_SECONDS = 10.0
"""Time limit of the runner's own transactions: an open one of a killed runner hides what others write into the topic."""
MOST_MOVES = 100
"""The number of moves that are kept for a target, the latest ones."""
_NO_WINDOW: Any = {"first": 0, "last": -1}
"""Bounds that no window has."""


class Lease:
    """The lease on a target. A thread renews it until ``close``."""

    def __init__(
        self, cluster: Cluster, topic: str, target: str, *, pipeline: str, source: str, max_bytes: int | None = None
    ) -> None:
        """Acquire the lease. ``topic``: the position topic. ``max_bytes``: the largest record that ``write_window`` writes.

        Raises LeaseHeld as soon as the present holder renews it.
        """
        self.target = target
        self._cluster, self._topic, self._max_bytes = cluster, topic, max_bytes
        self._about = {"pipeline": pipeline, "source": source}
        self._gate = threading.Lock()
        self._stopped = threading.Event()
        self._fault: CdfError | None = None
        self._reader = PositionReader(cluster, topic, target)
        self._producer: TransactionalProducer | None = None
        self._holder = create_runner_id()
        try:
            self.epoch = self._acquire()
        except BaseException:
            self._disconnect()
            raise
        self._renewal = threading.Thread(target=self._renew_until_stopped, name=f"lease {target}", daemon=True)
        self._renewal.start()

    def get_known_state(self) -> tuple[State, int]:
        """Return the state that was last read, and the offset from which a reader continues."""
        with self._gate:
            return self._reader.state, self._reader.offset

    def _acquire(self) -> int:
        deadline = time.monotonic() + LEASE_SECONDS + 2
        state = seen = self._reader.read()
        if seen.lease_ends:
            log.info("waiting for the lease of another runner", extra={"target": self.target})
            ahead = self._read_broker_time() - time.monotonic()
            while state.lease_ends and time.monotonic() + ahead < state.lease_ends:
                if state.holder != seen.holder or state.lease_ends > seen.lease_ends or time.monotonic() > deadline:
                    raise _build_lease_error(self.target)
                time.sleep(0.5)
                state = self._reader.read()
        # Fences the previous runner, and every other runner that has waited like this one
        self._producer = self._create_producer()
        self._producer.init()
        # A runner that started at the same moment is fenced now: if this one gave up as well, no runner would be left
        epoch = self._reader.read().epoch + 1
        try:
            self._write({}, epoch=epoch)
        except KafkaFault as fault:
            if is_fenced(fault):
                raise _build_lease_error(self.target) from None
            raise
        return epoch

    def _create_producer(self) -> TransactionalProducer:
        name = get_runner_id(self.target)
        return TransactionalProducer(self._cluster, name, max_bytes=self._max_bytes, seconds=RUNNER_SECONDS)

    def _read_broker_time(self) -> float:
        """Return the brokers' clock, which is the time that they give to a record."""
        from confluent_kafka import Producer

        times: list[float] = []

        def record_time(error: Any, message: Any) -> None:
            if error is None:
                times.append(message.timestamp()[1] / 1000)

        with wrap_client_errors():
            settings = {**self._cluster.build_settings(), "enable.idempotence": True}
            producer = Producer(settings, logger=get_silent_logger())
            producer.produce(self._topic, None, f"{self.target} clock".encode(), on_delivery=record_time)
            producer.flush(ANSWER_SECONDS)
        if not times:
            raise KafkaFault("_TIMED_OUT")
        return times[0]

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write_position(self, state: State) -> None:
        """Write position and pending window in one transaction. Raises Fenced after another runner has taken over."""
        self._write_records(self._encode_position(state))

    def write_window(self, state: State, write_events: Callable[[TransactionalProducer], None]) -> None:
        """Write a window's events and the position after it in one transaction. Raises as ``write_position`` does."""
        self._write_records(self._encode_position(state), write_events)

    def _encode_position(self, state: State) -> dict[bytes, bytes]:
        return {f"{self.target} window".encode(): encode_window(state)}

    def move_position(self, state: State, *, before: int | None, action: str, reason: str | None) -> None:
        """Write the position together with a record of the operator's action.

        The progress of all lanes is reset: a later window may have the same bounds as an earlier one.
        """
        assert state.version is not None
        at = dt.datetime.now(dt.UTC)
        latest = PositionRecord(at, action, before, state.version, by=os_user(), reason=reason)
        moves = [move.to_dict() for move in (latest, *state.moves)][:MOST_MOVES]
        self._write_records(
            {
                **self._encode_position(state),
                f"{self.target} moves".encode(): json.dumps(moves).encode(),
                **{
                    encode_lane_key(self.target, lane): encode_lane_progress(replace(progress, **_NO_WINDOW))
                    for lane, progress in state.lane_progress.items()
                },
            }
        )

    def _write_records(
        self, records: Mapping[bytes, bytes], write_events: Callable[[TransactionalProducer], None] | None = None
    ) -> None:
        with self._gate:
            if self._fault is not None:
                raise self._fault
            with self._recover_producer():
                self._write(records, epoch=self.epoch, write_events=write_events)

    def refresh(self) -> State:
        """Read the present state. Raises Fenced after another runner has taken over."""
        with self._gate:
            state = self._reader.read()
            if state.epoch != self.epoch or state.holder != self._holder:
                self._fault = build_fenced_error(self.target)
            if self._fault is not None:
                raise self._fault
            return state

    def _write(
        self,
        records: Mapping[bytes, bytes],
        *,
        epoch: int,
        seconds: float = LEASE_SECONDS,
        write_events: Callable[[TransactionalProducer], None] | None = None,
    ) -> None:
        producer = self._producer
        if producer is None:  # another thread has closed the lease
            raise build_fenced_error(self.target)
        producer.begin()
        lease = {"epoch": epoch, "holder": self._holder, "seconds": seconds, **self._about}
        try:
            if write_events is not None:
                write_events(producer)
                # The position comes last: until the commit it hides what others write into its topic
                if producer.flush():
                    raise KafkaFault("_TIMED_OUT")
            for key, value in {**records, f"{self.target} lease".encode(): json.dumps(lease).encode()}.items():
                producer.produce(self._topic, key, value)
            producer.commit()
        except BaseException as error:  # Ctrl-C too: an open transaction would hide what others write
            cause = producer.find_cause(error) if isinstance(error, KafkaFault) else error
            producer.abort()
            if cause is error:
                raise
            raise cause from None

    @contextlib.contextmanager
    def _recover_producer(self) -> Iterator[None]:
        try:
            yield
            return
        except KafkaFault as fault:
            # The brokers also fence a producer whose transaction took too long: the lease record shows which it was
            failed = KafkaFault("_TIMED_OUT") if is_fenced(fault) else fault
        # A producer cannot be used after a failure. A new one with the same id fences no one but a successor, whose lease
        # record is seen
        self._replace_producer()
        raise self._fault or failed

    def _replace_producer(self) -> None:
        with contextlib.suppress(KafkaFault):
            if self._is_overtaken():
                return
            if self._producer is not None:
                self._producer.close()
            self._producer = self._create_producer()
            self._producer.init()
            self._is_overtaken()

    def _is_overtaken(self) -> bool:
        """Look for the lease of another runner; once there is one, every later call of this object raises Fenced."""
        state = self._reader.read()
        if state.epoch == self.epoch and state.holder == self._holder:
            return False
        self._fault = build_fenced_error(self.target)
        return True

    def _renew_until_stopped(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            with self._gate:
                if self._fault is not None or self._stopped.is_set():
                    return
                try:
                    with self._recover_producer():
                        self._write({}, epoch=self.epoch)
                except Fenced:
                    return
                except KafkaFault as fault:
                    # The brokers may return before the lease ends; if not, the next runner fences this one
                    log.warning("lease not renewed", extra={"target": self.target, "error": fault.name})

    def close(self) -> None:
        """Release the lease, if the brokers can be reached."""
        self._stopped.set()
        with self._gate:
            if self._fault is None:
                with contextlib.suppress(KafkaFault):
                    self._write({}, epoch=self.epoch, seconds=0.0)
            self._disconnect()
        self._renewal.join(timeout=5)

    def _disconnect(self) -> None:
        self._reader.close()
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def _build_lease_error(target: str) -> LeaseHeld:
    return LeaseHeld(
        f"another runner holds the lease on {target}",
        hint="nothing was changed: run again when that runner has finished, or stop it first",
        target=target,
    )
