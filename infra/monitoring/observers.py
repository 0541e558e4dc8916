"""Observers, which pipelines call at each step: for metrics, notifications and lineage."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.extras import require_extra

if TYPE_CHECKING:
    from audit.erasure.run.runner import ErasureReport
    from cdf import Verification
    from cdf.errors import CdfError
    from cdf.results import Followed, FollowStatus, Step
    from infra.config.models import Project
    from infra.config.monitoring_models import Lineage, Notify, Otlp
    from infra.monitoring.metrics_otlp import OtlpPush

__all__ = ["Listen", "Observer", "Observers", "ReadStatus", "observe"]

ReadStatus = Callable[[], "FollowStatus | None"]
"""State and lag of a pipeline that follows its table; None: it has not started."""

log = logging.getLogger("deltarelay.monitoring")


class Observer:
    """The base class of all observers, which ignores everything.

    The methods are called in the threads of pipelines, so they return at once: what can wait, such as a request, goes to
    ``infra.monitoring.background``. An exception is logged and has no other effect.
    """

    def begin(self, pipeline: str, read_status: ReadStatus | None) -> None:
        """A run of ``pipeline`` begins. ``read_status``: where it follows its table; None: it will end by itself."""

    def record_step(self, pipeline: str, step: Step | Followed) -> None:
        """A step is durable in the target."""

    def end(self, pipeline: str, error: CdfError | None) -> None:
        """The run has ended. None: it succeeded, or was stopped while it followed."""

    def record_verification(self, pipeline: str, found: Verification) -> None:
        """A target was compared with its source."""

    def record_erasure(self, report: ErasureReport) -> None:
        """An erasure run has erased what it could for now."""

    def close(self) -> None:
        """The command ends: send what waits, within seconds."""


class Observers(Observer):
    """Passes each call to all observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def begin(self, pipeline: str, read_status: ReadStatus | None = None) -> None:
        self._call_each(lambda one: one.begin(pipeline, read_status))

    def record_step(self, pipeline: str, step: Step | Followed) -> None:
        self._call_each(lambda one: one.record_step(pipeline, step))

    def end(self, pipeline: str, error: CdfError | None) -> None:
        self._call_each(lambda one: one.end(pipeline, error))

    def record_verification(self, pipeline: str, found: Verification) -> None:
        self._call_each(lambda one: one.record_verification(pipeline, found))

    def record_erasure(self, report: ErasureReport) -> None:
        self._call_each(lambda one: one.record_erasure(report))

    def close(self) -> None:
        """All at the same time: each of them may wait for a server."""

        def close(one: Observer) -> None:
            _call(one, lambda one: one.close())

        # Daemons: a second Ctrl-C does not wait for them
        threads = [threading.Thread(target=close, args=(one,), daemon=True) for one in self._observers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _call_each(self, call: Callable[[Observer], None]) -> None:
        for one in self._observers:
            _call(one, call)


def _call(one: Observer, call: Callable[[Observer], None]) -> None:
    try:
        call(one)
    except Exception as error:
        log.warning("an observer failed", extra={"observer": type(one).__name__, "error": type(error).__name__})


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a follower serves its metrics."""

    host: str
    port: int


@contextmanager
def observe(
    project: Project, names: Sequence[str], *, has_metrics: bool = False, listen: Listen | None = None
) -> Iterator[Observers]:
    """Build the observers that the configuration and the command name, and close them in every case.

    ``has_metrics``: the command replicates, which metrics count.
    """
    observers = Observers(_build_observers(project, names, has_metrics=has_metrics, listen=listen))
    try:
        yield observers
    finally:
        observers.close()


def _build_observers(
    project: Project, names: Sequence[str], *, has_metrics: bool, listen: Listen | None
) -> Sequence[Observer]:
    observers: list[Observer] = []
    if has_metrics:
        observers += _build_metrics(project, names, listen)
    if project.lineage is not None:
        observers.append(_build_lineage(project, project.lineage))
    if project.notify is not None:
        observers.append(_build_notifier(project, project.notify))
    return observers


def _build_metrics(project: Project, names: Sequence[str], listen: Listen | None) -> Sequence[Observer]:
    textfile = None if project.metrics is None else project.metrics.textfile
    otlp = None if project.metrics is None else project.metrics.otlp
    if listen is None and textfile is None and otlp is None:
        return []
    if listen is not None or textfile is not None:
        require_extra("metrics")
    push = None if otlp is None else _build_push(otlp, continues_totals=textfile is not None)
    from infra.monitoring.metrics import MetricsObserver
    from infra.monitoring.metrics_server import ServedMetrics

    if listen is None:
        return [MetricsObserver(project, names, textfile=textfile, push=push)]
    return [ServedMetrics(project, names, host=listen.host, port=listen.port, textfile=textfile, push=push)]


def _build_push(settings: Otlp, *, continues_totals: bool) -> OtlpPush:
    require_extra("otlp")
    from infra.monitoring.metrics_otlp import OtlpPush

    return OtlpPush(settings, continues_totals=continues_totals)


def _build_lineage(project: Project, settings: Lineage) -> Observer:
    require_extra("lineage")
    from infra.monitoring.lineage import LineageObserver

    return LineageObserver(project, settings)


def _build_notifier(project: Project, settings: Notify) -> Observer:
    from infra.monitoring.notifier import Notifier

    return Notifier(project, settings)
