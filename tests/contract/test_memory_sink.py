"""The in-memory sink keeps every promise, with either content."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from cdf.errors import LeaseHeld
from cdf.sink import Source
from cdf.testing import MemorySink, MemoryStore, SinkConformance
from cdf.testing.conformance.load import LoadPromises
from cdf.testing.conformance.state import StatePromises
from tests.contract.memory_harness import MemoryHarness

SOURCE = Source("orders", "id", StructType().add("id", "long"), ("id",), "test")


class WithoutSpark(SinkConformance):
    @pytest.fixture
    def spark(self) -> None:
        """The suite's windows and snapshots are in memory."""


class TestMemoryState(WithoutSpark):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


class TestMemoryHistory(WithoutSpark):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(holds="history")


class TestMemoryStateWithSpark(StatePromises, LoadPromises):
    """How rows come out of a DataFrame differs; what the sink makes of them does not."""

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


def test_the_lease_runs_on_the_clock_of_the_store() -> None:
    now = 100.0
    store = MemoryStore(lease_seconds=30, clock=lambda: now)
    MemorySink(store).open(SOURCE)
    now = 129.9
    with pytest.raises(LeaseHeld):
        MemorySink(store).open(SOURCE)
    now = 130.0
    MemorySink(store).open(SOURCE)


def test_opening_again_renews_ones_own_lease() -> None:
    store = MemoryStore()
    sink = MemorySink(store)
    sink.open(SOURCE)
    sink.open(SOURCE)
    with pytest.raises(LeaseHeld):
        MemorySink(store).open(SOURCE)
