"""What the pages show, read in the background: the status of each pipeline, and whether its target's server answers."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError
from cdf.sink import DeadLetterStore, Monitored, Movable, RunRecord, Standing, Tracked
from infra.diagnostics.evidence import list_trails
from infra.diagnostics.status import PipelineStatus, read_pipeline_status
from infra.monitoring.page.audit import TrailRow, build_trail_row, read_trail
from infra.monitoring.page.erasure import ErasurePage, build_erasure_page, read_requests
from infra.monitoring.page.readings import Reading, Readings

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["Collector", "Details", "Outage", "PipelineReading", "SeenPipeline"]

WAIT_SECONDS = 1.5
"""Maximum time for which a page waits for servers; then it shows what is known."""
PROBE_AGE_SECONDS = 2.0
"""A page never relies on an older answer of a target's server."""
TRAIL_SECONDS = 20.0
"""Reading a long ledger on S3 may take seconds. After this time a trail is shown as unreachable."""
STALE_READS = 3
"""A status that is older than this many intervals is marked as old."""
RECENT_RUNS = 30
DETAIL_RUNS = 50
ALTERING_RUNS = 20
MOST_DEAD_LETTERS = 1_000


@dataclass(frozen=True, slots=True)
class PipelineReading:
    status: PipelineStatus
    runs: tuple[RunRecord, ...]
    """The latest first; empty where the sink keeps no history."""


@dataclass(frozen=True, slots=True)
class Details:
    """What only the page of one pipeline shows."""

    runs: tuple[RunRecord, ...]
    failures: tuple[RunRecord, ...]
    standing: Standing | None
    dead_letters: dict[tuple[str, str | None, str | None], int]
    """The number of dead letters by reason, column and SQLSTATE. Their rows and keys are not kept."""
    altering_runs: tuple[RunRecord, ...]
    """The latest steps that followed schema changes. They may be older than ``runs``."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The server of a connection does not answer."""

    connection: str
    text: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class SeenPipeline:
    name: str
    connection: str
    reading: PipelineReading | None
    """The last one that succeeded; None: there is none yet."""
    error: CdfError | None
    """Why the last attempt failed; None: it did not."""
    age_seconds: float | None
    """Age of ``reading``."""
    is_old: bool
    outage: Outage | None


class _Unreachable(CdfError):
    transient = True


