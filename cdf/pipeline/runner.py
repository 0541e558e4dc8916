"""Runs the steps of a pipeline: opens the sink, loads, applies windows, closes, records failures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from cdf.errors import BrakeStopped, CdfError, Interrupted, LeaseHeld, Paused
from cdf.interrupt import Stop
from cdf.pipeline.heed_controls import HeededControls
from cdf.pipeline.preflight import check_ahead, expected_schema, inspect
from cdf.pipeline.windows import CheckedRange, list_windows
from cdf.results import Step
from cdf.sink import Applied, Bounds, Monitored, Position

if TYPE_CHECKING:
    from cdf.changes.window import Window
    from cdf.pipeline.context import PipelineContext

__all__ = ["Runner"]

_log = logging.getLogger("deltarelay.run")


class Runner:
    """Uses the sink of one pipeline, from one thread at a time."""

    def __init__(self, context: PipelineContext) -> None:
        self.context = context
        self._lock = threading.Lock()
        self._stop = Stop()
        self.controls = HeededControls(context)
        self._checked: CheckedRange | None = None
        """The range that ``open`` has checked: the first windows need not check it again."""

    @contextmanager
    def open(self, last: int, *, retries: int = 0, stop: Stop | None = None) -> Iterator[Position]:
        """Check source and target, open the sink, and close it in every case.

        ``stop``: the caller's own way to ask for the end, instead of ``interrupt``.
        """
        context, log = self.context, self.context.feed.log
        with self.close_afterwards(), self.record_failures(retries, stop):
            self.controls.forget()
            self.controls.refresh()
            # Inspected first: a replaced table is refused before the lease is acquired and before any DDL runs
            with log.cache_reads():
                position = inspect(context, last).position
                context.check_position(position)
                if position.version is not None and position.version < last:
                    first = position.version + 1
                    self._checked = CheckedRange(first, last, check_ahead(context, first, last))
                # The schema at the end of this run: later versions are not this run's concern
                end = max(last, position.version or 0)
                expected = expected_schema(context, position, last)
                source = context.describe_source(log.metadata(end).schema, expected)
            position = context.sink.open(replace(source, retries=retries))
            context.check_position(position)  # opening may have waited for the lease
            yield position

    def steps(
        self, position: Position, last: int, *, through: Callable[[Window], Window] | None = None
    ) -> Iterator[Step]:
        """From an open sink's position to ``last``, one durable step after the other.

        ``through`` may replace each window before it is applied.
        """
        context = self.context
        if position.version is None and context.has_initial_load():
            step = self._load(last, begun=position.pending)
            position = replace(position, version=step.applied.position, pending=None)
            yield step
        checked, self._checked = self._checked, None
        pending = position.pending
        windows = list_windows(context, position, last, checked, ends_window=self.controls.ends_window)
        for window, announce in _with_next(map(through, windows) if through else windows):
            if self._stop.cancelled.is_set():
                raise _interrupted()
            self.controls.refresh()
            # ``through`` and the guard expect each window in its turn: no window is prepared ahead for them
            if through is None and context.guard is None:
                announce(context.sink.announce)
            # A pending window is durable in part: it must be finished
            is_begun = pending is not None and window.first == pending.first
            step = Step("window", window.first, window.last, last, self._apply(window, is_begun=is_begun))
            self.controls.clear(window.last)
            yield step

    def _load(self, last: int, *, begun: Bounds | None) -> Step:
        """``begun``: a load that is durable in part is completed with the version that it was begun with."""
        context = self.context
        version = min(context.resolve_start_version(), last) if begun is None else begun.last
        snapshot = context.snapshot(version)
        if version < last:
            # Refused before loading: no run could update a target after versions that cannot be applied
            check_ahead(context, version + 1, last)
        snapshot = context.apply_guard(snapshot)
        try:
            applied = context.sink.load(snapshot)
        except CdfError:
            raise
        except Exception as error:
            raise snapshot.failure(error) from error
        return Step("load", version, version, last, applied)

    def _apply(self, window: Window, *, is_begun: bool) -> Applied:
        """Apply one window to the open sink. Every error is raised as a CdfError."""
        window = self.context.apply_guard(window)
        if not is_begun:
            self.controls.judge(window)
        try:
            return self.context.sink.apply(window)
        except CdfError:
            raise
        except Exception as error:
            raise window.failure(error) from error

    def interrupt(self) -> None:
        """Begin no further step and cancel the sink's running one. Called from another thread; never raises."""
        self._stop.cancel()
        self.context.sink.cancel()

    @contextmanager
    def close_afterwards(self) -> Iterator[None]:
        """Use the sink exclusively in the block, and close it in every case."""
        with self._run_alone():
            try:
                yield
            finally:
                self._checked = None
                self.context.sink.close()

    @contextmanager
    def record_failures(self, retries: int = 0, stop: Stop | None = None) -> Iterator[None]:
        """Record a failed or interrupted attempt in the sink's run history.

        An attempt that only found another runner at work (LeaseHeld) or a paused pipeline is not recorded. An error that
        is a consequence of an interrupt is raised as Interrupted.
        """
        try:
            yield
        except KeyboardInterrupt:
            self._record(_interrupted(), retries)
            raise
        except Exception as error:
            if (stop or self._stop).broke_off(error):
                self._record(_interrupted(), retries)
                raise _interrupted() from error
            if isinstance(error, CdfError) and not isinstance(error, (LeaseHeld, Paused)):
                self._record(error, retries)
            raise

    def record_success(self) -> None:
        """Record on the open sink that a run has succeeded: without new commits nothing else shows it."""
        sink = self.context.sink
        if isinstance(sink, Monitored):
            try:
                sink.report({"pipeline": self.context.name, "run": "succeeded"})
            except Exception as error:  # the run has succeeded although this cannot be stored
                extra = {"pipeline": self.context.name, "error": type(error).__name__}
                _log.warning("success not stored", extra=extra)

    def _record(self, error: CdfError, retries: int) -> None:
        if isinstance(error, BrakeStopped) and self.controls.is_known_stop:
            return
        sink = self.context.sink
        if isinstance(sink, Monitored):
            sink.record_failure(error, pipeline=self.context.name, source=self.context.feed.table, retries=retries)

    @contextmanager
    def _run_alone(self) -> Iterator[None]:
        """Refuse a second thread: opening the sink there would close it for the first one."""
        if not self._lock.acquire(blocking=False):
            raise LeaseHeld(
                f"the pipeline {self.context.name} is already running in this process",
                hint="wait until it ends, or stop following first",
            )
        try:
            yield
        finally:
            self._lock.release()


def _interrupted() -> Interrupted:
    return Interrupted("interrupted", hint="applied changes are kept and the position is intact: run again to continue")


def _with_next(windows: Iterator[Window]) -> Iterator[tuple[Window, Callable[[Callable[[Window], None]], None]]]:
    """Each window, and a function that passes the window after it to a callback.

    The next window is read when that function is called. If reading it fails, the error is raised in that window's turn,
    after the current window was applied.
    """
    found: list[Window] = []
    failed: list[Exception] = []

    def announce(callback: Callable[[Window], None]) -> None:
        try:
            found.extend(islice(windows, 1))
        except Exception as error:
            failed.append(error)
        for window in found:
            callback(window)

    while True:
        if failed:
            raise failed.pop()
        window = found.pop() if found else next(windows, None)
        if window is None:
            return
        yield window, announce
