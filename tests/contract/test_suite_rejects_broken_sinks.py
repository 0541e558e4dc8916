"""The suite is worth something only if it turns broken sinks away, each for its own fault."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdf.errors import CdfError
from cdf.testing import MemorySink, SinkConformance
from tests.contract.broken import BROKEN, Broken
from tests.contract.memory_harness import MemoryHarness


def failure(sink: type[MemorySink], promise: str, spark: SparkSession) -> BaseException | None:
    """Run one test of the suite on a fresh target; what it failed with, or None."""
    test = getattr(SinkConformance(), f"test_{promise}")
    try:
        test(spark=spark, harness=MemoryHarness(sink))
    except pytest.skip.Exception as error:
        raise AssertionError(f"{promise} says nothing about {sink.__name__}: {error}") from error
    except (AssertionError, CdfError) as error:  # anything else is a mistake in the broken sink itself
        return error
    return None


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.sink.__name__)
def test_a_broken_sink_is_rejected(spark: SparkSession, broken: Broken) -> None:
    passed = [name for name in broken.caught_by if failure(broken.sink, name, spark) is None]
    assert not passed, f"{broken.sink.__name__} gets away with it"


def test_a_healthy_sink_is_not(spark: SparkSession) -> None:
    # One promise of each sort; TestMemoryState keeps all of them.
    for name in ("keys_are_swapped_within_one_version", "a_stale_runner_cannot_apply", "errors_carry_no_values"):
        assert failure(MemorySink, name, spark) is None


def test_most_promises_have_a_sink_that_breaks_them() -> None:
    promises = {name.removeprefix("test_") for name in dir(SinkConformance) if name.startswith("test_")}
    named = {name for broken in BROKEN for name in broken.caught_by}
    assert named <= promises
    assert len(BROKEN) >= 20
    assert len(named) >= 0.6 * len(promises), sorted(promises - named)
