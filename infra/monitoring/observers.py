"""Observers: told what the pipelines of this process do, for metrics, notifications and lineage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cdf.extras import require_extra

if TYPE_CHECKING:
    from audit.erasure.run.runner import ErasureReport
    from cdf import Verification
    from cdf.errors import CdfError
    from cdf.results import Followed, FollowStatus, Step
    from infra.config.models import Project
    from infra.config.monitoring_models import Lineage, Notify

__all__ = ["Observer", "Observers", "ReadStatus", "observe"]

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
        self._tell(lambda one: one.begin(pipeline, read_status))

    def record_step(self, pipeline: str, step: Step | Followed) -> None:
        self._tell(lambda one: one.record_step(pipeline, step))

    def end(self, pipeline: str, error: CdfError | None) -> None:
        self._tell(lambda one: one.end(pipeline, error))

    def record_verification(self, pipeline: str, found: Verification) -> None:
        self._tell(lambda one: one.record_verification(pipeline, found))

    def record_erasure(self, report: ErasureReport) -> None:
        self._tell(lambda one: one.record_erasure(report))

    def close(self) -> None:
        self._tell(lambda one: one.close())

    def _tell(self, call: Callable[[Observer], None]) -> None:
        for one in self._observers:
            try:
                call(one)
            except Exception as error:
                log.warning("an observer failed", extra={"observer": type(one).__name__, "error": type(error).__name__})


@contextmanager
def observe(project: Project, names: Sequence[str]) -> Iterator[Observers]:
    """Build the observers that the configuration names, and close them in every case."""
    observers = Observers(_build_observers(project, names))
    try:
        yield observers
    finally:
        observers.close()


def _build_observers(project: Project, names: Sequence[str]) -> Sequence[Observer]:  # noqa: ARG001
    observers: list[Observer] = []
    if project.lineage is not None:
        observers.append(_build_lineage(project, project.lineage))
    if project.notify is not None:
        observers.append(_build_notifier(project, project.notify))
    return observers


def _build_lineage(project: Project, settings: Lineage) -> Observer:
    require_extra("lineage")
    from infra.monitoring.lineage import LineageObserver

    return LineageObserver(project, settings)


def _build_notifier(project: Project, settings: Notify) -> Observer:
    from infra.monitoring.notifier import Notifier

    return Notifier(project, settings)
