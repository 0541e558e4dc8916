"""The suite that every sink passes: each test is one promise of ``cdf.sink.Sink``, checked in the target itself.

    class TestMySink(SinkConformance):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

``harness`` is a ``SinkHarness`` on an empty target of its own; ``spark``, a fixture too, is any Spark session (Delta is
not needed). A sink that takes rows by ``collect`` or ``iterate`` and never asks for a DataFrame needs none: the fixture
then returns None, and windows and snapshots are in memory (``cdf.changes.in_memory``).

A promise that the sink's capabilities rule out is skipped, and the reason says which.
"""

from __future__ import annotations

import pytest

# Before these modules are imported, so that their assertions show what they compared.
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
