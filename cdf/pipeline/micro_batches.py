"""What a micro-batch of a streaming query means for the sink: bring it to the last commit that the batch touches.

The range comes from the query's own offset log, not from the rows: an OPTIMIZE has none. A micro-batch is a signal; where
it covers exactly the next window, its rows are that window's rows, which saves the planning of a read. In every other case
(a part of a commit, a gap, an overlap, too much at once) the windows are read from the table by themselves. So no
checkpoint, file limit or repeated batch can do harm.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import COMMIT_VERSION, METADATA_COLUMNS, quoted
from cdf.changes.row_count import counted
from cdf.errors import CdfError, ConfigError, PositionError
from cdf.lag import Lag, lag
from cdf.read_errors import translate
from cdf.results import Followed, Step
from cdf.sink import Monitored, Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.changes.window import Window
    from cdf.pipeline.pipeline import Pipeline
    from cdf.source.log import TableLog

__all__ = ["MicroBatches", "Offset", "Progress", "lag_of", "read_offset"]

_log = logging.getLogger("deltarelay.follow")

Progress = Callable[[Followed], None]

STOP_SECONDS = 30.0
"""The time that a running window has to end by itself."""
CANCEL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Offset:
    """Delta's own offset, from a line of the query's offset log (``DeltaSourceOffset`` in Delta's source)."""

    table_id: str
    version: int
    index: int
    """-1: before ``version``; below: a schema change at it; from 0 on: so many of its files were delivered."""
    snapshot: bool
    """Still delivering the table's rows as of ``version``, not changes."""

    @classmethod
    def parse(cls, line: str) -> Offset:
        found = json.loads(line)
        return cls(
            table_id=str(found["reservoirId"]),
            version=int(found["reservoirVersion"]),
            index=int(found["index"]),
            snapshot=bool(found.get("isStartingVersion", False)),
        )

    @property
    def touched(self) -> int:
        """The last version of which anything was delivered."""
        return self.version if self.index >= 0 else self.version - 1

    def complete(self, *, atomic: bool) -> int | None:
        """The last version that was delivered as a whole; None while the offset is in a snapshot.

        An offset parks inside a commit with change files after all of it was delivered, because such a commit is never
        divided; inside any other commit a part is still to come.
        """
        if self.snapshot:
            return None
        return self.version if self.index >= 0 and atomic else self.version - 1


def read_offset(pipeline: Pipeline, checkpoint: str, batch_id: int) -> Offset | None:
    """The end of a micro-batch, from the checkpoint's offset log; None where the log has no such batch."""
    jvm: Any = pipeline.feed.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{batch_id}")
    files = path.getFileSystem(pipeline.feed.spark._jsc.hadoopConfiguration())
    if batch_id < 0 or not files.exists(path):
        return None
    stream = files.open(path)
    try:
        lines = str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")).splitlines()
    finally:
        stream.close()
    # "v1", the batch's metadata, then one line for each source
    sources = lines[2:]
    if len(sources) != 1 or '"reservoirId"' not in sources[0]:
        raise ConfigError(
            "the streaming query does not read exactly one Delta table",
            hint="hand this function the micro-batches of one ChangeFeed.stream()",
        )
    return Offset.parse(sources[0])


def _running_query(pipeline: Pipeline) -> Any:
    """The JVM's side of the query whose micro-batch is being handed to this thread."""
    spark = pipeline.feed.spark
    name = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    found = spark._jsparkSession.streams().get(name) if name else None
    if found is None:
        raise ConfigError("this function runs inside foreachBatch only", hint="pass it to writeStream.foreachBatch()")
    return found.streamingQuery()


class MicroBatches:
    """The function for ``foreachBatch``, over an open sink: ``batches(micro_batch, batch_id)``.

    Whatever the micro-batch holds, the sink is brought to the end of the last commit that it touches, in whole commits.
    Called again with the same batch, or with one from an older checkpoint, it changes nothing; after a gap it applies what
    lies between first. With ``trusted`` the micro-batch's rows may be used: only for a query that hands them on as they are.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        position: Position,
        *,
        progress: Progress | None = None,
        trusted: bool = False,
        starts_at: int | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.position = position
        self.failure: CdfError | None = None
        """What stopped the last call: in the query's own exception it is buried in text."""
        self.idle = threading.Event()
        """Set while no window is being applied."""
        self.idle.set()
        self._progress = progress
        self._trusted = trusted
        self.starts_at = starts_at
        """The version at which the query begins, where that is known."""
        self.thread: threading.Thread | None = None
        """Of Spark's callbacks: whoever is called from there must not wait for them."""
        self._jobs: str | None = None
        """The query's job group."""
        self._before: tuple[str, int, Offset] | None = None
        self._stop = threading.Event()
        self._gate = threading.Lock()

    def stop(self) -> None:
        """No further window is begun."""
        with self._gate:
            self._stop.set()

    def close(self) -> None:
        """No further window is begun, and the sink is free: the window that is being applied has ended, or was cancelled and
        rolled back after ``STOP_SECONDS``."""
        self.stop()
        if self.idle.wait(STOP_SECONDS):
            return
        _log.info("the running window is cancelled", extra={"pipeline": self.pipeline.name})
        deadline = time.monotonic() + CANCEL_SECONDS
        while not self.idle.is_set() and time.monotonic() < deadline:
            self._cancel()  # again: between two statements there is nothing to cancel
            self.idle.wait(1.0)

    def _cancel(self) -> None:
        self.pipeline.sink.cancel()
        if self._jobs is not None:
            with suppress(Exception):
                self.pipeline.feed.spark.sparkContext.cancelJobGroup(self._jobs)

    def __call__(self, micro_batch: DataFrame, batch_id: int) -> None:
        with self._gate:
            if self._stop.is_set():
                raise _closed(self.pipeline)
            self.idle.clear()
        self.thread = threading.current_thread()
        self._jobs = self.pipeline.feed.spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        try:
            self._apply(micro_batch, batch_id)
        except CdfError as error:
            self.failure = error
            raise
        except Exception as error:
            position = self.position.version or 0
            self.failure = translate(error, table=self.pipeline.feed.table, first=position, last=position)
            raise self.failure from error
        finally:
            self.thread = None
            self.idle.set()

    def _apply(self, micro_batch: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        query = _running_query(self.pipeline)
        checkpoint = str(query.resolvedCheckpointRoot())
        end = read_offset(self.pipeline, checkpoint, batch_id)
        assert end is not None  # Spark writes it before it hands out the batch
        if end.table_id != (self.position.table_id or end.table_id):
            raise ConfigError(
                f"the streaming query reads another table than {self.pipeline.feed.table}",
                hint="hand this function the micro-batches of this pipeline's own table",
            )
        last = end.touched
        ids = str(query.id()), str(query.runId()), batch_id
        use = self._rows_of(micro_batch, checkpoint, batch_id, end, last)
        self.advance(last, began=began, ids=ids, use=use)
        if self.position.version is None or self.position.version < last:
            raise _closed(self.pipeline)  # or else Spark would note the micro-batch as done
        self._before = (checkpoint, batch_id, end)

    def advance(
        self,
        last: int,
        *,
        began: float | None = None,
        ids: tuple[str, str, int] | None = None,
        use: Callable[[Window], Window] | None = None,
    ) -> None:
        """Bring the sink to ``last``, window by window."""
        began = time.monotonic() if began is None else began
        pipeline = self.pipeline
        applied = _Applied(use)
        for step in pipeline.steps(self.position, last, through=applied):
            took = time.monotonic() - began
            table_id = self.position.table_id or pipeline.feed.log.metadata().table_id
            self.position = Position(step.applied.position, table_id)
            followed = _followed(pipeline, step, applied, took, ids)
            if isinstance(pipeline.sink, Monitored):
                try:
                    pipeline.sink.report(followed.to_dict())
                except Exception as error:  # the step is durable: no information is worth its failing
                    _log.warning("figures not kept", extra={"pipeline": pipeline.name, "error": type(error).__name__})
            if self._progress is not None:
                self._progress(followed)
            if self._stop.is_set():
                return
            began = time.monotonic()

    def _rows_of(
        self, micro_batch: DataFrame, checkpoint: str, batch_id: int, end: Offset, last: int
    ) -> Callable[[Window], Window] | None:
        """Give the window its rows from the micro-batch, where that holds all of them and nothing else is to be applied."""
        if not self._trusted or self.position.version is None:
            return None
        if self._before is not None and self._before[:2] == (checkpoint, batch_id - 1):
            before: Offset | None = self._before[2]
        else:
            before = read_offset(self.pipeline, checkpoint, batch_id - 1)
        # Of a commit that the batch before touched this one may hold the rest: no commit is pieced together
        starts = self.starts_at if before is None else before.touched + 1
        if starts is None or (before is None and batch_id > 0):
            return None

        def use(window: Window) -> Window:
            complete = end.complete(atomic=window.commits[-1].atomic)
            # Not more than the window either: the rows of other commits would be read along with it
            if (window.first, window.last) != (starts, last) or complete is None or complete < last:
                return window
            wanted = [(field.name, field.dataType) for field in window.schema.fields]
            there = {field.name: field.dataType for field in micro_batch.schema.fields}
            if any(there.get(name) != kind for name, kind in wanted):
                return window
            columns = [quoted(name) for name in (*window.schema.names, *METADATA_COLUMNS)]
            rows = micro_batch.where(quoted(COMMIT_VERSION).between(window.first, window.last)).select(*columns)
            return counted(replace(window, read=lambda: rows))

        return use


class _Applied:
    """Remembers the window that was applied last: it knows how many rows it had."""

    def __init__(self, use: Callable[[Window], Window] | None) -> None:
        self._use = use
        self._window: Window | None = None

    def __call__(self, window: Window) -> Window:
        self._window = window if self._use is None else self._use(window)
        return self._window

    @property
    def rows(self) -> int | None:
        return None if self._window is None else self._window.rows_in()


def _followed(
    pipeline: Pipeline, step: Step, through: _Applied, took: float, ids: tuple[str, str, int] | None
) -> Followed:
    applied = step.applied
    rows = applied.inserts + applied.updates + applied.deletes
    behind = lag_of(pipeline.feed.log, applied.position)
    return Followed(
        pipeline=pipeline.name,
        table=pipeline.feed.table,
        at=dt.datetime.now(dt.UTC),
        kind=step.kind,
        first=step.first,
        last=step.last,
        rows_in=through.rows if step.kind == "window" else rows,
        rows_applied=rows,
        rows_per_second=round(rows / took, 1) if took > 0 else 0.0,
        seconds={**applied.seconds, "total": round(took, 4)},
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
    )


def lag_of(log: TableLog, position: int) -> Lag:
    """How far a position is behind the table's latest version."""
    latest = log.latest(anew=False)
    oldest = None
    if latest > position:
        with suppress(CdfError):
            oldest = next(log.commits(position + 1, position + 1)).timestamp
    week = dt.timedelta(days=7)  # how long the files last is another question
    return lag(position=position, latest=latest, oldest_unapplied=oldest, retention=week, now=dt.datetime.now(dt.UTC))


def _closed(pipeline: Pipeline) -> CdfError:
    return PositionError(
        f"the pipeline {pipeline.name} is closed: this micro-batch was not applied",
        hint="stop the query before foreach_batch ends; what was not applied is applied by the next one",
    )
