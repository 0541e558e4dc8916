"""The in-memory sink keeps every promise, with either content."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from cdf.errors import LeaseHeld
from cdf.sink import Source
from cdf.testing import MemorySink, MemoryStore, SinkConformance
from tests.contract.memory_harness import MemoryHarness

SOURCE = Source("orders", "id", StructType().add("id", "long"), ("id",), "test")


class TestMemoryState(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


class TestMemoryHistory(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(holds="history")


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