class Collector:
    """``start`` it once; the other methods may be called from any thread, and answer within about two seconds."""

    def __init__(self, project: Project, names: Sequence[str], *, interval_seconds: float) -> None:
        self.project, self.names = project, tuple(names)
        self.interval_seconds = interval_seconds
        self.targets = project.targets()
        """For each pipeline a description of its target."""
        self.readings = Readings()
        self._closing = threading.Event()
        self._connections = {name: project.pipeline(name).sink.connection for name in names}
        for name, connection in self._connections.items():
            self.readings.add(f"status {name}", connection, _bind(_read_pipeline, project, name))
            self.readings.add(f"details {name}", f"{connection} details", _bind(_read_details, project, name))
            # Whether a server answers is tried with its first pipeline, in a lane of its own: slow tables do not delay it
            self.readings.add(f"probe {connection}", f"{connection} probe", _bind(_probe, project, name))

        self.trails = tuple(name for name in list_trails(project) if name in self._connections)
        for name in self.trails:
            self.readings.add(f"trail {name}", f"trail {name}", _bind(read_trail, project, name))
        self.has_erasure = project.erasure is not None
        self.readings.add("requests", "requests", lambda: read_requests(project))

    def start(self) -> None:
        threading.Thread(target=self._repeat, name="page-collector", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def read_pipelines(self) -> tuple[SeenPipeline, ...]:
        """All pipelines. Servers are asked now whether they answer; statuses may be older, and say how old."""
        probes = [f"probe {one}" for one in dict.fromkeys(self._connections.values())]
        self.readings.ask(probes, max_age=PROBE_AGE_SECONDS, first=True)
        statuses = [f"status {name}" for name in self.names]
        started = time.monotonic()
        self.readings.wait(probes, max_age=PROBE_AGE_SECONDS, seconds=WAIT_SECONDS)
        if any(self.readings.get(key).ended_at is None for key in statuses):  # the first seconds of the command
            left = WAIT_SECONDS - (time.monotonic() - started)
            self.readings.wait(statuses, max_age=float("inf"), seconds=max(0.0, left))
        outages = {connection: self._find_outage(connection) for connection in set(self._connections.values())}
        again = [f"status {name}" for name in self.names if outages[self._connections[name]] is None]
        failed = [key for key in again if self.readings.get(key).error is not None]
        self.readings.ask(failed, max_age=PROBE_AGE_SECONDS)  # a server that is back is shown by the next refresh
        return tuple(self._see(name, outages[self._connections[name]]) for name in self.names)

    def read_pipeline(self, name: str) -> tuple[SeenPipeline, Details | None, CdfError | None]:
        """One pipeline as it is now, if its servers answer in time. → the error of reading its details"""
        connection = self._connections[name]
        keys = [f"probe {connection}", f"status {name}", f"details {name}"]
        self.readings.ask(keys, max_age=PROBE_AGE_SECONDS, first=True)
        self.readings.wait(keys, max_age=PROBE_AGE_SECONDS, seconds=WAIT_SECONDS)
        details = self.readings.get(f"details {name}")
        return self._see(name, self._find_outage(connection)), details.value, details.error

    def read_trails(self) -> tuple[TrailRow, ...]:
        keys = [f"trail {name}" for name in self.trails]
        self.readings.ask(keys, max_age=self.interval_seconds, first=True)
        self.readings.wait(keys, max_age=self.interval_seconds, seconds=WAIT_SECONDS)
        return tuple(
            build_trail_row(name, self.targets[name], *self._see_value(f"trail {name}", TRAIL_SECONDS))
            for name in self.trails
        )

    def read_erasure(self) -> ErasurePage:
        self.readings.ask(["requests"], max_age=PROBE_AGE_SECONDS, first=True)
        self.readings.wait(["requests"], max_age=PROBE_AGE_SECONDS, seconds=WAIT_SECONDS)
        return build_erasure_page(*self._see_value("requests", WAIT_SECONDS * 0.8))

    def _see_value(self, key: str, patience: float) -> tuple[Any, CdfError | None, float | None]:
        """→ the last value, why it cannot be read now, its age. A read that takes longer than ``patience`` is an error."""
        reading, moment = self.readings.get(key), time.monotonic()
        error, begun = reading.error, reading.begun_at
        if begun is not None and moment - begun > patience:
            error = _Unreachable(f"no answer for {moment - begun:.0f} s", hint="is the server running and reachable?")
        return reading.value, error, None if reading.value_at is None else moment - reading.value_at

    def _repeat(self) -> None:
        statuses = [f"status {name}" for name in self.names]
        while not self._closing.is_set():
            self.readings.ask(statuses, max_age=self.interval_seconds)
            self._closing.wait(min(1.0, self.interval_seconds))

    def _see(self, name: str, outage: Outage | None) -> SeenPipeline:
        reading = self.readings.get(f"status {name}")
        age = None if reading.value_at is None else time.monotonic() - reading.value_at
        is_old = age is not None and age > STALE_READS * self.interval_seconds
        return SeenPipeline(name, self._connections[name], reading.value, reading.error, age, is_old, outage)

    def _find_outage(self, connection: str) -> Outage | None:
        probe = self.readings.get(f"probe {connection}")
        begun, moment = probe.begun_at, time.monotonic()
        if begun is not None and moment - begun > WAIT_SECONDS * 0.8:
            return Outage(connection, f"no answer for {moment - begun:.0f} s", "is the server running and reachable?")
        return _describe_failure(connection, probe)


def _describe_failure(connection: str, probe: Reading) -> Outage | None:
    error = probe.error
    return None if error is None or not error.transient else Outage(connection, error.message, error.hint)


def _bind(read: Callable[[Project, str], object], project: Project, name: str) -> Callable[[], object]:
    return lambda: read(project, name)


def _probe(project: Project, name: str) -> None:
    sink = project.build_sink(name)
    if isinstance(sink, Tracked):
        sink.position()


def _read_pipeline(project: Project, name: str) -> PipelineReading:
    """Raises where source or target is unreachable, so that the page keeps what it knew."""
    status = read_pipeline_status(project, name, now=dt.datetime.now(dt.UTC))
    if status.state == "unreachable":
        raise _Unreachable(status.error or "", hint=status.hint)
    return PipelineReading(status, _read_runs(project, name, RECENT_RUNS))


def _read_runs(project: Project, name: str, limit: int, **only: bool) -> tuple[RunRecord, ...]:
    """For information only: a role may read positions without the right to read the history."""
    with suppress(CdfError):
        sink = project.build_sink(name)
        if isinstance(sink, Monitored):
            return tuple(sink.runs(limit, **only))
    return ()


def _read_details(project: Project, name: str) -> Details:
    sink = project.build_sink(name)
    dead_letters: dict[tuple[str, str | None, str | None], int] = {}
    if isinstance(sink, DeadLetterStore):
        for letter in sink.dead_letters(most=MOST_DEAD_LETTERS):
            kind = letter.reason, letter.column, letter.sqlstate
            dead_letters[kind] = dead_letters.get(kind, 0) + 1
    return Details(
        runs=_read_runs(project, name, DETAIL_RUNS),
        failures=_read_runs(project, name, DETAIL_RUNS, failed=True),
        standing=sink.standing() if isinstance(sink, Movable) else None,
        dead_letters=dead_letters,
        altering_runs=_read_runs(project, name, ALTERING_RUNS, schema_changes=True),
    )
