"""Records in the position topic, which is compacted: the last record of each key is valid.

    <topic> lease     the runner that holds the lease: epoch, holder
    <topic> window    the position, and the window in progress in lanes: its bounds are recorded before its first event
    <topic> lane <n>  what lane n has written of that window; part of the transaction that has the events
    <topic> moves     changes of the position by an operator
    <topic> controls  pauses and approvals (``connectors.kafka.state.controls``)

A window is complete when all its lanes are; one of few events is part of the transaction that moves the position. The runner
and each lane write under transactional ids of their own, and a new producer fences the earlier ones with its id: two runners
cannot both move the position.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cdf.sink import Bounds, Controls, Position, PositionRecord, Standing
from connectors.kafka.client import Cluster
from connectors.kafka.reader import PartitionReader

__all__ = [
    "LaneProgress",
    "PendingWindow",
    "PositionReader",
    "State",
    "encode_lane_key",
    "encode_lane_progress",
    "encode_window",
    "get_lane_id",
    "get_runner_id",
    "read_state",
]


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """What a lane has durably written of a window. Stored with these names."""

    first: int
    last: int
    events: int
    whole: bool
    """True: all events of the window in this lane. False: the first ``events`` of them."""
    rejected: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)
    """Number of events by change type."""


@dataclass(frozen=True, slots=True)
class PendingWindow:
    """A window in progress, and the form of its events. Stored with these names.

    A successor must compute the same events, so that lanes can continue in the middle.
    """

    kind: str
    """``load`` or ``window``."""
    first: int
    last: int
    form: str
    """The form of the events: envelope, schemas and net in one word."""


@dataclass(frozen=True, slots=True)
class State:
    """All that the records contain about one target."""

    epoch: int = 0
    holder: str | None = None
    lease_ends: float = 0.0
    """By the brokers' clock, in seconds since 1970; 0: no runner holds the lease."""
    lease_written_at: dt.datetime | None = None
    """When a runner acquired, renewed or released the lease last, by the brokers' clock."""
    source: str | None = None
    """The table for which the sink was last opened."""
    version: int | None = None
    table_id: str | None = None
    lanes: int | None = None
    partitions: int | None = None
    """Of the topic, when the position was last written."""
    topic_id: str | None = None
    """The brokers' id of the topic: a recreated topic has another one."""
    key: tuple[str, ...] | None = None
    """The key columns, which determine the lanes and the order of their events."""
    pending: PendingWindow | None = None
    lane_progress: Mapping[int, LaneProgress] = field(default_factory=dict)
    updated_at: float | None = None
    """When the position was last written, by the brokers' clock, in seconds since 1970."""
    moves: tuple[PositionRecord, ...] = ()
    """The latest first."""
    controls: Controls = field(default_factory=Controls)

    @property
    def position(self) -> Position:
        pending = None if self.pending is None else Bounds(self.pending.first, self.pending.last)
        return Position(self.version, self.table_id, pending)

    def get_progress(self, lane: int) -> LaneProgress | None:
        """Return what the lane has of the pending window; None for nothing."""
        found = self.lane_progress.get(lane)
        if found is None or self.pending is None:
            return None
        return found if (found.first, found.last) == (self.pending.first, self.pending.last) else None

    def to_standing(self, *, most_records: int) -> Standing:
        is_held = self.lease_ends > time.time()
        return Standing(
            position=self.position,
            source=self.source,
            epoch=self.epoch,
            lease_holder=self.holder if is_held else None,
            lease_until=_to_datetime(self.lease_ends) if is_held else None,
            updated_at=None if self.updated_at is None else _to_datetime(self.updated_at),
            records=self.moves[:most_records],
        )


def _to_datetime(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def get_lane_id(target: str, lane: int) -> str:
    """Return the transactional id of a lane."""
    return f"deltarelay.{target}.lane-{lane}"


def get_runner_id(target: str) -> str:
    """Return the transactional id of the runner."""
    return f"deltarelay.{target}.runner"


def encode_lane_key(target: str, lane: int) -> bytes:
    return f"{target} lane {lane}".encode()


def encode_lane_progress(progress: LaneProgress) -> bytes:
    return json.dumps(asdict(progress)).encode()


def encode_window(state: State) -> bytes:
    pending = state.pending
    return json.dumps(
        {
            "version": state.version,
            "table_id": state.table_id,
            "lanes": state.lanes,
            "partitions": state.partitions,
            "topic_id": state.topic_id,
            "key": state.key,
            "begun": None if pending is None else asdict(pending),
        }
    ).encode()


class PositionReader:
    """Reads the records of one target, each time from where the last call ended. For one thread at a time."""

    def __init__(
        self, cluster: Cluster, topic: str, target: str, *, offset: int = 0, state: State | None = None
    ) -> None:
        self._reader = PartitionReader(cluster, topic, offset=offset)
        self._target = target.encode()
        self.state = state or State()

    @property
    def offset(self) -> int:
        """A reader that starts here with ``state`` misses no record."""
        return self._reader.offset

    def read(self) -> State:
        for message in self._reader.read():
            key, value = message.key(), message.value()
            if key is None or value is None or not key.startswith(self._target + b" "):
                continue
            _, milliseconds = message.timestamp()
            kind = key[len(self._target) + 1 :].decode()
            self.state = _apply_record(self.state, kind, json.loads(value), milliseconds / 1000)
        return self.state

    def close(self) -> None:
        self._reader.close()


def _apply_record(state: State, kind: str, fields: Any, at: float) -> State:
    """``at``: the brokers' time of the record, in seconds since 1970."""
    if kind == "lease":
        return replace(
            state,
            epoch=fields["epoch"],
            holder=fields["holder"],
            lease_ends=at + fields["seconds"] if fields["seconds"] else 0.0,
            lease_written_at=_to_datetime(at),
            source=fields["source"],
        )
    if kind == "window":
        pending = fields["begun"]
        return replace(
            state,
            version=fields["version"],
            table_id=fields["table_id"],
            lanes=fields["lanes"],
            partitions=fields["partitions"],
            topic_id=fields.get("topic_id"),
            key=None if fields["key"] is None else tuple(fields["key"]),
            pending=None if pending is None else PendingWindow(**pending),
            updated_at=at,
        )
    if kind == "moves":
        moves = (PositionRecord(**{**move, "at": dt.datetime.fromisoformat(move["at"])}) for move in fields)
        return replace(state, moves=tuple(moves))
    if kind == "controls":
        return replace(state, controls=Controls.from_document(fields))
    if kind.startswith("lane "):
        lane = int(kind.removeprefix("lane "))
        return replace(state, lane_progress={**state.lane_progress, lane: LaneProgress(**fields)})
    return state


def read_state(cluster: Cluster, position_topic: str, target: str) -> State:
    """Read the present state without a lease. The position topic must exist."""
    reader = PositionReader(cluster, position_topic, target)
    try:
        return reader.read()
    finally:
        reader.close()
