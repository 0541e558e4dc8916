"""What users decide about a pipeline, stored beside the position of its target: pauses, and approvals of single windows.

A sink stores ``Controls`` as one JSON document (``cdf.sink.features.Controllable``). The functions here compute the next
document; they read no clock and no target.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from cdf.result import Result, plain

__all__ = [
    "Approval",
    "BrakeStop",
    "ControlRecord",
    "Controls",
    "Pause",
    "approve_window",
    "clear_stop",
    "pause",
    "record_stop",
    "resume",
]

MOST_RECORDS = 50
"""Records kept in the document; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class Pause(Result):
    at: dt.datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Approval(Result):
    """Exactly this window may be applied although a brake stops it."""

    first: int
    last: int
    table_id: str
    at: dt.datetime
    by: str


@dataclass(frozen=True, slots=True)
class BrakeStop(Result):
    """The window that a brake stopped last. Nothing of it was applied."""

    at: dt.datetime
    first: int
    last: int
    message: str
    table_id: str | None = None
    """None: stored by a version that did not record it."""


@dataclass(frozen=True, slots=True)
class ControlRecord(Result):
    """One decision of a user."""

    at: dt.datetime
    action: Literal["pause", "resume", "approve"]
    by: str
    text: str
    """The reason of a pause; the window of an approval."""


@dataclass(frozen=True, slots=True)
class Controls(Result):
    """Empty for a pipeline about which nothing was decided."""

    paused: Pause | None = None
    approvals: tuple[Approval, ...] = ()
    """Open approvals: an applied window uses its approval up."""
    stopped: BrakeStop | None = None
    records: tuple[ControlRecord, ...] = ()
    """The latest first."""
    monitoring: Mapping[str, Any] = field(default_factory=dict)
    """What monitoring remembers between processes, such as incidents that a message was sent for."""

    def find_approval(self, first: int, last: int, table_id: str) -> Approval | None:
        return next(
            (one for one in self.approvals if (one.first, one.last, one.table_id) == (first, last, table_id)), None
        )

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = plain({name: getattr(self, name) for name in _FIELDS})
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> Self:
        """Unknown fields are ignored: a later release may have written them."""
        document = document or {}
        paused, stopped = document.get("paused"), document.get("stopped")
        return cls(
            paused=None if paused is None else _build(Pause, paused),
            approvals=tuple(_build(Approval, one) for one in document.get("approvals", ())),
            stopped=None if stopped is None else _build(BrakeStop, stopped),
            records=tuple(_build(ControlRecord, one) for one in document.get("records", ())),
            monitoring=dict(document.get("monitoring", {})),
        )


_FIELDS = ("paused", "approvals", "stopped", "records", "monitoring")


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    known = {name: values[name] for name in kind.__dataclass_fields__ if name in values}
    return kind(**{**known, "at": dt.datetime.fromisoformat(known["at"])})


def pause(controls: Controls, *, now: dt.datetime, by: str, reason: str) -> Controls:
    """A pause that replaces an earlier one keeps the earlier time: the pipeline has stood still since then."""
    since = now if controls.paused is None else controls.paused.at
    return _record(replace(controls, paused=Pause(since, by, reason)), ControlRecord(now, "pause", by, reason))


def resume(controls: Controls, *, now: dt.datetime, by: str) -> Controls:
    return _record(replace(controls, paused=None), ControlRecord(now, "resume", by, ""))


def approve_window(controls: Controls, approval: Approval) -> Controls:
    """An approval replaces those that overlap it: only one of them can be the next window."""
    others = tuple(one for one in controls.approvals if one.last < approval.first or approval.last < one.first)
    record = ControlRecord(approval.at, "approve", approval.by, f"{approval.first}..{approval.last}")
    return _record(replace(controls, approvals=(*others, approval)), record)


def record_stop(controls: Controls, stop: BrakeStop) -> Controls:
    """A repeated stop of the same window keeps its first time."""
    earlier = controls.stopped
    if earlier is not None and earlier.first == stop.first:
        stop = replace(stop, at=earlier.at)
    return replace(controls, stopped=stop)


def clear_stop(controls: Controls, position: int) -> Controls:
    """After the target has reached ``position``: what was decided about windows up to there is done."""
    stopped = None if controls.stopped is None or controls.stopped.first <= position else controls.stopped
    approvals = tuple(one for one in controls.approvals if one.last > position)
    if (stopped, approvals) == (controls.stopped, controls.approvals):
        return controls
    return replace(controls, stopped=stopped, approvals=approvals)


def _record(controls: Controls, record: ControlRecord) -> Controls:
    return replace(controls, records=(record, *controls.records)[:MOST_RECORDS])
