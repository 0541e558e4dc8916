"""Injects failures: a wrapper that fails before, during or after a sink's durable step, and input that fails while read.

The moments of a failure:

``before``  nothing has reached the wrapped sink.
``during``  inside the wrapped sink's durable step. Only the sink knows where that is, so it must cooperate: it has the
            attribute ``during`` (``Interruptible``) and calls it, if set, at the point at which a crash would do the
            most harm. A ``during`` fault for a sink without this attribute is refused.
``after``   the step is durable, but its result is lost: the wrapped call returned, the caller gets an error.

Every sink can also be interrupted earlier, while it reads rows: see ``unreadable``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from pyspark.sql.functions import concat, lit, raise_error, when

from cdf.changes.columns import METADATA_COLUMNS, quoted
from cdf.changes.in_memory import InMemorySnapshot, InMemoryWindow
from cdf.changes.window import Snapshot, Window
from cdf.errors import SinkUnavailable
from cdf.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from cdf.changes.schema_diff import SchemaChange
    from cdf.sink import Applied, Capabilities, Inspection, Position, Source

__all__ = ["Fault", "FaultySink", "Interruptible", "before_reading", "unreadable"]

Operation = Literal["open", "load", "apply"]
Moment = Literal["before", "during", "after"]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure of one call."""

    operation: Operation
    moment: Moment
    error: BaseException = field(
        default_factory=lambda: SinkUnavailable("the target cannot be reached (injected fault)")
    )


@runtime_checkable
class Interruptible(Protocol):
    """A sink that a test can interrupt inside its durable step."""

    during: Callable[[], None] | None


class FaultySink(Sink):
    """Raises one queued fault per call of the fault's operation; without a queued fault it behaves like the wrapped sink."""

    def __init__(self, sink: Sink, faults: Iterable[Fault] = ()) -> None:
        self.sink = sink
        self.queued: list[Fault] = []
        self.fired: list[Fault] = []
        self.queue(*faults)

    def queue(self, *faults: Fault) -> None:
        for fault in faults:
            if fault.moment == "during" and not isinstance(self.sink, Interruptible):
                raise TypeError(f"{type(self.sink).__name__} has no `during`: it cannot be interrupted inside a step")
            self.queued.append(fault)

    @property
    def capabilities(self) -> Capabilities:
        return self.sink.capabilities

    def inspect(self, source: Source) -> Inspection:
        return self.sink.inspect(source)

    def open(self, source: Source) -> Position:
        return self._call("open", lambda: self.sink.open(source))

    def load(self, snapshot: Snapshot) -> Applied:
        return self._call("load", lambda: self.sink.load(snapshot))

    def apply(self, window: Window) -> Applied:
        return self._call("apply", lambda: self.sink.apply(window))

    def close(self) -> None:
        self.sink.close()

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        return self.sink.cannot_follow(change, key)

    def way(self, window: Window) -> str:
        return self.sink.way(window)

    def announce(self, window: Window) -> None:
        self.sink.announce(window)

    def cancel(self) -> None:
        self.sink.cancel()

    def __getattr__(self, name: str) -> Any:
        # The protocols of cdf.sink.features are found by isinstance: the wrapper offers those of the wrapped sink.
        if name == "sink":
            raise AttributeError(name)  # not set yet, while the wrapper is being copied or unpickled
        return getattr(self.sink, name)

    def _call(self, operation: Operation, step: Callable[[], Answer]) -> Answer:
        fault = next((fault for fault in self.queued if fault.operation == operation), None)
        if fault is None:
            return step()
        if fault.moment == "before":
            self._fire(fault)
        if fault.moment == "during":
            return self._interrupt(fault, step)
        answer = step()  # if the step itself fails, the fault stays in the queue
        self._fire(fault)
        return answer

    def _interrupt(self, fault: Fault, step: Callable[[], Answer]) -> Answer:
        # A step that never reaches its durable part (a replay) returns, and the fault stays queued for the next step.
        sink: Any = self.sink
        usual, sink.during = sink.during, lambda: self._fire(fault)
        try:
            return step()
        finally:
            sink.during = usual

    def _fire(self, fault: Fault) -> None:
        self.queued.remove(fault)
        self.fired.append(fault)
        raise fault.error


Input = TypeVar("Input", Window, Snapshot)


def unreadable(given: Input, at: Mapping[str, Any]) -> Input:
    """The same window or snapshot, whose rows raise an error when the key ``at`` is read; smaller keys can be read.

    The error's text contains a value of the row, as errors of Spark and of drivers do.
    """
    if isinstance(given, (InMemoryWindow, InMemorySnapshot)):
        kind = _UnreadableInMemoryWindow if isinstance(given, InMemoryWindow) else _UnreadableInMemorySnapshot
        return kind(**_fields(given), at=at)
    if isinstance(given, Window):
        read = lambda: _fail_at(given.read(), at)  # noqa: E731
        return _UnreadableWindow(**{**_fields(given), "read": read}, healthy=given, at=at)
    return dataclasses.replace(given, read=lambda: _fail_at(given.read(), at))


def before_reading(given: Input, call: Callable[[], object]) -> Input:
    """The same window or snapshot, with a ``call`` each time before its rows are read."""
    if isinstance(given, (InMemoryWindow, InMemorySnapshot)):
        return dataclasses.replace(given, rows=_after(call, given.rows))
    return dataclasses.replace(given, read=_after(call, given.read))


def _after(call: Callable[[], object], then: Callable[[], Answer]) -> Callable[[], Answer]:
    def call_then_read() -> Answer:
        call()
        return then()

    return call_then_read


def _fields(given: Any) -> dict[str, Any]:
    return {name.name: getattr(given, name.name) for name in dataclasses.fields(given)}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _UnreadableWindow(Window):
    healthy: Window
    at: Mapping[str, Any]

    def net(self, *, transients: bool = False) -> DataFrame:
        # After the shuffle, so that the sink gets some rows before the error.
        return _fail_at(self.healthy.net(transients=transients), self.at)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _UnreadableInMemoryWindow(InMemoryWindow):
    at: Mapping[str, Any]

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        return _fail_batches_at(table, self.at)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _UnreadableInMemorySnapshot(InMemorySnapshot):
    at: Mapping[str, Any]

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        return _fail_batches_at(table, self.at)


def _fail_batches_at(table: pa.Table, at: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    ordered = table.sort_by([(name, "ascending") for name in at])
    for batch in ordered.to_batches(max_chunksize=1):
        [row] = batch.to_pylist()
        if all(row[name] == value for name, value in at.items()):
            raise RuntimeError(f"cannot read {row}")
        yield batch


def _fail_at(rows: DataFrame, at: Mapping[str, Any]) -> DataFrame:
    name = next(name for name in rows.columns if name not in at and name not in METADATA_COLUMNS)
    value = quoted(name)
    matches = reduce(and_, (quoted(key).eqNullSafe(lit(wanted)) for key, wanted in at.items()))
    failure = raise_error(concat(lit("cannot read "), value.cast("string")))
    ordered = rows.repartitionByRange(2, *map(quoted, at))
    return ordered.withColumn(name, when(matches, failure.cast(rows.schema[name].dataType)).otherwise(value))
