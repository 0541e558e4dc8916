"""Sends OpenLineage events for loads, windows, comparisons and erasures, without slowing or stopping them.

A run of a pipeline is one run of the job ``PIPELINE``; each load and window is a run of ``PIPELINE.load`` or
``PIPELINE.window`` with that run as its parent, sent when it is durable. So only the run of the pipeline can be left open by
a process that dies: its id is remembered (``infra.monitoring.memory``) once it has the lease, and the next runner that has
the lease closes it. A run without the lease may be alive, so no other run closes it.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, Interrupted, LeaseHeld, Paused
from cdf.results import Followed
from connectors.dataset_names import TargetDataset, split_address
from connectors.registry import get_sink_kind
from connectors.sink_kind import DatasetNaming
from infra.monitoring.background import Background
from infra.monitoring.lineage_events import (
    EventFactory,
    Parent,
    build_erased,
    build_input,
    build_output,
    build_verified,
    create_run_id,
)
from infra.monitoring.lineage_transport import Sender, build_transport
from infra.monitoring.memory import Memory
from infra.monitoring.observers import Observer, ReadStatus
from infra.monitoring.source_columns import SourceColumns

if TYPE_CHECKING:
    from openlineage.client import event_v2 as ol

    from audit.erasure.run.runner import ErasureReport
    from cdf import Verification
    from cdf.results import Step
    from infra.config.models import Project
    from infra.config.monitoring_models import Lineage

__all__ = ["LineageObserver"]

CLOSE_SECONDS = 5.0
CHECK_SECONDS = 1.0
MAX_REMEMBERED = 20
"""Runs of a pipeline whose end is remembered while the receiver does not answer; the oldest is forgotten."""
_NOT_FAILED = (Interrupted, LeaseHeld, Paused)

log = logging.getLogger("deltarelay.monitoring")


class LineageObserver(Observer):
    def __init__(self, project: Project, settings: Lineage) -> None:
        self._project = project
        self._events = EventFactory(settings.namespace)
        self._sender = Sender(build_transport(project, settings))
        self._background = Background("lineage")
        self._runs: dict[str, _Run] = {}
        self._closing = threading.Event()

    def begin(self, pipeline: str, read_status: ReadStatus | None) -> None:
        run = _Run(self._project, pipeline, self._events, self._sender, is_streaming=read_status is not None)
        self._runs[pipeline] = run
        began = _now()
        self._background.submit(lambda: run.begin(began))
        if read_status is not None:
            threading.Thread(target=self._wait_until_open, args=(run, read_status), daemon=True).start()

    def record_step(self, pipeline: str, step: Step | Followed) -> None:
        run, ended = self._runs[pipeline], _now()
        self._close_earlier_runs(run)
        self._background.submit(lambda: run.send_step(step, ended))

    def end(self, pipeline: str, error: CdfError | None) -> None:
        self._end(self._runs.pop(pipeline), error)

    def record_verification(self, pipeline: str, found: Verification) -> None:
        run, ended = _Run(self._project, pipeline, self._events, self._sender), _now()
        self._background.submit(lambda: run.send_verification(found, ended))

    def record_erasure(self, report: ErasureReport) -> None:
        ended = _now()
        outputs = [build_erased(*split_address(table), rows=rows) for table, rows in report.deleted.items()]
        for pipeline in report.forgotten:
            target = _find_target(self._project, pipeline)
            outputs += [] if target is None else [build_erased(target.namespace, target.name, rows=None)]
        self._background.submit(lambda: self._send_erasure(outputs, ended))

    def close(self) -> None:
        self._closing.set()
        for run in self._runs.values():  # an interrupt ended the command
            self._end(run, Interrupted("interrupted"))
        self._runs.clear()
        self._background.close(CLOSE_SECONDS)

    def _end(self, run: _Run, error: CdfError | None) -> None:
        ended = _now()
        if error is None:
            self._close_earlier_runs(run)
        self._background.submit(lambda: run.end(error, ended))

    def _close_earlier_runs(self, run: _Run) -> None:
        """Called when this process has the lease: no other run of this pipeline is alive."""
        if not run.has_lease:
            run.has_lease = True
            began = _now()
            self._background.submit(lambda: run.close_earlier_runs(began))

    def _wait_until_open(self, run: _Run, read_status: ReadStatus) -> None:
        """A follower may have the lease for hours before it applies something."""
        while not self._closing.wait(CHECK_SECONDS) and not run.has_lease:
            status = read_status()
            if status is not None and status.state == "following":
                self._close_earlier_runs(run)

    def _send_erasure(self, outputs: Sequence[ol.OutputDataset], ended: dt.datetime) -> None:
        id = create_run_id()
        for kind in ("START", "COMPLETE"):
            self._sender.send(self._events.build_event(kind, ended, "erase", id, outputs=outputs))


class _Run:
    """One run of one pipeline. All methods except the constructor are called in the background."""

    def __init__(
        self, project: Project, pipeline: str, events: EventFactory, sender: Sender, *, is_streaming: bool = False
    ) -> None:
        settings = project.pipeline(pipeline).source
        self.has_lease = False
        self._pipeline, self._events, self._sender, self._is_streaming = pipeline, events, sender, is_streaming
        self._id = create_run_id()
        self._memory = Memory(project, pipeline, "lineage", reads_first=False)
        self._source = split_address(settings.table) if "/" in settings.table else (events.namespace, settings.table)
        self._target = _find_target(project, pipeline)
        self._columns = SourceColumns(settings.table, project.storage)

    def begin(self, at: dt.datetime) -> None:
        self._send("START", at)

    def end(self, error: CdfError | None, at: dt.datetime) -> None:
        kind = "COMPLETE" if error is None else "ABORT" if isinstance(error, _NOT_FAILED) else "FAIL"
        # Remembered first: if the event is not sent now, the next runner sends it
        self._remember({"at": at.isoformat(), "event": kind})
        self._send(kind, at, error=None if kind == "ABORT" else error)
        self._forget([self._id])

    def close_earlier_runs(self, at: dt.datetime) -> None:
        """``at``: the time when this run had the lease."""
        runs, sent = self._remember({"at": at.isoformat()}), []
        try:
            for id, run in runs.items():
                if id != self._id:
                    kind = str(run.get("event", "ABORT"))
                    self._send(kind, dt.datetime.fromisoformat(run["at"]) if "event" in run else _now(), id=id)
                    sent.append(id)
        finally:
            self._forget(sent)

    def _remember(self, run: Mapping[str, str]) -> Mapping[str, Any]:
        def change(runs: Mapping[str, Any]) -> Mapping[str, Any]:
            known = sorted({**runs, self._id: run}.items(), key=lambda one: str(one[1]["at"]))
            return dict(known[-MAX_REMEMBERED:])

        return self._memory.change(change)

    def _forget(self, ids: Sequence[str]) -> None:
        if ids:
            self._memory.change(lambda runs: {id: run for id, run in runs.items() if id not in ids})

    def send_step(self, step: Step | Followed, ended: dt.datetime) -> None:
        applied = step if isinstance(step, Followed) else step.applied
        changes = (applied.inserts, applied.updates, applied.deletes)
        rows, rows_in, seconds = sum(changes), None, sum(applied.seconds.values())
        if isinstance(step, Followed):
            rows, rows_in, seconds = step.rows_applied, step.rows_in, step.seconds.get("total", 0.0)
        # A load reads one version; a window reads the changes after the version before it
        columns = self._columns.read(step.first if step.kind == "load" else step.first - 1, step.last)
        source = build_input(self._source, columns, first=step.first, last=step.last, rows=rows_in)
        target = self._target
        outputs = [] if target is None else [build_output(target, self._source, columns, rows=rows, changes=changes)]
        began = ended - dt.timedelta(seconds=seconds)
        self._send_pair(f"{self._pipeline}.{step.kind}", began, ended, [source], outputs, parent=True)

    def send_verification(self, found: Verification, ended: dt.datetime) -> None:
        columns = self._columns.read(found.version, found.version)
        inputs = [
            build_input(self._source, columns, first=found.version, last=found.version, rows=found.source_rows),
            *([] if self._target is None else [build_verified(self._target, equal=found.equal)]),
        ]
        began = ended - dt.timedelta(seconds=found.seconds)
        self._send_pair(f"{self._pipeline}.verify", began, ended, inputs, [])

    def _send_pair(
        self,
        job: str,
        began: dt.datetime,
        ended: dt.datetime,
        inputs: Sequence[ol.InputDataset],
        outputs: Sequence[ol.OutputDataset],
        *,
        parent: bool = False,
    ) -> None:
        id, above = create_run_id(), Parent(self._pipeline, self._id) if parent else None
        for kind, at in (("START", began), ("COMPLETE", ended)):
            self._sender.send(
                self._events.build_event(
                    kind, at, job, id, streaming=self._is_streaming, parent=above, inputs=inputs, outputs=outputs
                )
            )

    def _send(self, kind: str, at: dt.datetime, *, error: CdfError | None = None, id: str | None = None) -> None:
        event = self._events.build_event(
            kind, at, self._pipeline, id or self._id, streaming=self._is_streaming, error=error
        )
        self._sender.send(event)


def _find_target(project: Project, pipeline: str) -> TargetDataset | None:
    settings = project.pipeline(pipeline).sink
    connection = project.connections[settings.connection]
    kind = get_sink_kind(connection.kind)
    return kind.describe_dataset(connection.settings, settings.options) if isinstance(kind, DatasetNaming) else None


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
