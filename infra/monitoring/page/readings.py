"""Values that are read in the background, each with its age: a page never waits for a server that does not answer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cdf.errors import CdfError

__all__ = ["Reading", "Readings"]

THREADS = 4
"""Threads of a lane: reads of one server that run at the same time."""


@dataclass(slots=True)
class Reading:
    """What is known of one value. The times are those of ``time.monotonic``."""

    lane: str
    read: Callable[[], Any]
    value: Any = None
    """The last value that was read; None: none yet."""
    value_at: float | None = None
    error: CdfError | None = None
    """Why the last read failed; None: it succeeded."""
    ended_at: float | None = None
    """When the last read ended, with a value or an error."""
    begun_at: float | None = None
    """Since when a read is in progress; None: none is."""
    is_queued: bool = False

    def is_newer_than(self, moment: float) -> bool:
        return self.ended_at is not None and self.ended_at >= moment


class Readings:
    """Reads values by key, in threads. Values of one lane (one server) wait for each other, those of other lanes do not."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}
        self._queues: dict[str, deque[str]] = {}
        self._threads: dict[str, int] = {}
        self._changed = threading.Condition()

    def add(self, key: str, lane: str, read: Callable[[], Any]) -> None:
        """Declare a value. ``read`` may take any time; what it raises becomes ``Reading.error``."""
        with self._changed:
            self._readings.setdefault(key, Reading(lane, read))

    def get(self, key: str) -> Reading:
        return self._readings[key]

    def ask(self, keys: Iterable[str], *, max_age: float, first: bool = False) -> None:
        """Read the values again that are older than ``max_age``, in the background. ``first``: before what waits already."""
        moment = time.monotonic() - max_age
        with self._changed:
            for key in keys:
                self._enqueue(key, moment, first=first)

    def wait(self, keys: Iterable[str], *, max_age: float, seconds: float) -> None:
        """Return when none of the values is older than ``max_age``, and after ``seconds`` in any case."""
        wanted = list(keys)
        moment = time.monotonic() - max_age
        with self._changed:
            self._changed.wait_for(
                lambda: all(self._readings[key].is_newer_than(moment) for key in wanted), timeout=seconds
            )

    def _enqueue(self, key: str, moment: float, *, first: bool) -> None:
        reading = self._readings[key]
        if reading.is_newer_than(moment) or reading.begun_at is not None:
            return
        queue = self._queues.setdefault(reading.lane, deque())
        if reading.is_queued:
            if not first:
                return
            queue.remove(key)
        reading.is_queued = True
        if first:
            queue.appendleft(key)
        else:
            queue.append(key)
        if self._threads.get(reading.lane, 0) < THREADS:
            self._threads[reading.lane] = self._threads.get(reading.lane, 0) + 1
            # A daemon: the command can end while a server does not answer
            threading.Thread(target=self._work, args=[reading.lane], name=f"page-{reading.lane}", daemon=True).start()

    def _work(self, lane: str) -> None:
        """Read until the lane's queue is empty; the thread then ends."""
        while True:
            with self._changed:
                if not self._queues[lane]:
                    self._threads[lane] -= 1
                    return
                reading = self._readings[self._queues[lane].popleft()]
                reading.is_queued, reading.begun_at = False, time.monotonic()
            value, error = _read(reading.read)
            with self._changed:
                reading.begun_at, reading.ended_at, reading.error = None, time.monotonic(), error
                if error is None:
                    reading.value, reading.value_at = value, reading.ended_at
                self._changed.notify_all()


def _read(read: Callable[[], Any]) -> tuple[Any, CdfError | None]:
    from infra.output import to_cdf_error

    try:
        return read(), None
    except Exception as error:
        return None, to_cdf_error(error)
