"""Follows a table: the log is asked for new versions at an interval, whole windows are applied as in every run.

    open the sink, catch up in windows                     what a run does
    poll the log, apply what is new, poll again … ──▶ cdf.pipeline.polling

Whenever polling ends without being stopped (a new column, missing files, a replaced table), the loop starts again: opening
and catching up either follow the change or refuse it with an error that explains it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import (
    BrakeStopped,
    CdfError,
    Fenced,
    LeaseHeld,
    Paused,
    SourceError,
    WindowOutOfOrder,
)
from cdf.interrupt import SESSION_GONE, Stop
from cdf.pipeline.follow_failures import describe_failure
from cdf.pipeline.micro_batches import MicroBatches, Progress, measure_lag
from cdf.pipeline.polling import FeedPolls
from cdf.results import Followed, FollowState, FollowStatus
from cdf.session import cancel_tagged_jobs, check_session, tag_jobs

if TYPE_CHECKING:
    from cdf.pipeline.runner import Runner

__all__ = ["Following"]

TRIES = 5
"""Consecutive failures of the source, without a window applied in between, after which following ends."""
LONGEST_PAUSE_SECONDS = 30.0
GIVE_UP_SECONDS = 15.0
"""How long to wait for cancelled work."""
STEADY_SECONDS = 60.0
"""Polling that went on this long did not end because of the previous failure."""
CANCELLED = "57014"
"""PostgreSQL's SQLSTATE of a cancelled statement, usually cancelled by its time limit."""

_log = logging.getLogger("deltarelay.follow")


