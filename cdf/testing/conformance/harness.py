"""The harness that a sink's author implements, and the example table that most tests use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pyspark.sql.types import StructType

from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION
from cdf.errors import CdfError
from cdf.testing.changes import Row, SampleTable, delete, insert, update

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdf.changes.window import Snapshot, Window
    from cdf.sink import Capabilities, Position, Sink

__all__ = ["SinkHarness"]

CANARY = "xanadu"
_KEY_CANARY = "77000"


class SinkHarness(Protocol):
    """One target, empty at the start of each test, with access to it that does not use the sink."""

    @property
    def capabilities(self) -> Capabilities: ...

    def new_sink(self, **overrides: Any) -> Sink:
        """A new instance on the same target, as after a restart. The suite passes no overrides."""
        ...

    def read_rows(self) -> list[dict[str, Any]]:
        """What the target holds, read without the sink; ``[]`` if nothing was created yet.

        State: its rows. History: its changes, those of one key in the target's order, each with ``_change_type`` and
        ``_commit_version``; the rows of a baseline have None and the snapshot's version.
        """
        ...

    def expire_lease(self) -> None:
        """Make the lease expire, although its owner did not release it."""
        ...


def number(index: int) -> int:
    """A key's value that is easy to recognise in an error."""
    return int(f"{_KEY_CANARY}{index:02}")


def row(index: int, name: str | None, amount: int | None = None) -> Row:
    """A row of ``orders``."""
    return {"id": number(index), "name": f"{CANARY}-{name}" if name else name, "amount": amount}


def orders(spark: SparkSession | None) -> SampleTable:
    schema = StructType().add("id", "long").add("name", "string").add("amount", "integer")
    return SampleTable(spark, schema, ("id",), table="orders")


# The example: a table loaded at version 4, and a window of version 5.

START = [row(1, "a", 1), row(2, "b", 2)]
NEXT = [update(row(1, "a", 1), row(1, "c", 10)), delete(row(2, "b", 2)), insert(row(3, "d"))]
AFTER_NEXT = [row(1, "c", 10), row(3, "d")]


def next_window(table: SampleTable) -> Window:
    return table.window(5, NEXT)


def assert_start(harness: SinkHarness, table: SampleTable) -> None:
    assert_contents(harness, table, START, [])


def assert_unchanged(harness: SinkHarness, table: SampleTable) -> None:
    """Check that the target is as ``load_sink`` has left it, with its position."""
    assert_start(harness, table)
    assert read_position(harness, table).version == 4


def assert_next(harness: SinkHarness, table: SampleTable) -> None:
    assert_contents(harness, table, AFTER_NEXT, NEXT)


def assert_contents(harness: SinkHarness, table: SampleTable, rows: Sequence[Row], edits: Sequence[Any]) -> None:
    """Check that a state holds ``rows``, and a history START as a baseline and then the ``edits`` of version 5."""
    if harness.capabilities.holds == "state":
        assert_rows(harness, table, rows)
    else:
        assert_changes(harness, table, baseline(START) + log_entries(5, edits))


def assert_rows(harness: SinkHarness, table: SampleTable, rows: Sequence[Row]) -> None:
    found = [_values(found, table.schema.names) for found in harness.read_rows()]
    expected = [_values(row, table.schema.names) for row in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


LogEntry = tuple[int, str | None, Row]


def baseline(rows: Sequence[Row], version: int = 4) -> list[LogEntry]:
    return [(version, None, row) for row in rows]


def log_entries(version: int, edits: Sequence[Any]) -> list[LogEntry]:
    return [(version, change.type, change.row) for edit in edits for change in edit]


def assert_changes(harness: SinkHarness, table: SampleTable, expected: Sequence[LogEntry]) -> None:
    """Check that the target holds every change once, and the changes of each key in this order."""
    found = [(row[COMMIT_VERSION], row[CHANGE_TYPE], row) for row in harness.read_rows()]
    assert _by_key(found, table) == _by_key(expected, table)


def _by_key(changes: Sequence[LogEntry], table: SampleTable) -> dict[Any, list[Any]]:
    keyed: dict[Any, list[Any]] = {}
    for version, kind, values in changes:
        key = tuple(values[name] for name in table.key)
        keyed.setdefault(key, []).append((version, kind, _values(values, table.schema.names)))
    return keyed


def _values(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in names)


# ── running a sink ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def open_sink(harness: SinkHarness, table: SampleTable) -> Iterator[Sink]:
    sink = harness.new_sink()
    try:
        sink.open(table.source())
        yield sink
    finally:
        sink.close()


@contextmanager
def load_sink(harness: SinkHarness, table: SampleTable, rows: Sequence[Row] = START) -> Iterator[Sink]:
    """An open sink whose target holds ``rows`` at version 4."""
    with open_sink(harness, table) as sink:
        sink.load(start(table, rows))
        yield sink


def start(table: SampleTable, rows: Sequence[Row] = START) -> Snapshot:
    return table.snapshot(4, rows)


def read_position(harness: SinkHarness, table: SampleTable) -> Position:
    """The target's position, read by a new instance."""
    return harness.new_sink().inspect(table.source()).position


class Refusal:
    """The error that ``expect_error`` caught."""

    error: CdfError


@contextmanager
def expect_error(*kinds: type[CdfError]) -> Iterator[Refusal]:
    """Check that the block raises one of these errors, and that the error contains no value of a row."""
    caught = Refusal()
    raised: Exception | None = None
    try:
        yield caught
    except Exception as error:
        raised = error
    assert isinstance(raised, kinds), f"{type(raised).__name__} instead of {_names(kinds)}"
    caught.error = raised
    text = f"{caught.error} {caught.error!r} {caught.error.to_dict()}"
    assert CANARY not in text, "the error contains a row's value"
    assert _KEY_CANARY not in text, "the error contains a key's value"


def _names(kinds: Sequence[type[CdfError]]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def require_holds(holds: str, harness: SinkHarness) -> None:
    """Skip a promise that applies to the other kind of sink only."""
    if harness.capabilities.holds != holds:
        pytest.skip(f"a promise of sinks that hold {holds}; this one holds {harness.capabilities.holds}")
