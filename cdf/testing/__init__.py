"""Sinks and a source for tests, and the suite that every sink must pass.

``SinkConformance`` and ``SinkHarness`` need pytest and are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdf.testing.changes import Change, SampleTable, commit, delete, insert, update
from cdf.testing.faulty import Fault, FaultySink, Interruptible, before_reading, unreadable
from cdf.testing.memory import MemorySink, MemoryStore
from cdf.testing.memory_feed import MemoryFeed
from cdf.testing.memory_table import MemoryTable

if TYPE_CHECKING:
    from cdf.testing.conformance import SinkConformance, SinkHarness

__all__ = [
    "SinkConformance",
    "SinkHarness",
    "MemorySink",
    "MemoryStore",
    "MemoryTable",
    "MemoryFeed",
    "FaultySink",
    "Fault",
    "Interruptible",
    "before_reading",
    "unreadable",
    "SampleTable",
    "Change",
    "insert",
    "update",
    "delete",
    "commit",
]


def __getattr__(name: str) -> Any:
    if name in ("SinkConformance", "SinkHarness"):
        from cdf.testing import conformance

        return getattr(conformance, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
