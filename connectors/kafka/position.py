"""Where a topic stands: records in a compacted topic of ours, the last of each key counts.

    <topic> lease     who is at work: epoch, holder
    <topic> window    the position, and the window that was begun: its bounds are here before its first event
    <topic> lane <n>  what lane n has of that window, written in the transaction of its events
    <topic> moves     the changes of the position that were made by hand

A window is there when all its lanes are. What is written under the transactional id of the runner, or of a lane, shuts out
whoever had that id before: two runners cannot both move the position.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cdf.errors import CdfError, Fenced, LeaseHeld
from cdf.os_user import os_user
from cdf.sink import Bounds, Position, PositionRecord, Standing
from connectors.kafka.client import ANSWER_SECONDS, Cluster, Reader, Transactional, faults, silent
from connectors.kafka.errors import KafkaFault, is_fenced

__all__ = ["LEASE_SECONDS", "Begun", "LaneDone", "Ledger", "Runner", "State", "lane_key", "lane_name", "lane_record"]

log = logging.getLogger("deltarelay.kafka")

LEASE_SECONDS = 15.0
RENEW_SECONDS = 5.0
RUNNER_SECONDS = 10.0
"""Of the runner's own transactions: one that a killed runner has left open hides what others write into the topic."""
MOST_MOVES = 100
"""So many changes by hand are kept of a target, the latest."""


@dataclass(frozen=True, slots=True)
class LaneDone:
    """What a lane has durably written of a window."""

    first: int
    last: int
    events: int
    whole: bool
    """All of the window's events of this lane; False: the first ``events`` of them."""
    rejected: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)
    """How many of each kind are among them."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A window that was begun, and with what: a lane's events must come out the same when it is taken up again."""

    kind: str
    """``load`` or ``window``."""
    first: int
    last: int
    form: str
    """The events' form (envelope, schemas, net) in one word."""


@dataclass(frozen=True, slots=True)
class State:
    """All that the records say about one target."""

    epoch: int = 0
    holder: str | None = None
    lease_ends: float = 0.0
    """On the brokers' clock, in seconds since 1970; 0: nobody is at work."""
    source: str | None = None
    """The table that it was last opened for."""
    version: int | None = None
    table_id: str | None = None
    lanes: int | None = None
    partitions: int | None = None
    """Of the topic, when the position was last written."""
    topic_id: str | None = None
    """The brokers' own id of the topic: one that is made anew gets another."""
    key: tuple[str, ...] | None = None
    """The key columns: lanes and their order come of them."""
    begun: Begun | None = None
    done: Mapping[int, LaneDone] = field(default_factory=dict)
    updated_at: float | None = None
    """When the position was last written, on the brokers' clock, in seconds since 1970."""
    moves: tuple[PositionRecord, ...] = ()
    """The latest first."""

    @property
    def position(self) -> Position:
        pending = None if self.begun is None else Bounds(self.begun.first, self.begun.last)
        return Position(self.version, self.table_id, pending)

    def done_of(self, lane: int) -> LaneDone | None:
        """What the lane has of the window that was begun."""
        found = self.done.get(lane)
        if found is None or self.begun is None:
            return None
        return found if (found.first, found.last) == (self.begun.first, self.begun.last) else None

    def standing(self, *, most_records: int) -> Standing:
        held = self.lease_ends > time.time()
        return Standing(
            position=self.position,
            source=self.source,
            epoch=self.epoch,
            lease_holder=self.holder if held else None,
            lease_until=_moment(self.lease_ends) if held else None,
            updated_at=None if self.updated_at is None else _moment(self.updated_at),
            records=self.moves[:most_records],
        )


def _moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


_NO_WINDOW: Any = {"first": 0, "last": -1}
"""Bounds that no window has."""


def lane_name(target: str, lane: int) -> str:
    """The transactional id."""
    return f"deltarelay.{target}.lane-{lane}"


def runner_name(target: str) -> str:
    return f"deltarelay.{target}.runner"


def lane_key(target: str, lane: int) -> bytes:
    return f"{target} lane {lane}".encode()


def lane_record(done: LaneDone) -> bytes:
    return json.dumps(asdict(done)).encode()


def window_record(state: State) -> bytes:
    begun = state.begun
    return json.dumps(
        {
            "version": state.version,
            "table_id": state.table_id,
            "lanes": state.lanes,
            "partitions": state.partitions,
            "topic_id": state.topic_id,
            "key": state.key,
            "begun": None if begun is None else asdict(begun),
        }
    ).encode()


