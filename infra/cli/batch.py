"""Process several pipelines with one command: one Spark session, a result or an error for each, some in parallel.

Pipelines run in threads that share a Spark session, even when there is only one. The main thread only waits and checks for
Ctrl-C or SIGTERM, so that an interrupt is never raised in the middle of other code, where it could be swallowed. After an
interrupt no further pipeline is started; the running ones are cancelled in Spark and at the target until each has rolled
back and released its lease; then the command ends with the exit code for an interrupt.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, Interrupted, SourceUnavailable
from cdf.interrupt import SESSION_GONE, Stop
from cdf.session import cancel_jobs
from infra.cli.project import select_pipelines
from infra.output import DONE, Output, to_cdf_error
from infra.runtime import BucketProbes, build_pipeline, spark_session
from infra.signals import defer_first_signal

if TYPE_CHECKING:
    from cdf import Pipeline
    from cdf.result import Result
    from infra.config.models import Project

__all__ = [
    "OpenPipeline",
    "Work",
    "process_pipelines",
    "process_pipelines_in_parallel",
    "process_targets",
    "report_failure",
]

GRACE_SECONDS = 30.0
"""Maximum time for rolling back after Ctrl-C; then the process exits anyway, which is safe as well."""
CANCEL_SECONDS = 1.0
"""Interval between attempts to cancel running pipelines: an attempt between two statements has no effect."""

OpenPipeline = Callable[[], AbstractContextManager["Pipeline"]]
"""Builds the pipeline for the duration of a ``with`` block; called again for each retry. Raises if its source is invalid."""
Work = Callable[[str, OpenPipeline], "tuple[Result, int]"]
Try = Callable[[str, OpenPipeline], "tuple[Result, int] | None"]
"""As ``Work``; None: the pipeline needs Spark."""
Outcome = tuple[dict[str, Any], int]
"""An entry for --json, and the exit code."""


def process_pipelines(
    output: Output, project: Project, wanted: Sequence[str] | None, work: Callable[[Pipeline], tuple[Result, int]]
) -> tuple[list[dict[str, Any]], list[int]]:
    """``process_pipelines_in_parallel``, one pipeline after the other."""

    def work_by_name(_name: str, open_pipeline: OpenPipeline) -> tuple[Result, int]:
        with open_pipeline() as pipeline:
            return work(pipeline)

    return process_pipelines_in_parallel(output, project, wanted, work_by_name, jobs=1)


def process_pipelines_in_parallel(
    output: Output,
    project: Project,
    wanted: Sequence[str] | None,
    work: Work,
    *,
    jobs: int,
    try_without_spark: Try | None = None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Run ``work`` for each pipeline, up to ``jobs`` in parallel; a failed pipeline does not stop the others.

    ``try_without_spark`` is called before, and Spark is started only if that leaves a pipeline.

    → entries for --json, exit codes; both in the order of the file
    """
    names, outcomes = select_pipelines(project, wanted), dict[str, Outcome]()
    if try_without_spark is not None:
        outcomes |= _try_without_spark(output, project, names, try_without_spark, jobs)
    if left := [name for name in names if name not in outcomes]:
        with spark_session(output, project, may_be_remote=True) as spark:
            build = functools.partial(build_pipeline, project, spark=spark, probes=BucketProbes())
            threads = _PipelineThreads(output, build, work, functools.partial(cancel_jobs, spark))
            outcomes |= threads.run(left, jobs)
    return [outcomes[name][0] for name in names], [outcomes[name][1] for name in names]


def _try_without_spark(
    output: Output, project: Project, names: Sequence[str], work: Try, jobs: int
) -> dict[str, Outcome]:
    from infra.idle_runs import build_idle_pipeline, keep_connections, list_candidates

    if not (candidates := list_candidates(project, names)):
        return {}
    with keep_connections(project, candidates):
        return _PipelineThreads(output, functools.partial(build_idle_pipeline, project), work).run(candidates, jobs)


