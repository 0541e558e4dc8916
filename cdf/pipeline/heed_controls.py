"""A runner heeds what users decided about its pipeline: a pause, and the approval of a window that a brake stops."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.errors import BrakeStopped, CdfError, Paused
from cdf.pipeline.brakes import judge_window
from cdf.sink import Controllable
from cdf.sink.controls import BrakeStop, Controls, clear_stop, record_stop

if TYPE_CHECKING:
    from cdf.changes.window import Window
    from cdf.pipeline.context import PipelineContext

__all__ = ["HeededControls"]

MAX_AGE_SECONDS = 5.0
"""How old the controls may be before they are read again."""
DECISION_SECONDS = 5.0
"""How often a follower looks whether a pipeline was resumed, or a window approved."""
RETRY_SECONDS = 60.0
"""How often at most a follower judges a stopped window again because the source has new commits."""

_log = logging.getLogger("deltarelay.controls")


class HeededControls:
    """The controls of one pipeline as its runner last read them. A sink that stores none has none."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._controls = Controls()
        self._read_at: float | None = None
        self.is_known_stop = False
        """The window that was stopped last had been stopped by an earlier run already."""

    def refresh(self) -> None:
        """Read the controls again, unless they are young enough. Raises Paused for a paused pipeline."""
        self.read()
        if (pause := self._controls.paused) is not None:
            raise Paused(
                f"{self._context.name} is paused since {pause.at:%Y-%m-%d %H:%M} UTC by {pause.by}: {pause.reason}",
                hint=f"`deltarelay resume {self._context.name}`",
            )

    def read(self) -> None:
        sink = self._context.sink
        if isinstance(sink, Controllable) and (
            self._read_at is None or time.monotonic() - self._read_at > MAX_AGE_SECONDS
        ):
            self._controls = sink.controls()
            self._read_at = time.monotonic()

    def wait_for_decision(self, error: BrakeStopped | Paused, stop: threading.Event) -> None:
        """Wait until it is worth to try again, or until ``stop`` is set.

        Opening a paused pipeline costs little. To judge a stopped window again costs a count of its rows, so that is done
        after a decision, or if the source has new commits, which may have repaired it.
        """
        retry_at = time.monotonic() + RETRY_SECONDS
        while not stop.wait(DECISION_SECONDS):
            with suppress(CdfError):
                if isinstance(error, Paused) or self._has_changed():
                    return
                if time.monotonic() > retry_at and self._context.feed.log.latest() > error.fields["last"]:
                    return

    def _has_changed(self) -> bool:
        """Read the controls now. → whether a user has decided something since they were read before"""
        before = self._controls
        self.forget()
        self.read()
        return (before.paused, before.approvals) != (self._controls.paused, self._controls.approvals)

    def forget(self) -> None:
        """Read the controls again at the next ``refresh``."""
        self._read_at = None

    def ends_window(self, version: int) -> bool:
        """Whether an approved window ends with this version."""
        return any(one.last == version for one in self._controls.approvals)

    def judge(self, window: Window) -> None:
        """Raise BrakeStopped if a brake stops the window and no approval lets it pass."""
        error, sink = self.find_stop(window), self._context.sink
        if error is None:
            return
        earlier = self._controls.stopped
        # A later commit makes the window longer
        self.is_known_stop = earlier is not None and earlier.first == window.first
        is_stored = self.is_known_stop and earlier is not None and earlier.message == error.message
        if isinstance(sink, Controllable) and not is_stored:
            stop = BrakeStop(dt.datetime.now(dt.UTC), window.first, window.last, error.message, window.table_id)
            try:
                self._controls = sink.change_controls(lambda controls: record_stop(controls, stop))
            except CdfError as failure:  # for information only: the window is stopped whether or not this is stored
                self._log_not_stored(failure)
        raise error

    def find_stop(self, window: Window) -> BrakeStopped | None:
        """The error with which a brake stops the window; None: it may be applied. Reads only."""
        context = self._context
        if self._controls.find_approval(window.first, window.last, window.table_id) is not None:
            return None
        brakes = context.brakes
        if not context.sink.capabilities.applies_deletes:
            brakes = replace(brakes, max_delete_rows=None, max_delete_share=None)
        return judge_window(
            window,
            brakes,
            pipeline=context.name,
            rows_after=lambda: context.snapshot(window.last).count(),
        )

    def clear(self, position: int) -> None:
        """Forget what was decided about windows that the target holds now."""
        sink = self._context.sink
        if not isinstance(sink, Controllable) or clear_stop(self._controls, position) is self._controls:
            return
        try:
            self._controls = sink.change_controls(lambda controls: clear_stop(controls, position))
        except CdfError as error:  # the next step tries again
            self._log_not_stored(error)

    def _log_not_stored(self, error: CdfError) -> None:
        _log.warning("controls not stored", extra={"pipeline": self._context.name, "code": error.code})