class Ledger:
    """Reads the records of one target, from where it stopped the last time. For one thread at a time."""

    def __init__(
        self, cluster: Cluster, topic: str, target: str, *, offset: int = 0, state: State | None = None
    ) -> None:
        self._reader = Reader(cluster, topic, offset=offset)
        self._target = target.encode()
        self.state = state or State()

    @property
    def offset(self) -> int:
        """Whoever reads on from here with ``state`` misses nothing."""
        return self._reader.offset

    def read(self) -> State:
        for message in self._reader.read():
            key, value = message.key(), message.value()
            if key is None or value is None or not key.startswith(self._target + b" "):
                continue
            said = json.loads(value)
            what = key[len(self._target) + 1 :].decode()
            _, at = message.timestamp()
            if what == "lease":
                self.state = replace(
                    self.state,
                    epoch=said["epoch"],
                    holder=said["holder"],
                    lease_ends=at / 1000 + said["seconds"] if said["seconds"] else 0.0,
                    source=said["source"],
                )
            elif what == "window":
                begun = said["begun"]
                self.state = replace(
                    self.state,
                    version=said["version"],
                    table_id=said["table_id"],
                    lanes=said["lanes"],
                    partitions=said["partitions"],
                    topic_id=said.get("topic_id"),
                    key=None if said["key"] is None else tuple(said["key"]),
                    begun=None if begun is None else Begun(**begun),
                    updated_at=at / 1000,
                )
            elif what == "moves":
                moves = (PositionRecord(**{**one, "at": dt.datetime.fromisoformat(one["at"])}) for one in said)
                self.state = replace(self.state, moves=tuple(moves))
            elif what.startswith("lane "):
                lane = int(what.removeprefix("lane "))
                self.state = replace(self.state, done={**self.state.done, lane: LaneDone(**said)})
        return self.state

    def close(self) -> None:
        self._reader.close()


