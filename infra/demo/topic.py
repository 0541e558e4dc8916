"""Reads the demo's topic like any consumer, without the code that replicates or verifies."""

from __future__ import annotations

import datetime as dt
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.demo import events
from infra.demo.compare import EPOCH, KEY, Row, Side, format_row

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["Event", "TopicReader", "compute_rows", "format_events", "write_consumer"]


@dataclass(frozen=True, slots=True)
class Event:
    key: int
    id: bytes
    version: int | None = None
    """The commit version of the change."""
    op: str | None = None
    """None: a tombstone."""
    before: Row | None = None
    after: Row | None = None


class TopicReader:
    def __init__(self, brokers: str, name: str) -> None:
        self._topic = events.Topic(brokers, name)
        self.events: list[Event] = []
        """All events so far. Events of one key are in order."""

    def new(self) -> list[Event]:
        """The events since the last call."""
        found = [_event(message) for message in self._topic.read()]
        self.events += found
        return found

    def close(self) -> None:
        self._topic.close()


def write_consumer(file: Path) -> None:
    """Write a program that prints the events: the module that the demo reads them with."""
    file.write_text(inspect.getsource(events), encoding="utf-8")


def compute_rows(events: Sequence[Event], columns: tuple[str, ...]) -> Side:
    """The rows that result from the last event of each key. A column added later is null in earlier events."""
    last = {event.key: event.after for event in events}
    rows = {key: {name: row.get(name) for name in columns} for key, row in last.items() if row is not None}
    return Side(columns, len(rows), rows)


def format_events(events: Sequence[Event], keys: Sequence[int], target: Side) -> Iterator[str]:
    """The events of these keys as a table; beside the last event of each key the row in PostgreSQL."""
    yield f"  {'key':>4}  version  {'event':<34}PostgreSQL's row"
    for key in keys:
        own = [event for event in events if event.key == key]
        for number, event in enumerate(own, 1):
            row = format_row(target.rows.get(key)) if number == len(own) else ""
            name = key if number == 1 else ""
            yield f"  {name:>4}  {_blank(event.version):>7}  {_change(event):<33} {row}".rstrip()


def _event(message: Message) -> Event:
    key = json.loads(message.key() or b"")[KEY]
    id = dict(message.headers() or ())["deltarelay.event_id"]
    assert isinstance(id, bytes)
    value = message.value()
    if value is None:
        return Event(key, id)
    change = json.loads(value)
    version = change["source"]["commit_version"]
    return Event(key, id, version, change["op"], _row(change["before"]), _row(change["after"]))


def _row(value: Mapping[str, Any] | None) -> Row | None:
    if value is None:
        return None
    signed_up = dt.datetime.fromisoformat(value["signed_up"])
    return {
        **value,
        "balance": Decimal(value["balance"]),
        "signed_up": (signed_up - EPOCH) // dt.timedelta(microseconds=1),
    }


def _change(event: Event) -> str:
    before, after = event.before, event.after
    if event.op is None:
        return "tombstone"
    if before is not None and after is not None:
        changed = [name for name in after if before.get(name) != after[name]]
        text = ", ".join(f"{name} {_text(before.get(name))} → {_text(after[name])}" for name in changed)
    else:
        text = f"{_brief(before)} → {_brief(after)}".strip()
    return f"{event.op}  {text}"


def _brief(row: Row | None) -> str:
    return "" if row is None else f"{row['name'].split()[0]} {row['balance']:,}"


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, Decimal) else _blank(value, "-")


def _blank(value: Any, blank: str = "") -> str:
    return blank if value is None else str(value)