class Following:
    """A pipeline that follows its table, in its own threads. Created by ``Pipeline.follow``."""

    def __init__(
        self,
        runner: Runner,
        *,
        trigger: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        context = runner.context
        feed = context.feed
        check_session(feed.spark)
        self._runner = runner
        self._context = context
        self._polls = FeedPolls(feed.log, trigger=trigger)
        self._progress = progress
        self._stopping = Stop()
        self._stop = self._stopping.asked
        self._ended = threading.Event()
        self._batches: MicroBatches | None = None
        self._state: FollowState = "starting"
        self._error: CdfError | None = None
        self._last: Followed | None = None
        self._window_count = self._row_count = 0
        self._has_opened = False
        self._failures = self._pauses = 0
        self._waits_for: tuple[FollowState, str] | None = None
        self._job_group = f"deltarelay-follow-{uuid.uuid4().hex}"
        self._thread = threading.Thread(target=self._run, name=f"follow-{context.name}", daemon=True)
        self._thread.start()

    # ── for the caller ───────────────────────────────────────────────────────────────────────────────────────────

    def stop(self, timeout: float | None = 30.0) -> bool:
        """End after the running window; after ``timeout`` seconds that window is rolled back instead. Safe to call twice.

        → False if following has not ended even then. In that case nothing further begins, and one whole step still runs.
        """
        self._stop.set()
        if batches := self._batches:
            batches.stop()
        if threading.current_thread() is self._thread:  # not by ident: that of an ended thread is used again
            return False  # called from ``progress``: following ends after that has returned
        if self._ended.wait(timeout):
            return True
        self._stopping.cancel()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while not self._ended.is_set() and time.monotonic() < deadline:
            self._give_up()  # repeatedly: between two statements there is nothing to cancel
            self._ended.wait(1.0)
        return self._ended.is_set()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end. → False if ``timeout`` (seconds) passed first. Raises the error that ended following, if any."""
        # In small steps: an endless wait would block Ctrl-C on some platforms
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(0.2):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        if self._error is not None:
            raise self._error
        return True

    def status(self) -> FollowStatus:
        """State, position and lag at this moment."""
        error, position = self._error, None
        lag_versions, lag_seconds = None, None
        if (batches := self._batches) is not None and (position := batches.position.version) is not None:
            with suppress(Exception):  # the lag is unknown while the source cannot be read
                lag_versions, lag_seconds = self._measure_lag(position)
        return FollowStatus(
            pipeline=self._context.name,
            table=self._context.feed.table,
            state=self._state,
            position=position,
            lag_versions=lag_versions,
            lag_seconds=lag_seconds,
            windows=self._window_count,
            rows_applied=self._row_count,
            last=self._last,
            code=error.code if error else None,
            error=error.message if error else None,
        )

    def _measure_lag(self, position: int) -> tuple[int | None, float | None]:
        """→ versions, seconds; None: unknown"""
        if not self._context.feed.over_connect:
            behind = measure_lag(self._context.feed.log, position)
            return behind.versions, behind.seconds
        # As the last poll saw it, without a job on the server, which may be busy or gone
        latest = self._polls.latest
        if latest is None:
            return None, None
        versions = max(0, latest - position)
        return versions, None if versions else 0.0

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            spark = self._context.feed.spark
            tag_jobs(spark, self._job_group, f"deltarelay {self._context.name}")
            while not self._stop.is_set():
                try:
                    if self._follow():
                        break
                except Exception as error:
                    failure = self._describe_failure(error)
                    if self._stop.is_set() or self._stopping.broke_off(failure):
                        break  # the error is a consequence of stopping
                    if not self._can_retry(failure):
                        self._error = failure
                        break
                    self._pause(failure)
            self._state = "failed" if self._error is not None else "stopped"
        except BaseException as error:  # the thread ends here: ``await_termination`` must be able to raise the error
            self._error = self._describe_failure(error)
            self._state = "failed"
        finally:
            self._ended.set()

    def _follow(self) -> bool:
        """Open, catch up, follow. → True if following ended as requested, False if the sink has to be opened again."""
        context = self._context
        self._state = "catching_up"
        last = context.resolve_last_version(None)
        with self._runner.open(last, retries=self._pauses, stop=self._stopping) as position:
            self._has_opened = True
            self._batches = batches = MicroBatches(self._runner, position, progress=self._count_progress)
            if self._stop.is_set():  # stop() may have been called before there were batches to stop
                return True
            batches.advance(context.feed.log.latest())
            return self._stop.is_set() or self._apply_new_versions(batches)

    def _apply_new_versions(self, batches: MicroBatches) -> bool:
        self._state = "following"
        _log.info("following", extra={"pipeline": self._context.name, "version": batches.position.version})
        began = time.monotonic()
        try:
            return self._polls.apply_new_versions(batches, self._stop, self._runner.controls.refresh)
        finally:
            if time.monotonic() - began > STEADY_SECONDS:
                self._failures = self._pauses = 0

    def _give_up(self) -> None:
        """Cancel the sink's running statement, and the jobs of a load or a window."""
        self._context.sink.cancel()
        # In a thread of its own: over Spark Connect the request has no time limit, and the server may be gone
        threading.Thread(target=self._cancel_jobs, name=f"cancel-{self._context.name}", daemon=True).start()

    def _cancel_jobs(self) -> None:
        with suppress(Exception):
            cancel_tagged_jobs(self._context.feed.spark, self._job_group)

    # ── failures and progress ────────────────────────────────────────────────────────────────────────────────────

    def _describe_failure(self, error: BaseException) -> CdfError:
        feed = self._context.feed
        return describe_failure(error, feed.spark, feed.table, self._last.position if self._last else 0)

    def _can_retry(self, error: CdfError) -> bool:
        """Every error before the first successful opening is final; later, temporary errors are retried. What a user has to
        decide is waited for in any case."""
        if isinstance(error, (BrakeStopped, Paused)):
            return True
        if not self._has_opened or isinstance(error, Fenced) or error.condition in SESSION_GONE:
            return False
        if error.transient and error.condition != CANCELLED:
            return True
        # An unknown error of the source (its storage may recover), a restored target, and a statement that the server
        # cancelled for its time limit are retried as well, but only a few times
        self._failures += 1
        passing = type(error) is SourceError or isinstance(error, WindowOutOfOrder) or error.condition == CANCELLED
        return passing and self._failures < TRIES

    def _pause(self, error: CdfError) -> None:
        if isinstance(error, (BrakeStopped, Paused)):
            self._wait_for_decision(error)
            return
        self._state = "waiting"
        longest = 1.0 if isinstance(error, LeaseHeld) else LONGEST_PAUSE_SECONDS
        seconds = min(longest, 0.5 * 2 ** min(self._pauses, 10)) * random.uniform(0.5, 1.0)
        self._pauses += 1
        _log.warning(
            "waiting before the next attempt",
            extra={
                "pipeline": self._context.name,
                "seconds": round(seconds, 1),
                "error": error.message,
                "code": error.code,
            },
        )
        self._stop.wait(seconds)

    def _wait_for_decision(self, error: BrakeStopped | Paused) -> None:
        """The lease is free meanwhile. The next attempt finds out whether the user has decided, or repaired the source."""
        state: FollowState = "paused" if isinstance(error, Paused) else "stopped_by_brake"
        if (state, error.message) != self._waits_for:
            fields = {"pipeline": self._context.name, "error": error.message, "code": error.code}
            _log.warning("waiting for the decision of a user", extra=fields)
        self._state, self._waits_for = state, (state, error.message)
        self._runner.controls.wait_for_decision(error, self._stop)

    def _count_progress(self, followed: Followed) -> None:
        self._failures = self._pauses = 0
        self._waits_for = None
        self._last = followed
        self._window_count += 1
        self._row_count += followed.rows_applied
        if self._progress is not None:
            try:
                self._progress(followed)
            except Exception:
                _log.warning("the progress function failed", extra={"pipeline": self._context.name}, exc_info=True)
