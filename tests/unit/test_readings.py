"""Values read in the background: a server that does not answer delays neither the caller nor another server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from cdf.errors import SinkUnavailable
from infra.monitoring.page.readings import THREADS, Readings

ANY_AGE = float("inf")


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set at the end, so that no thread outlives the test for long."""
    event = threading.Event()
    yield event
    event.set()


def test_a_server_that_does_not_answer_delays_no_other(never: threading.Event) -> None:
    readings = Readings()
    for number in range(3 * THREADS):
        readings.add(f"slow {number}", "slow", lambda: never.wait(30))
    readings.add("quick", "quick", lambda: 7)
    started = time.monotonic()
    readings.ask([f"slow {number}" for number in range(3 * THREADS)], max_age=ANY_AGE)
    readings.ask(["quick"], max_age=ANY_AGE)
    readings.wait(["quick"], max_age=ANY_AGE, seconds=10)
    assert readings.get("quick").value == 7
    readings.wait(["slow 0"], max_age=ANY_AGE, seconds=0.05)
    assert time.monotonic() - started < 5
    assert sum(readings.get(f"slow {number}").begun_at is not None for number in range(3 * THREADS)) == THREADS
    assert readings.get("slow 0").ended_at is None


def test_a_failed_read_keeps_the_last_value_with_its_age() -> None:
    readings, answers = Readings(), iter([1, SinkUnavailable("the server is away"), ZeroDivisionError("a row value")])

    def read() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    readings.add("one", "lane", read)
    for _ in range(2):
        readings.ask(["one"], max_age=-1)
        moment = time.monotonic()
        readings.wait(["one"], max_age=time.monotonic() - moment, seconds=10)
    found = readings.get("one")
    assert (found.value, found.error and found.error.message) == (1, "the server is away")
    assert found.value_at is not None
    assert found.ended_at is not None
    assert found.value_at < found.ended_at
    readings.ask(["one"], max_age=-1)
    readings.wait(["one"], max_age=0, seconds=10)
    assert found.error is not None
    assert "row value" not in found.error.message
    assert "ZeroDivisionError" in found.error.message


def test_what_a_page_asks_for_is_read_before_what_waits(never: threading.Event) -> None:
    readings, done = Readings(), []
    for number in range(THREADS):
        readings.add(f"hung {number}", "lane", lambda: never.wait(30))
    for name in ("a", "b", "asked"):
        readings.add(name, "lane", lambda name=name: done.append(name))
    readings.ask([*(f"hung {number}" for number in range(THREADS)), "a", "b", "asked"], max_age=ANY_AGE)
    readings.ask(["asked"], max_age=ANY_AGE, first=True)
    never.set()
    readings.wait(["a", "b", "asked"], max_age=ANY_AGE, seconds=10)
    assert done[0] == "asked"
    assert sorted(done) == ["a", "asked", "b"]


def test_a_fresh_value_is_not_read_again() -> None:
    readings, reads = Readings(), []
    readings.add("one", "lane", lambda: reads.append(1))
    for _ in range(3):
        readings.ask(["one"], max_age=60)
        readings.wait(["one"], max_age=60, seconds=10)
    assert len(reads) == 1
