"""Metrics of audit trails and erasure requests: what is not anchored, what is overdue. Read in a thread of its own, because
anchors can be slow, and a ledger is long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from infra.diagnostics.evidence import count_overdue, has_anchors, read_coverage
from infra.monitoring import metric_names as names

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.monitoring.metric_names import Metric
    from infra.monitoring.metric_store import Labels, MetricStore

    Reading = tuple[Metric, Labels, Callable[[], int | None]]

__all__ = ["EvidenceReader"]

READ_SECONDS = 60.0

log = logging.getLogger("deltarelay.monitoring")


class EvidenceReader:
    """Starts nothing where there is nothing to read."""

    def __init__(self, project: Project, pipelines: Sequence[str], store: MetricStore) -> None:
        self._store = store
        self._readings = _list_readings(project, pipelines)
        self._failing: set[tuple[str, Labels]] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="metrics-evidence", daemon=True)
        if self._readings:
            self._thread.start()

    def stop(self) -> None:
        """Read once more, and end. Returns at once."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        if self._readings:
            self._thread.join(max(0.0, seconds))

    def _repeat(self) -> None:
        while True:
            is_last = self._stopping.is_set()
            for metric, labels, read in self._readings:
                self._read(metric, labels, read)
            if is_last:
                return
            self._stopping.wait(READ_SECONDS)

    def _read(self, metric: Metric, labels: Labels, read: Callable[[], int | None]) -> None:
        try:
            value = read()
            self._failing.discard((metric.name, labels))
        except Exception as error:
            value = None
            if (metric.name, labels) not in self._failing:  # one line per outage
                log.warning("a metric was not read", extra={"metric": metric.name, "error": type(error).__name__})
            self._failing.add((metric.name, labels))
        self._store.set(metric, labels, value)


def _list_readings(project: Project, pipelines: Sequence[str]) -> Sequence[Reading]:
    readings: list[Reading] = [
        (names.UNANCHORED_COMMITS, (name,), partial(_count_unanchored, project, name))
        for name in pipelines
        if has_anchors(project, name)
    ]
    if project.erasure is not None:
        readings.append((names.ERASURES_OVERDUE, (), partial(count_overdue, project)))
    return readings


def _count_unanchored(project: Project, name: str) -> int | None:
    coverage = read_coverage(project, name, with_time=False)
    return None if coverage is None else coverage.unanchored_commits
