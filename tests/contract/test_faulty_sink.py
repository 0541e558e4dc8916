"""The fault-injecting wrapper: where it fails, what is durable then, and that it is invisible otherwise."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from cdf.errors import LeaseHeld, SinkUnavailable
from cdf.sink import Applied, Position, Sink
from cdf.testing import Fault, FaultySink, Interruptible, MemorySink, MemoryStore, SampleTable, insert

SCHEMA = StructType().add("id", "long")


@pytest.fixture
def table() -> SampleTable:
    return SampleTable(None, SCHEMA, ("id",))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def ids(store: MemoryStore) -> list[int]:
    return sorted(row["id"] for row in store.read_rows())


def test_without_faults_it_is_the_wrapped_sink(table: SampleTable, store: MemoryStore) -> None:
    inner = MemorySink(store)
    sink = FaultySink(inner)
    assert isinstance(sink, Sink)
    assert sink.capabilities == inner.capabilities
    assert sink.open(table.source()) == Position()
    assert sink.load(table.snapshot(4, [{"id": 1}])) == Applied(4, inserts=1)
    assert sink.apply(table.window(5, [insert({"id": 2})])).inserts == 1
    assert sink.inspect(table.source()).position.version == 5
    sink.close()
    MemorySink(store).open(table.source())


@pytest.mark.parametrize(("moment", "durable"), [("before", False), ("during", False), ("after", True)])
def test_load_fails_where_it_is_told_to(table: SampleTable, store: MemoryStore, moment: str, durable: bool) -> None:
    sink = FaultySink(MemorySink(store), [Fault("load", moment)])  # type: ignore[arg-type]
    sink.open(table.source())
    with pytest.raises(SinkUnavailable):
        sink.load(table.snapshot(4, [{"id": 1}]))
    assert ids(store) == ([1] if durable else [])
    assert store.contents.position.version == (4 if durable else None)
    if not durable:
        sink.load(table.snapshot(4, [{"id": 1}]))
    assert ids(store) == [1]


@pytest.mark.parametrize(("moment", "durable"), [("before", False), ("during", False), ("after", True)])
def test_apply_fails_where_it_is_told_to(table: SampleTable, store: MemoryStore, moment: str, durable: bool) -> None:
    sink = FaultySink(MemorySink(store, holds="history"))
    sink.open(table.source())
    sink.queue(Fault("apply", moment))  # type: ignore[arg-type]
    window = table.window(5, [insert({"id": 2})])
    with pytest.raises(SinkUnavailable):
        sink.apply(window)
    assert ids(store) == ([2] if durable else [])
    assert sink.apply(window).replayed is durable  # the lost answer costs nothing but the second call
    assert ids(store) == [2]


@pytest.mark.parametrize(("moment", "taken"), [("before", False), ("during", False), ("after", True)])
def test_open_fails_where_it_is_told_to(table: SampleTable, store: MemoryStore, moment: str, taken: bool) -> None:
    sink = FaultySink(MemorySink(store), [Fault("open", moment)])  # type: ignore[arg-type]
    with pytest.raises(SinkUnavailable):
        sink.open(table.source())
    if taken:
        with pytest.raises(LeaseHeld):
            MemorySink(store).open(table.source())
        sink.close()
    MemorySink(store).open(table.source())


def test_faults_are_taken_in_turn_each_by_its_operation(table: SampleTable, store: MemoryStore) -> None:
    refusal = LeaseHeld("busy")
    first, second, third = Fault("apply", "before"), Fault("open", "before", refusal), Fault("apply", "after")
    sink = FaultySink(MemorySink(store, holds="history"), [first, second, third])
    with pytest.raises(LeaseHeld) as caught:
        sink.open(table.source())
    assert caught.value is refusal
    sink.open(table.source())
    window = table.window(5, [])
    for durable in (None, 5):
        with pytest.raises(SinkUnavailable):
            sink.apply(window)
        assert store.contents.position.version == durable
    assert sink.apply(window).replayed
    assert (sink.queued, sink.fired) == ([], [second, first, third])


def test_a_fault_inside_the_step_waits_for_a_step(table: SampleTable, store: MemoryStore) -> None:
    sink = FaultySink(MemorySink(store, holds="history"))
    sink.open(table.source())
    sink.apply(table.window(5, []))
    fault = Fault("apply", "during")
    sink.queue(fault)
    assert sink.apply(table.window(5, [])).replayed
    assert sink.queued == [fault]
    with pytest.raises(SinkUnavailable):
        sink.apply(table.window(6, []))
    assert store.contents.position.version == 5


def test_a_sink_that_cannot_be_stopped_inside_is_not_stopped_elsewhere(store: MemoryStore) -> None:
    class Sealed(MemorySink):
        during = property()  # type: ignore[assignment]

        def __init__(self, store: MemoryStore) -> None:
            self.store = store

    sealed = Sealed(store)
    assert not isinstance(sealed, Interruptible)
    with pytest.raises(TypeError, match="Sealed"):
        FaultySink(sealed, [Fault("apply", "during")])


def test_optional_powers_shine_through(store: MemoryStore) -> None:
    class Powerful(MemorySink):
        def image(self, source: object) -> str:  # noqa: ARG002
            return "image"

    from cdf.sink import Comparable

    assert not isinstance(FaultySink(MemorySink(store)), Comparable)
    assert isinstance(FaultySink(Powerful(store)), Comparable)
