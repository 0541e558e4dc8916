"""Which messages are due: the incidents that are there now, compared with those that messages were sent for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdf.errors import BrakeStopped, CdfError, Interrupted, LeaseHeld, Paused
from infra.monitoring.health import Incident

__all__ = ["Message", "Origin", "apply_messages", "find_messages", "judge_error", "says_nothing"]

Origin = Literal["run", "status", "verify", "anchors", "register"]
"""Where an incident was noticed. It is over when it is not found there any more."""


@dataclass(frozen=True, slots=True)
class Message:
    kind: str
    title: str
    text: str
    entry: Mapping[str, Any] | None
    """What is remembered about the incident; None: it is over."""


def says_nothing(error: CdfError | None) -> bool:
    """Whether a run that ended with this error says nothing about the pipeline."""
    return isinstance(error, (Interrupted, LeaseHeld, Paused))


def judge_error(error: CdfError | None) -> Sequence[Incident]:
    """The incident of a run that ended with an error. Messages of errors contain no row values."""
    if error is None or says_nothing(error):
        return ()
    if isinstance(error, BrakeStopped):
        return [Incident("stopped_by_brake", error.message)]
    if error.code == "erased_person_returned":
        return [Incident("person_returned", error.message)]
    return [Incident("unreachable" if error.transient else "failed", error.message)]


def find_messages(
    subject: str,
    open_incidents: Mapping[str, Any],
    found: Sequence[Incident],
    origin: Origin,
    kinds: Collection[str],
    now: dt.datetime,
    *,
    unjudged: Collection[str] = (),
) -> Sequence[Message]:
    """Those that are over first. ``subject``: what has the incidents, in titles. ``open_incidents``: by kind, what is
    remembered. ``unjudged``: kinds of which it is unknown whether they are there, so they are not over."""
    present = {one.kind: one for one in found if one.kind in kinds}
    messages = []
    for kind, entry in open_incidents.items():
        if entry["origin"] == origin and kind not in {*present, *unjudged}:
            text = f"since {dt.datetime.fromisoformat(entry['at']):%Y-%m-%d %H:%M} UTC: {entry['text']}"
            messages.append(Message(kind, f"deltarelay: {subject}: {_format_kind(kind)} is over", text, None))
    for kind, incident in present.items():
        if kind not in open_incidents:
            entry = {"at": now.isoformat(timespec="seconds"), "text": incident.text, "origin": origin}
            messages.append(Message(kind, f"deltarelay: {subject}: {_format_kind(kind)}", incident.text, entry))
    return messages


def apply_messages(open_incidents: Mapping[str, Any], sent: Sequence[Message]) -> Mapping[str, Any]:
    """The open incidents after these messages."""
    changed = {**open_incidents, **{one.kind: one.entry for one in sent}}
    return {kind: entry for kind, entry in changed.items() if entry is not None}


def _format_kind(kind: str) -> str:
    return kind.replace("_", " ")
