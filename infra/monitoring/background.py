"""Runs work in a thread of its own, in order, with a bounded queue: a slow server never delays a pipeline."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Background"]

LIMIT = 1_000

log = logging.getLogger("deltarelay.monitoring")


class Background:
    """Call ``submit`` from any thread. If more than ``limit`` tasks wait, the oldest is dropped and counted."""

    def __init__(self, name: str, *, limit: int = LIMIT) -> None:
        self._name, self._limit = name, limit
        self._waiting: deque[Callable[[], None]] = deque()
        self._latest: dict[str, Callable[[], None]] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._failures = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        """Return at once. ``task`` sets its own time limits; an exception that it raises is logged."""
        with self._changed:
            if self._closing:
                return
            if len(self._waiting) >= self._limit:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(task)
            self._changed.notify()

    def submit_latest(self, key: str, task: Callable[[], None]) -> None:
        """Run ``task`` when nothing else waits. It replaces the one that waits with this key, which is no loss."""
        with self._changed:
            if not self._closing:
                self._latest[key] = task
                self._changed.notify()

    def close(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the tasks that are waiting. → False if some were not run; the thread is a daemon."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            unfinished = len(self._waiting) + len(self._latest) + self._thread.is_alive()
        if unfinished or self.dropped:
            log.warning("not everything was sent", extra={"to": self._name, "tasks": unfinished + self.dropped})
        return not unfinished

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._latest:
                    if self._closing:
                        return
                    self._changed.wait()
                task = self._waiting.popleft() if self._waiting else self._latest.pop(next(iter(self._latest)))
            try:
                task()
                self._failures = 0
            except Exception as error:
                # One line per outage: a server that is away for a day must not fill the log
                self._failures += 1
                level = logging.WARNING if self._failures == 1 else logging.DEBUG
                log.log(level, "not sent", extra={"to": self._name, "error": type(error).__name__})
