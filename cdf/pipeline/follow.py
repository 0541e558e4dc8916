"""Following a table: a structured streaming query says what is new, whole windows are applied as in every run.

    open the sink, catch up in windows                      what a run does
    query from the position on, one micro-batch after the other ──▶ cdf.pipeline.micro_batches

The checkpoint decides nothing: each query begins a new one at the sink's position. Whenever the query ends by itself (a
new column, files that are gone, a table that was replaced) the loop begins again: opening and catching up either follow
what happened or refuse it in words.
"""

from __future__ import annotations

import logging
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import (
    CdfError,
    ConfigError,
    Fenced,
    LeaseHeld,
    SourceError,
    WindowOutOfOrder,
    condition_of,
)
from cdf.interrupt import JVM_GONE, Stop
from cdf.pipeline.micro_batches import MicroBatches, Progress, lag_of
from cdf.read_errors import translate
from cdf.results import Followed, FollowState, FollowStatus
from cdf.session import check_session, setting

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from cdf.pipeline.pipeline import Pipeline

__all__ = ["Following", "check_trigger"]

ALL_FILES = 2**31 - 1
"""``maxFilesPerTrigger``: left out it means 1,000, and Delta then divides commits that add and remove more files."""
TRIES = 5
"""So often in a row may the query or its source fail without a single window applied in between."""
LONGEST_PAUSE_SECONDS = 30.0

CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
GIVE_UP_SECONDS = 15.0
"""So long is waited for what was cancelled."""
STEADY_SECONDS = 60.0
"""A query that ran so long was not the last failure's fault."""
LOOK_SECONDS = 15.0
CANCELLED = "57014"
"""PostgreSQL's SQLSTATE of a statement that was cancelled, by its time limit as a rule."""

_log = logging.getLogger("deltarelay.follow")


def check_trigger(trigger: Mapping[str, Any]) -> dict[str, Any]:
    if list(trigger) == ["availableNow"] and trigger["availableNow"] is True:
        return dict(trigger)
    if list(trigger) == ["processingTime"] and isinstance(trigger["processingTime"], str):
        return dict(trigger)
    raise ConfigError(
        "the trigger cannot be used",
        hint='give {"processingTime": "1 second"} to follow, or {"availableNow": True} to stop at what is there now',
    )


