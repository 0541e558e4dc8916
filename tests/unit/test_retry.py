"""What passes by itself is tried again, a limited number of times; everything else is told at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from cdf.errors import CdfError, Fenced, LeaseHeld, SinkUnavailable, SourceUnavailable, TargetNotReady
from cdf.interrupt import JVM_GONE
from cdf.session import translate_lost_server
from infra.retry import TRIES, is_retryable, retry

Told = list[tuple[str, int]]


def worker(*answers: CdfError | str) -> Callable[[], str]:
    left: Iterator[CdfError | str] = iter(answers)

    def work() -> str:
        answer = next(left)
        if isinstance(answer, CdfError):
            raise answer
        return answer

    return work


def attempt(
    work: Callable[[], str], *, seconds: float = 0.16, moved: Callable[[], bool] = lambda: False
) -> tuple[str, Told]:
    told: Told = []
    try:
        said = retry(
            work,
            seconds=seconds,
            has_progressed=moved,
            on_retry=lambda error, number, _: told.append((error.code, number)),
        )
    except CdfError as error:
        said = error.message
    return said, told


def test_until_it_goes_through() -> None:
    work = worker(SinkUnavailable("down"), SourceUnavailable("silent"), "done")
    assert attempt(work) == ("done", [("sink_unavailable", 2), ("source_unavailable", 3)])


def test_what_lasts_is_told_after_the_last_try_within_the_time() -> None:
    work, told = worker(*(SinkUnavailable(f"down {number}") for number in range(1, 9))), list[tuple[int, float]]()
    began = time.monotonic()
    with pytest.raises(SinkUnavailable) as last:
        retry(
            work,
            seconds=0.4,
            has_progressed=lambda: False,
            on_retry=lambda _, number, pause: told.append((number, pause)),
        )
    waited, pauses = time.monotonic() - began, sum(pause for _, pause in told)
    assert last.value.message == f"down {TRIES}"
    assert [number for number, _ in told] == list(range(2, TRIES + 1))
    assert 0.3 < pauses <= 0.41
    assert waited >= pauses


@pytest.mark.parametrize("error", [LeaseHeld("held"), Fenced("fenced"), TargetNotReady("foreign rows")])
def test_what_does_not_pass_is_told_at_once(error: CdfError) -> None:
    assert attempt(worker(error, "done")) == (error.message, [])


def test_not_at_all_where_nobody_wants_it() -> None:
    assert attempt(worker(SinkUnavailable("down"), "done"), seconds=0) == ("down", [])


def test_a_try_that_got_somewhere_begins_the_count_anew() -> None:
    went_through = iter([False, False, False, True, True, False, False, False, False, False, False])
    now = [False]

    def work() -> str:
        now[0] = next(went_through)
        raise SinkUnavailable("down")

    said, told = attempt(work, moved=lambda: now[0])
    assert said == "down"
    assert [number for _, number in told] == [2, 3, 4, 2, 2, 2, 3, 4, 5]


def test_a_lost_session_is_not_tried_again_and_the_error_says_what_was_lost() -> None:
    lost = translate_lost_server(RuntimeError("StatusCode.UNAVAILABLE"), "t cannot be read")
    assert lost is not None
    assert (lost.condition, lost.transient) == ("SPARK_CONNECT_SERVER_GONE", True)
    assert "the Spark Connect server does not answer" in lost.message
    assert not is_retryable(lost)
    assert not is_retryable(SourceUnavailable("the Java process has ended", condition=JVM_GONE))
    assert is_retryable(SourceUnavailable("a bucket does not answer"))