def process_targets(
    output: Output, project: Project, wanted: Sequence[str] | None, work: Callable[[str], Result]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Run ``work``, which needs no Spark, for the name of each pipeline; a failed pipeline does not stop the others.

    → entries for --json, exit codes
    """
    outcomes = []
    for name in select_pipelines(project, wanted):
        try:
            outcomes.append(({"ok": True, **work(name).to_dict()}, DONE))
        except Exception as error:
            outcomes.append(report_failure(output, name, error))
    return [entry for entry, _ in outcomes], [code for _, code in outcomes]


def report_failure(output: Output, name: str, error: Exception) -> Outcome:
    """Print the error of one pipeline. → its entry for --json, its exit code"""
    failure = to_cdf_error(error)
    code = output.failure(name, failure)
    return {"pipeline": name, "ok": code == DONE, "error": failure.to_dict()}, code


class _PipelineThreads:
    """Runs pipelines in daemon threads: the process can exit without them, so a second Ctrl-C always ends it."""

    def __init__(
        self,
        output: Output,
        build: Callable[[str], Pipeline],
        work: Work | Try,
        cancel_jobs: Callable[[], None] = lambda: None,
    ) -> None:
        """``cancel_jobs``: cancels what the pipelines are running in Spark."""
        self._output, self._build, self._work, self._cancel_jobs = output, build, work, cancel_jobs
        self._stop = Stop()
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._outcomes: dict[str, Outcome] = {}
        self._open: dict[str, Pipeline] = {}
        """The pipelines that are running now."""
        self._broken_pipe: BrokenPipeError | None = None

    def run(self, names: Sequence[str], jobs: int) -> dict[str, Outcome]:
        for name in names:
            self._waiting.put(name)
        threads = [
            threading.Thread(target=self._process_queue, name=f"run-{number}", daemon=True)
            for number in range(min(jobs, len(names)))
        ]
        for thread in threads:
            thread.start()
        with defer_first_signal() as is_interrupted:
            for thread in threads:
                while thread.is_alive() and not is_interrupted():
                    thread.join(0.1)
            if is_interrupted():
                self._cancel(threads)
                raise KeyboardInterrupt
        if self._broken_pipe is not None:
            raise self._broken_pipe
        return self._outcomes

    def _process_queue(self) -> None:
        """Take pipelines from the queue, in one thread, until the queue is empty or the command is stopped."""
        while not self._stop.asked.is_set():
            try:
                name = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done = self._work(name, functools.partial(self._open_pipeline, name))
                if done is not None:
                    result, code = done
                    self._outcomes[name] = {"ok": code == DONE, **result.to_dict()}, code
            except BrokenPipeError as error:
                self._broken_pipe = error  # the reader of our output has exited: stop all pipelines
                self._stop.cancel()
            except Exception as error:
                if not self._stop.broke_off(error):  # an interrupt is reported once for all pipelines
                    self._outcomes[name] = report_failure(self._output, name, error)
                if isinstance(error, CdfError) and error.condition in SESSION_GONE:
                    self._end_without_session(error.condition)

    def _end_without_session(self, condition: str | None) -> None:
        """Report the pipelines that have not begun: without its session each of them could only fail, after a wait."""
        error = SourceUnavailable(
            "not started: Spark's session has ended",
            hint="nothing is lost: run again",
            condition=condition,
        )
        with suppress(queue.Empty):
            while True:
                name = self._waiting.get_nowait()
                self._outcomes[name] = report_failure(self._output, name, error)

    @contextmanager
    def _open_pipeline(self, name: str) -> Iterator[Pipeline]:
        if self._stop.asked.is_set():
            raise Interrupted("interrupted")
        pipeline = self._build(name)
        self._open[name] = pipeline
        try:
            yield pipeline
        except Exception as error:
            if self._stop.broke_off(error):
                raise Interrupted("interrupted") from error  # not transient, so it is not retried
            raise
        finally:
            del self._open[name]

    def _cancel(self, threads: Sequence[threading.Thread]) -> None:
        self._stop.cancel()
        deadline, cancelled_at = time.monotonic() + GRACE_SECONDS, 0.0
        # A pipeline that waits for its next retry is not open, so it is not waited for
        while any(thread.is_alive() for thread in threads) and self._open and time.monotonic() < deadline:
            if time.monotonic() - cancelled_at > CANCEL_SECONDS:
                cancelled_at = time.monotonic()
                with suppress(Exception):
                    self._cancel_jobs()
                for pipeline in list(self._open.values()):
                    pipeline.interrupt()
            time.sleep(0.05)
