"""The COPY of a window while the one before it is being applied: Spark works on the one, PostgreSQL on the other.

Nothing of it can be seen: the rows go into a staging table of their own, under attempt ids that only the window's own
transaction asks for. Its failure is nobody's either: the window is then staged again in its turn, and told there.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdf.changes.window import Window
    from connectors.postgres.write.staging import Staged

__all__ = ["Ahead"]

log = logging.getLogger("deltarelay.postgres")

PATIENCE_SECONDS = 10.0
"""How long a COPY that is given up may take to end; its table is dropped by a later run then."""


class Ahead:
    """``job`` in a thread of its own. ``kind`` is the staging table that it fills."""

    def __init__(self, window: Window, kind: str, job: Callable[[], Staged]) -> None:
        from pyspark import InheritableThread, SparkContext

        self.window, self.kind = window, kind
        self._context = SparkContext.getOrCreate()
        self._tag = f"deltarelay-ahead-{uuid.uuid4().hex}"
        self._given_up = threading.Event()
        self._done: Future[Staged] = Future()
        self._thread = InheritableThread(target=self._run, args=(job,), name="ahead", daemon=True)
        self._thread.start()

    def _run(self, job: Callable[[], Staged]) -> None:
        try:
            self._context.addJobTag(self._tag)
            self._context.setInterruptOnCancel(True)
            self._done.set_result(job())
        except BaseException as error:
            self._done.set_exception(error)

    def result(self) -> Staged | None:
        """Waits for the end. None: it failed."""
        try:
            return self._done.result()
        except Exception as error:
            log.info("staging ahead failed", extra={"first": self.window.first, "error": type(error).__name__})
            return None

    def give_up(self) -> None:
        """Also for one that has ended."""
        waited = 0.0
        while self._thread.is_alive() and waited < PATIENCE_SECONDS:
            with suppress(Exception):  # again and again: the job may not have been submitted yet
                self._context.cancelJobsWithTag(self._tag)
            self._thread.join(0.1)
            waited += 0.1
