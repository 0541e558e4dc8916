"""The loop that ``plan``, ``run`` and ``verify`` share: one session, every pipeline by itself, some at a time.

Pipelines run in threads over one Spark session, a single one too. The main thread only waits and looks whether Ctrl-C or
TERM came, so that no interrupt is raised in the middle of other code, where it can be lost: then nothing further is begun,
what runs is cancelled in Spark and at the target until each pipeline has rolled back and given back its lease, and the
command ends as an interrupted one does.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import Interrupted
from cdf.interrupt import Stop
from infra.cli.output import DONE, Output, in_our_words
from infra.cli.session import Answered, build_pipeline, chosen, spark_session
from infra.signals import defer_first_signal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdf import Pipeline
    from cdf.result import Result
    from infra.config.models import Project

__all__ = ["Use", "Work", "each_pipeline", "each_target", "several_pipelines"]

GRACE_SECONDS = 30.0
"""So long the pipelines may take to roll back after Ctrl-C; then the process ends over them, which is safe as well."""
CANCEL_SECONDS = 1.0
"""How often what runs is cancelled until it has ended: a pipeline may be just between two statements."""

Use = Callable[[], AbstractContextManager["Pipeline"]]
"""Makes the pipeline, for the time that it is worked with; called again for another try. Raises what is wrong with its
source."""
Work = Callable[[str, Use], "tuple[Result, int]"]


def each_pipeline(
    output: Output, project: Project, wanted: Sequence[str] | None, work: Callable[[Pipeline], tuple[Result, int]]
) -> tuple[list[dict[str, Any]], list[int]]:
    """``several_pipelines``, one after the other."""

    def by_name(_name: str, use: Use) -> tuple[Result, int]:
        with use() as pipeline:
            return work(pipeline)

    return several_pipelines(output, project, wanted, by_name, jobs=1)


def several_pipelines(
    output: Output, project: Project, wanted: Sequence[str] | None, work: Work, *, jobs: int
) -> tuple[list[dict[str, Any]], list[int]]:
    """Do ``work`` for each pipeline, up to ``jobs`` at a time; one that fails does not stop the others.

    → entries for --json, exit codes; both in the order of the file
    """
    names = chosen(project, wanted)
    with spark_session(output, project) as spark:
        done = _Several(output, project, spark, work).run(names, jobs)
    return [entry for entry, _ in done], [code for _, code in done]


def each_target(
    output: Output, project: Project, wanted: Sequence[str] | None, work: Callable[[str], Result]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Do ``work``, which needs no Spark, for each pipeline by its name; one that fails does not stop the others.

    → entries for --json, exit codes
    """
    done = []
    for name in chosen(project, wanted):
        try:
            done.append(({"ok": True, **work(name).to_dict()}, DONE))
        except Exception as error:
            done.append(_failed(output, name, error))
    return [entry for entry, _ in done], [code for _, code in done]


def _failed(output: Output, name: str, error: Exception) -> tuple[dict[str, Any], int]:
    failure = in_our_words(error)
    code = output.failure(name, failure)
    return {"pipeline": name, "ok": False, "error": failure.to_dict()}, code


class _Several:
    """Pipelines in threads. Nobody has to wait for them, so that a second Ctrl-C really ends it."""

    def __init__(self, output: Output, project: Project, spark: SparkSession, work: Work) -> None:
        self._output, self._project, self._spark, self._work = output, project, spark, work
        self._answered = Answered()
        self._stop = Stop()
        self._left: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._done: dict[str, tuple[dict[str, Any], int]] = {}
        self._open: dict[str, Pipeline] = {}
        """The pipelines at work this moment."""
        self._abandoned: BaseException | None = None

    def run(self, names: Sequence[str], jobs: int) -> list[tuple[dict[str, Any], int]]:
        for name in names:
            self._left.put(name)
        threads = [
            threading.Thread(target=self._take, name=f"run-{number}", daemon=True)
            for number in range(min(jobs, len(names)))
        ]
        for thread in threads:
            thread.start()
        with defer_first_signal() as interrupted:
            for thread in threads:
                while thread.is_alive() and not interrupted():
                    thread.join(0.1)
            if interrupted():
                self._break_off(threads)
                raise KeyboardInterrupt
        if self._abandoned is not None:
            raise self._abandoned
        return [self._done[name] for name in names]

    def _take(self) -> None:
        """One thread: the next pipeline, until none is left."""
        while not self._stop.asked.is_set():
            try:
                name = self._left.get_nowait()
            except queue.Empty:
                return
            try:
                result, code = self._work(name, functools.partial(self._use, name))
                self._done[name] = {"ok": code == DONE, **result.to_dict()}, code
            except BrokenPipeError as error:
                self._abandoned = error  # whoever read our output has left: nobody to work for
                self._stop.cancel()
            except Exception as error:
                if not self._stop.broke_off(error):  # else that is told once for all
                    self._done[name] = _failed(self._output, name, error)

    @contextmanager
    def _use(self, name: str) -> Iterator[Pipeline]:
        if self._stop.asked.is_set():
            raise Interrupted("interrupted")
        pipeline = build_pipeline(self._project, name, self._spark, answered=self._answered)
        self._open[name] = pipeline
        try:
            yield pipeline
        except Exception as error:
            if self._stop.broke_off(error):
                raise Interrupted("interrupted") from error  # nothing that passes by itself: it is not tried again
            raise
        finally:
            del self._open[name]

    def _break_off(self, threads: Sequence[threading.Thread]) -> None:
        self._stop.cancel()
        deadline, cancelled = time.monotonic() + GRACE_SECONDS, 0.0
        # Who waits for another try has nothing open
        while any(thread.is_alive() for thread in threads) and self._open and time.monotonic() < deadline:
            if time.monotonic() - cancelled > CANCEL_SECONDS:
                cancelled = time.monotonic()
                with suppress(Exception):
                    self._spark.sparkContext.cancelAllJobs()
                for pipeline in list(self._open.values()):
                    pipeline.interrupt()
            time.sleep(0.05)