class Following:
    """A pipeline that follows its table, in threads of its own. Made by ``Pipeline.follow``."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        checkpoint: str | None,
        trigger: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        check_session(pipeline.feed.spark)
        self.pipeline = pipeline
        self._trigger = check_trigger(trigger)
        self._checkpoint = checkpoint
        self._report = progress
        self._stopping = Stop()
        self._stop = self._stopping.asked
        self._ended = threading.Event()
        self._query: StreamingQuery | None = None
        self._batches: MicroBatches | None = None
        self._state: FollowState = "starting"
        self._error: CdfError | None = None
        self._last: Followed | None = None
        self._windows = self._rows = self._queries = 0
        self._opened_once = False
        self._fruitless = self._pauses = 0
        self._jobs = f"deltarelay-follow-{uuid.uuid4().hex}"
        self._thread = threading.Thread(target=self._run, name=f"follow-{pipeline.name}", daemon=True)
        self._thread.start()

    # ── for the caller ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def query(self) -> StreamingQuery | None:
        """Today's query of Spark's; None while there is none. A schema change or a failure replaces it."""
        return self._query

    def stop(self, timeout: float | None = 30.0) -> bool:
        """End after the running window; after ``timeout`` seconds that window is rolled back instead. Safe to call twice.

        → False where even that did not end it; nothing further is begun then, and what runs on is one whole step.
        """
        self._stop.set()
        if batches := self._batches:
            batches.stop()
        here = threading.current_thread()  # not by ident: that of a thread that has ended is given to another
        if here is self._thread or (batches is not None and here is batches.thread):
            return False  # called from ``progress``: it ends once that has returned
        if not self._ended.wait(timeout):
            self._stopping.cancel()
            self._give_up()
        return self._ended.wait(GIVE_UP_SECONDS)

    def _give_up(self) -> None:
        """Cancel what the sink waits for, the job of a load or of catching up, and the query."""
        self.pipeline.sink.cancel()
        with suppress(Exception):
            self.pipeline.feed.spark.sparkContext.cancelJobGroup(self._jobs)
        self._stop_query()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end. → False when ``timeout`` (seconds) passed first. Raises what stopped it, if anything did."""
        # In small steps: a wait without an end would not let Ctrl-C through on every platform
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(0.2):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        if self._error is not None:
            raise self._error
        return True

    def status(self) -> FollowStatus:
        """Where it stands this moment."""
        error, position, behind = self._error, None, None
        if (batches := self._batches) is not None and (position := batches.position.version) is not None:
            with suppress(Exception):  # a source that cannot be asked has no lag to tell
                behind = lag_of(self.pipeline.feed.log, position)
        return FollowStatus(
            pipeline=self.pipeline.name,
            table=self.pipeline.feed.table,
            state=self._state,
            position=position,
            lag_versions=behind.versions if behind else None,
            lag_seconds=behind.seconds if behind else None,
            windows=self._windows,
            rows_applied=self._rows,
            queries=self._queries,
            last=self._last,
            code=error.code if error else None,
            error=error.message if error else None,
        )

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self.pipeline.feed.spark.sparkContext.setJobGroup(self._jobs, f"deltarelay {self.pipeline.name}", True)
            while not self._stop.is_set():
                try:
                    if self._follow():
                        break
                except Exception as error:
                    failure = self._in_words(error)
                    if self._stop.is_set() or self._stopping.broke_off(failure):
                        break  # given up: that is what broke it off
                    if not self._try_again(failure):
                        self._error = failure
                        break
                    self._pause(failure)
            self._state = "failed" if self._error is not None else "stopped"
        except BaseException as error:  # the thread's last word: nobody would see it
            self._error = self._in_words(error)
            self._state = "failed"
        finally:
            self._ended.set()

    def _follow(self) -> bool:
        """Open, catch up, follow. → True when it ended as it should, False when a new query is needed."""
        pipeline = self.pipeline
        self._state = "catching_up"
        last = pipeline.last_version(None)
        with pipeline.opened(last, retries=self._pauses, stop=self._stopping) as position:
            self._opened_once = True
            self._batches = batches = MicroBatches(pipeline, position, progress=self._told, trusted=True)
            if self._stop.is_set():  # stop() may have come before there was anything to tell it to
                return True
            try:
                batches.advance(pipeline.feed.log.latest())
                return self._stop.is_set() or self._tail(batches)
            finally:
                self._stop_query()
                batches.stop()
                # A window that is still being applied must not find its sink closed under it
                if not batches.idle.wait(60.0):
                    self._give_up()
                    batches.idle.wait(60.0)

    def _tail(self, batches: MicroBatches) -> bool:
        version = batches.position.version
        assert version is not None  # the sink was loaded or has a position: latest is at least 0
        batches.starts_at = version
        with self._fresh_checkpoint() as checkpoint:
            query = self._query = self._start(batches, version, checkpoint)
            self._queries += 1
            self._state = "following"
            _log.info("following", extra={"pipeline": self.pipeline.name, "version": version})
            began = looked = time.monotonic()
            while not self._stop.wait(0.2) and _active(query):
                if time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    # A table that was made anew with fewer versions looks like one where nothing happens
                    self.pipeline.check_position(batches.position)
            if self._stop.is_set():
                batches.idle.wait()
            self._stop_query()
        if self._stop.is_set():
            return True
        if batches.failure is not None:
            raise batches.failure
        failure = query.exception()
        if failure is None:
            return "availableNow" in self._trigger
        if time.monotonic() - began > STEADY_SECONDS:
            self._fruitless = 0
        condition = condition_of(failure) or ""
        _log.info("the query ended and begins anew", extra={"pipeline": self.pipeline.name, "condition": condition})
        error = translate(failure, table=self.pipeline.feed.table, first=version, last=version)
        if self._fruitless >= TRIES:
            raise error
        self._fruitless += 1
        if not condition.startswith("DELTA_SCHEMA_CHANGED"):
            self._pause(error)
        return False  # opening again either follows what happened or tells what it was

    def _start(self, batches: MicroBatches, version: int, checkpoint: str) -> StreamingQuery:
        # At the position, not after it: Delta refuses to start at a version that is not there yet
        try:
            stream = self.pipeline.feed.stream(start_version=version, max_files_per_trigger=ALL_FILES)
            writer = stream.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
            with self._plain_checkpoint_files():
                return writer.queryName(self._query_name()).trigger(**self._trigger).start()
        except CdfError:
            raise
        except Exception as error:
            raise translate(error, table=self.pipeline.feed.table, first=version, last=version) from error

    def _plain_checkpoint_files(self) -> AbstractContextManager[None]:
        """In a temporary folder Spark may do without the checksums and renames that cost it 0.1 s in every micro-batch."""
        if self._checkpoint is not None:
            return nullcontext()
        return setting(self.pipeline.feed.spark, CHECKPOINT_FILES, PLAIN_CHECKPOINT_FILES)

    def _query_name(self) -> str:
        """Spark wants names unique among the running queries; two pipelines may have the same one."""
        return f"deltarelay {self.pipeline.name} {uuid.uuid4().hex[:8]}"

    @contextmanager
    def _fresh_checkpoint(self) -> Iterator[str]:
        """A folder for one query. Spark needs it; nothing depends on it once the query has ended."""
        if self._checkpoint is None:
            with tempfile.TemporaryDirectory(prefix="deltarelay-checkpoint-", ignore_cleanup_errors=True) as folder:
                yield f"file://{folder}"
            return
        folder = f"{self._checkpoint.rstrip('/')}/{uuid.uuid4().hex}"
        try:
            yield folder
        finally:
            self._remove(folder)

    def _remove(self, folder: str) -> None:
        with suppress(Exception):
            jvm: Any = self.pipeline.feed.spark._jvm
            path = jvm.org.apache.hadoop.fs.Path(folder)
            path.getFileSystem(self.pipeline.feed.spark._jsc.hadoopConfiguration()).delete(path, True)

    def _stop_query(self) -> None:
        """Spark waits, without an end, for a micro-batch that cannot be interrupted: not longer than it is worth to us."""
        query, self._query = self._query, None
        if query is not None:
            stopping = threading.Thread(target=_stopped, args=(query,), daemon=True)
            stopping.start()
            stopping.join(GIVE_UP_SECONDS)

    # ── failures and progress ────────────────────────────────────────────────────────────────────────────────────

    def _in_words(self, error: BaseException) -> CdfError:
        if isinstance(error, CdfError):
            return error
        failure: CdfError
        if not _alive(self.pipeline):
            failure = SourceError(
                f"following {self.pipeline.feed.table} ended: Spark's Java process is gone",
                hint="the position is intact: start it again",
                condition=JVM_GONE,
            )
        else:
            latest = self._last.position if self._last else 0
            failure = translate(_exception(error), table=self.pipeline.feed.table, first=latest, last=latest)
        failure.__cause__ = error
        return failure

    def _try_again(self, error: CdfError) -> bool:
        """At first, whatever is wrong is told at once; later, what can heal by itself is waited for."""
        if not self._opened_once or isinstance(error, Fenced) or error.condition == JVM_GONE:
            return False
        if error.transient and error.condition != CANCELLED:
            return True
        # Unknown trouble at the source (a storage that hiccups), a target that was restored, a statement that takes too
        # long for the server: worth some more tries, not many
        self._fruitless += 1
        passing = type(error) is SourceError or isinstance(error, WindowOutOfOrder) or error.condition == CANCELLED
        return passing and self._fruitless < TRIES

    def _pause(self, error: CdfError) -> None:
        self._state = "waiting"
        longest = 1.0 if isinstance(error, LeaseHeld) else LONGEST_PAUSE_SECONDS
        seconds = min(longest, 0.5 * 2 ** min(self._pauses, 10)) * random.uniform(0.5, 1.0)
        self._pauses += 1
        _log.warning(
            "waits and tries again",
            extra={
                "pipeline": self.pipeline.name,
                "seconds": round(seconds, 1),
                "error": error.message,
                "code": error.code,
            },
        )
        self._stop.wait(seconds)

    def _told(self, followed: Followed) -> None:
        self._fruitless = self._pauses = 0
        self._last = followed
        self._windows += 1
        self._rows += followed.rows_applied
        if self._report is not None:
            try:
                self._report(followed)
            except Exception:
                _log.warning("the progress function failed", extra={"pipeline": self.pipeline.name}, exc_info=True)


def _active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except Exception:  # the JVM is gone
        return False


def _stopped(query: StreamingQuery) -> None:
    with suppress(Exception):
        query.stop()


def _alive(pipeline: Pipeline) -> bool:
    with suppress(Exception):
        jvm: Any = pipeline.feed.spark._jvm
        return bool(jvm.java.lang.System.nanoTime())
    return False


def _exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
