"""Observers of a command are called one after the other, and closed at the same time."""

from __future__ import annotations

import logging
import threading

import pytest

from infra.monitoring.observers import Observer, Observers


class Waiting(Observer):
    """Its ``close`` ends once that of the others has begun."""

    def __init__(self, all_closing: threading.Barrier) -> None:
        self._all_closing = all_closing
        self.is_closed = False

    def close(self) -> None:
        self._all_closing.wait(10)
        self.is_closed = True


class Failing(Observer):
    def close(self) -> None:
        raise OSError("planted-secret")


def test_the_end_of_one_does_not_wait_for_that_of_another(caplog: pytest.LogCaptureFixture) -> None:
    all_closing = threading.Barrier(2)
    waiting = [Waiting(all_closing), Waiting(all_closing)]
    with caplog.at_level(logging.WARNING):
        Observers([waiting[0], Failing(), waiting[1]]).close()
    assert [one.is_closed for one in waiting] == [True, True]
    (record,) = caplog.records
    assert (record.message, record.observer, record.error) == ("an observer failed", "Failing", "OSError")  # type: ignore[attr-defined]
