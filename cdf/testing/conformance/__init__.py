"""The suite that every sink must pass: each test checks one promise of ``cdf.sink.Sink`` in the target itself.

    class TestMySink(SinkConformance):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

The fixture ``harness`` is a ``SinkHarness`` with its own empty target. The fixture ``spark`` is any Spark session (Delta is
not needed). A sink that reads rows by ``collect`` or ``iterate``, never as a DataFrame, needs no session: the fixture then
returns None, and windows and snapshots are in memory (``cdf.changes.in_memory``).

A test that does not apply to the sink's capabilities is skipped with a reason.
"""

from __future__ import annotations

import pytest

# Before these modules are imported, so that pytest shows the compared values of their assertions.
for _part in ("harness", "load", "state", "history", "position", "runner", "reload"):
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from cdf.testing.conformance.harness import SinkHarness  # noqa: E402
from cdf.testing.conformance.history import HistoryPromises  # noqa: E402
from cdf.testing.conformance.load import LoadPromises  # noqa: E402
from cdf.testing.conformance.position import PositionPromises  # noqa: E402
from cdf.testing.conformance.reload import ReloadPromises  # noqa: E402
from cdf.testing.conformance.runner import RunnerPromises  # noqa: E402
from cdf.testing.conformance.state import StatePromises  # noqa: E402

__all__ = ["SinkConformance", "SinkHarness"]


class SinkConformance(LoadPromises, StatePromises, HistoryPromises, PositionPromises, RunnerPromises, ReloadPromises):
    """Subclass it, name the subclass ``Test…`` and give it the fixture ``harness``."""
