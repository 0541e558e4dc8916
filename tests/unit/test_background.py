"""Work in the background: in order, bounded, and never in the way of a pipeline."""

from __future__ import annotations

import logging
import threading

import pytest

from infra.monitoring.background import Background


def test_tasks_run_in_order_and_close_waits_for_them() -> None:
    done: list[int] = []
    background = Background("test")
    for number in range(100):
        background.submit(lambda number=number: done.append(number))
    assert background.close(10)
    assert done == list(range(100))


def test_the_oldest_is_dropped_while_a_task_hangs(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    running, release = threading.Event(), threading.Event()

    def hang() -> None:
        running.set()
        release.wait(30)

    background = Background("test", limit=3)
    background.submit(hang)
    assert running.wait(10)
    for number in range(5):
        background.submit(lambda number=number: done.append(number))
    assert background.dropped == 2
    with caplog.at_level(logging.WARNING, "deltarelay.monitoring"):
        assert not background.close(0.05)
    assert [record.tasks for record in caplog.records] == [6]  # type: ignore[attr-defined]
    release.set()
    assert background.close(10)
    assert done == [2, 3, 4]


def test_the_latest_of_a_key_replaces_the_one_that_waits_without_loss_and_runs_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[object] = []
    running, release = threading.Event(), threading.Event()

    def hang() -> None:
        running.set()
        release.wait(30)

    background = Background("test")
    background.submit(hang)
    assert running.wait(10)
    for number in range(5):
        background.submit_latest("a", lambda number=number: done.append(number))
    background.submit_latest("b", lambda: done.append("b"))
    background.submit(lambda: done.append("first"))
    release.set()
    with caplog.at_level(logging.WARNING, "deltarelay.monitoring"):
        assert background.close(10)
    assert done == ["first", 4, "b"]
    assert caplog.records == []


def test_a_failing_task_does_not_stop_the_next_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def fail() -> None:
        raise ValueError("a secret")

    background = Background("test")
    with caplog.at_level(logging.WARNING, "deltarelay.monitoring"):
        background.submit(fail)
        background.submit(fail)
        background.submit(lambda: done.append("next"))
        assert background.close(10)
    assert done == ["next"]
    assert [(record.getMessage(), record.error) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("not sent", "ValueError")
    ]
    assert "secret" not in caplog.text


def test_nothing_is_accepted_after_close() -> None:
    done: list[str] = []
    background = Background("test")
    assert background.close(10)
    background.submit(lambda: done.append("late"))
    assert done == []
