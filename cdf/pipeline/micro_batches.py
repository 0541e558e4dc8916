"""Brings the sink to a version that a poll of the log or a micro-batch of a user's streaming query has announced.

Of a micro-batch, the version comes from the query's own offset log, not from the rows: an OPTIMIZE has no rows. Polls and
micro-batches are only signals: the windows are read from the table. So no checkpoint, file limit or repeated batch can do
harm.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from cdf.errors import CdfError, ConfigError, PositionError
from cdf.lag import Lag, lag
from cdf.pipeline.stream_offset import find_running_query, read_offset
from cdf.read_errors import translate
from cdf.results import Followed, Step
from cdf.sink import Monitored, Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.changes.window import Window
    from cdf.pipeline.context import PipelineContext
    from cdf.pipeline.runner import Runner
    from cdf.source.log import TableLog

__all__ = ["MicroBatches", "Progress", "measure_lag"]

_log = logging.getLogger("deltarelay.follow")

Progress = Callable[[Followed], None]

STOP_SECONDS = 30.0
"""How long ``close`` lets a running window finish before it cancels that window."""
CANCEL_SECONDS = 60.0
"""How long ``close`` waits for a cancelled window."""


class MicroBatches:
    """The function for ``foreachBatch``, over an open sink: ``batches(micro_batch, batch_id)``.

    Each call brings the sink to the end of the last commit that the micro-batch touches, in whole commits. A repeated
    batch, or one from an older checkpoint, changes nothing; after a gap the versions between are applied first.
    """

    def __init__(
        self,
        runner: Runner,
        position: Position,
        *,
        progress: Progress | None = None,
    ) -> None:
        self.position = position
        self.failure: CdfError | None = None
        """The error that stopped the last call: the query's own exception has it in its text only."""
        self.idle = threading.Event()
        """Set while no window is being applied."""
        self.idle.set()
        self._runner = runner
        self._context = runner.context
        self._progress = progress
        self._job_group: str | None = None
        """The query's job group."""
        self._stop = threading.Event()
        self._gate = threading.Lock()

    def stop(self) -> None:
        """Begin no further window."""
        with self._gate:
            self._stop.set()

    def finish(self) -> None:
        """Begin no further window, and wait for the end of the running one."""
        self.stop()
        self.idle.wait()

    def close(self) -> None:
        """Begin no further window, and wait until the sink is free.

        The running window may finish within ``STOP_SECONDS``, then it is cancelled and rolled back.
        """
        self.stop()
        if self.idle.wait(STOP_SECONDS):
            return
        _log.info("the running window is cancelled", extra={"pipeline": self._context.name})
        deadline = time.monotonic() + CANCEL_SECONDS
        while not self.idle.is_set() and time.monotonic() < deadline:
            self._cancel()  # repeatedly: between two statements there is nothing to cancel
            self.idle.wait(1.0)

    def _cancel(self) -> None:
        self._context.sink.cancel()
        if self._job_group is not None:
            with suppress(Exception):
                self._context.feed.spark.sparkContext.cancelJobGroup(self._job_group)

    def __call__(self, _: DataFrame, batch_id: int) -> None:
        with self._gate:
            if self._stop.is_set():
                raise _closed(self._context)
            self.idle.clear()
        self._job_group = self._context.feed.spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        try:
            self._apply(batch_id)
        except CdfError as error:
            self.failure = error
            raise
        except Exception as error:
            position = self.position.version or 0
            self.failure = translate(error, table=self._context.feed.table, first=position, last=position)
            raise self.failure from error
        finally:
            self.idle.set()

    def _apply(self, batch_id: int) -> None:
        began = time.monotonic()
        spark = self._context.feed.spark
        query = find_running_query(spark)
        checkpoint = str(query.resolvedCheckpointRoot())
        end = read_offset(spark, checkpoint, batch_id)
        assert end is not None  # Spark writes it before it calls this function
        if end.table_id != (self.position.table_id or end.table_id):
            raise ConfigError(
                f"the streaming query reads another table than {self._context.feed.table}",
                hint="pass the micro-batches of this pipeline's own table to this function",
            )
        last = end.touched
        ids = str(query.id()), str(query.runId()), batch_id
        self.advance(last, began=began, ids=ids)
        if self.position.version is None or self.position.version < last:
            raise _closed(self._context)  # or else Spark would record the micro-batch as done

    def advance(
        self,
        last: int,
        *,
        began: float | None = None,
        ids: tuple[str, str, int] | None = None,
    ) -> None:
        """Bring the sink to ``last``, window by window."""
        began = time.monotonic() if began is None else began
        context = self._context
        current = _CurrentWindow()
        for step in self._runner.steps(self.position, last, through=current):
            seconds = time.monotonic() - began
            table_id = self.position.table_id or context.feed.log.metadata().table_id
            self.position = Position(step.applied.position, table_id)
            followed = _build_followed(context, step, current, seconds, ids)
            if isinstance(context.sink, Monitored):
                try:
                    context.sink.report(followed.to_dict())
                except Exception as error:  # the step is durable: it must not fail because its figures were not stored
                    _log.warning("progress not stored", extra={"pipeline": context.name, "error": type(error).__name__})
            if self._progress is not None:
                self._progress(followed)
            if self._stop.is_set():
                return
            began = time.monotonic()


class _CurrentWindow:
    """Keeps the window that was applied last, which knows its number of rows."""

    def __init__(self) -> None:
        self._window: Window | None = None

    def __call__(self, window: Window) -> Window:
        self._window = window
        return window

    @property
    def rows(self) -> int | None:
        return None if self._window is None else self._window.rows_in()


def _build_followed(
    context: PipelineContext, step: Step, current: _CurrentWindow, seconds: float, ids: tuple[str, str, int] | None
) -> Followed:
    applied = step.applied
    rows = applied.inserts + applied.updates + applied.deletes
    behind = measure_lag(context.feed.log, applied.position)
    return Followed(
        pipeline=context.name,
        table=context.feed.table,
        at=dt.datetime.now(dt.UTC),
        kind=step.kind,
        first=step.first,
        last=step.last,
        rows_in=current.rows if step.kind == "window" else rows,
        rows_applied=rows,
        rows_per_second=round(rows / seconds, 1) if seconds > 0 else 0.0,
        seconds={**applied.seconds, "total": round(seconds, 4)},
        conflicts=applied.conflicts,
        rejected=applied.rejected,
        ddl=applied.ddl,
        position=applied.position,
        latest_version=applied.position + behind.versions,
        lag_versions=behind.versions,
        lag_seconds=behind.seconds,
        query_id=ids[0] if ids else None,
        run_id=ids[1] if ids else None,
        batch_id=ids[2] if ids else None,
        inserts=applied.inserts,
        updates=applied.updates,
        deletes=applied.deletes,
    )


def measure_lag(log: TableLog, position: int) -> Lag:
    """How far a position is behind the table's latest version."""
    latest = log.latest(refresh=False)
    oldest = None
    if latest > position:
        with suppress(CdfError):
            oldest = next(log.commits(position + 1, position + 1)).timestamp
    week = dt.timedelta(days=7)  # any retention will do: only versions and seconds are used
    return lag(position=position, latest=latest, oldest_unapplied=oldest, retention=week, now=dt.datetime.now(dt.UTC))


def _closed(context: PipelineContext) -> CdfError:
    return PositionError(
        f"the pipeline {context.name} is closed: this micro-batch was not applied",
        hint="stop the query before foreach_batch ends; the next query applies the rest",
    )
