"""Staging of the next window while PostgreSQL applies the present one.

The rows go into a separate staging table, under attempt ids that only the next window's own transaction reads. A failed
prefetch is ignored; the window is staged normally, and raises its error then.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdf.changes.window import Window
    from connectors.postgres.staging.columns import Staged

__all__ = ["Prefetch"]

log = logging.getLogger("deltarelay.postgres")

PATIENCE_SECONDS = 10.0
"""How long to wait for a cancelled COPY to end; after that its table is left for a later run to drop."""


class Prefetch:
    """Runs ``job`` in its own thread. ``kind`` is the staging table that it fills."""

    def __init__(self, window: Window, kind: str, job: Callable[[], Staged]) -> None:
        from pyspark import InheritableThread, SparkContext

        self.window, self.kind = window, kind
        self._context = SparkContext.getOrCreate()
        self._tag = f"deltarelay-ahead-{uuid.uuid4().hex}"
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
        """Wait for the end. None: the job failed."""
        try:
            return self._done.result()
        except Exception as error:
            log.info("prefetch failed", extra={"first": self.window.first, "error": type(error).__name__})
            return None

    def cancel(self) -> None:
        """Cancel the job if it is still running, and wait for its end."""
        waited = 0.0
        while self._thread.is_alive() and waited < PATIENCE_SECONDS:
            with suppress(Exception):  # repeated, because the job may not have been submitted yet
                self._context.cancelJobsWithTag(self._tag)
            self._thread.join(0.1)
            waited += 0.1