class Runner:
    """The lease on a target, and the only writer of its position while it lasts."""

    def __init__(self, cluster: Cluster, topic: str, target: str, *, pipeline: str, source: str) -> None:
        """Take the lease. Raises LeaseHeld as soon as the present holder is seen to be alive."""
        self.target = target
        self._cluster, self._topic = cluster, topic
        self._about = {"pipeline": pipeline, "source": source}
        self._gate = threading.Lock()
        self._stopped = threading.Event()
        self._fault: CdfError | None = None
        self._ledger = Ledger(cluster, topic, target)
        self._producer: Transactional | None = None
        self._holder = uuid.uuid4().hex
        try:
            self.epoch = self._taken()
        except BaseException:
            self._close()
            raise
        self._renewal = threading.Thread(target=self._renew, name=f"lease {target}", daemon=True)
        self._renewal.start()

    def known(self) -> tuple[State, int]:
        """The records as they were read last, and the offset from which a reader goes on."""
        with self._gate:
            return self._ledger.state, self._ledger.offset

    def _taken(self) -> int:
        deadline = time.monotonic() + LEASE_SECONDS + 2
        state = seen = self._ledger.read()
        if seen.lease_ends:
            log.info("waiting for the lease of another runner", extra={"target": self.target})
            ahead = self._now() - time.monotonic()
            while state.lease_ends and time.monotonic() + ahead < state.lease_ends:
                if state.holder != seen.holder or state.lease_ends > seen.lease_ends or time.monotonic() > deadline:
                    raise _held(self.target)
                time.sleep(0.5)
                state = self._ledger.read()
        # From here on the runner before can write nothing more, and nor can another one that waits as we did
        self._producer = Transactional(self._cluster, runner_name(self.target), seconds=RUNNER_SECONDS)
        self._producer.init()
        # One that began at the same moment is shut out by now: to give way to it would leave nobody
        epoch = self._ledger.read().epoch + 1
        try:
            self._write({}, epoch=epoch)
        except KafkaFault as fault:
            if is_fenced(fault):
                raise _held(self.target) from None
            raise
        return epoch

    def _now(self) -> float:
        """The brokers' clock: the time that they give to a record."""
        from confluent_kafka import Producer

        times: list[float] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                times.append(message.timestamp()[1] / 1000)

        with faults():
            producer = Producer({**self._cluster.settings(), "enable.idempotence": True}, logger=silent())
            producer.produce(self._topic, None, f"{self.target} clock".encode(), on_delivery=delivered)
            producer.flush(ANSWER_SECONDS)
        if not times:
            raise KafkaFault("_TIMED_OUT")
        return times[0]

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, state: State) -> None:
        """Position and window, in one transaction; raises Fenced where another runner has taken over."""
        self._record({f"{self.target} window".encode(): window_record(state)})

    def move(self, state: State, *, before: int | None, action: str, reason: str | None) -> None:
        """As ``write``, with a record of who did it. No lane counts as having a part of any window then: one with the same
        bounds as one before is a new one."""
        assert state.version is not None
        at = dt.datetime.now(dt.UTC)
        made = PositionRecord(at, action, before, state.version, by=os_user(), reason=reason)
        moves = [one.to_dict() for one in (made, *state.moves)][:MOST_MOVES]
        records = {
            f"{self.target} window".encode(): window_record(state),
            f"{self.target} moves".encode(): json.dumps(moves).encode(),
            **{
                lane_key(self.target, lane): lane_record(replace(done, **_NO_WINDOW))
                for lane, done in state.done.items()
            },
        }
        self._record(records)

    def _record(self, records: Mapping[bytes, bytes]) -> None:
        with self._gate:
            if self._fault is not None:
                raise self._fault
            with self._watched():
                self._write(records, epoch=self.epoch)

    def refresh(self) -> State:
        """The records as they are now; raises Fenced where another runner has taken over."""
        with self._gate:
            state = self._ledger.read()
            if state.epoch != self.epoch or state.holder != self._holder:
                self._fault = fenced(self.target)
            if self._fault is not None:
                raise self._fault
            return state

    def _write(self, records: Mapping[bytes, bytes], *, epoch: int, seconds: float = LEASE_SECONDS) -> None:
        producer = self._producer
        if producer is None:  # closed meanwhile, by whoever has waited long enough
            raise fenced(self.target)
        producer.begin()
        lease = {"epoch": epoch, "holder": self._holder, "seconds": seconds, **self._about}
        try:
            for key, value in {**records, f"{self.target} lease".encode(): json.dumps(lease).encode()}.items():
                producer.produce(self._topic, key, value)
            producer.commit()
        except BaseException:  # Ctrl-C too: an open transaction would hide what others write
            producer.abort()
            raise

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
            return
        except KafkaFault as fault:
            # Shut out is also whose transaction took too long for the brokers: the lease tells
            failed = KafkaFault("_TIMED_OUT") if is_fenced(fault) else fault
        # A producer that has failed once is no use any more. A new one under the same id shuts out nobody but a successor,
        # and that one's lease is seen
        self._renew_producer()
        raise self._fault or failed

    def _renew_producer(self) -> None:
        with contextlib.suppress(KafkaFault):
            state = self._ledger.read()
            if state.epoch != self.epoch or state.holder != self._holder:
                self._fault = fenced(self.target)
                return
            if self._producer is not None:
                self._producer.close()
            self._producer = Transactional(self._cluster, runner_name(self.target), seconds=RUNNER_SECONDS)
            self._producer.init()
            state = self._ledger.read()
            if state.epoch != self.epoch or state.holder != self._holder:
                self._fault = fenced(self.target)

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            with self._gate:
                if self._fault is not None or self._stopped.is_set():
                    return
                try:
                    with self._watched():
                        self._write({}, epoch=self.epoch)
                except Fenced:
                    return
                except KafkaFault as fault:
                    # The brokers may be back before the lease ends; if not, whoever takes over shuts this runner out
                    log.warning("lease not renewed", extra={"target": self.target, "error": fault.name})

    def close(self) -> None:
        """Give the lease back, as far as the brokers can be reached."""
        self._stopped.set()
        with self._gate:
            if self._fault is None:
                with contextlib.suppress(KafkaFault):
                    self._write({}, epoch=self.epoch, seconds=0.0)
            self._close()
        self._renewal.join(timeout=5)

    def _close(self) -> None:
        self._ledger.close()
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def _held(target: str) -> LeaseHeld:
    return LeaseHeld(
        f"another runner is at work on {target}",
        hint="nothing was changed: run again when it has finished, or stop it first",
        target=target,
    )


def fenced(target: str) -> Fenced:
    return Fenced(
        f"another runner has taken over {target}; this one writes nothing more",
        hint="let the other runner finish; if it is gone, run again",
        target=target,
    )
