"""Keeps the metrics of the pipelines of this process, and passes them on: over HTTP, into a text file, by OTLP."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cdf.errors import BrakeStopped, ConfigError, Paused
from cdf.results import Followed
from infra.diagnostics.delta_table import explain_spark_only
from infra.diagnostics.status import PipelineStatus, read_pipeline_status
from infra.monitoring import metric_names as names
from infra.monitoring.metric_store import MetricStore
from infra.monitoring.metrics_evidence import EvidenceReader
from infra.monitoring.observers import Observer, ReadStatus

if TYPE_CHECKING:
    from cdf.errors import CdfError
    from cdf.results import FollowStatus, Step
    from infra.config.models import Project
    from infra.monitoring.metrics_otlp import OtlpPush

__all__ = ["MetricsObserver"]

REFRESH_SECONDS = 15.0
"""Interval at which sources and targets are asked. A scrape does not ask them."""
READERS = 8
"""Number of pipelines that are read at the same time: one by one, hundreds take longer than a run without changes."""
CLOSE_SECONDS = 5.0
"""Maximum time for the last refresh and the last push; the push has a second in any case."""

log = logging.getLogger("deltarelay.monitoring")


class MetricsObserver(Observer):
    def __init__(
        self,
        project: Project,
        pipelines: Sequence[str],
        *,
        textfile: Path | None = None,
        push: OtlpPush | None = None,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self.store = MetricStore()
        self._project, self._pipelines, self._textfile = project, tuple(pipelines), textfile
        self._push = push
        self._refresh_seconds = refresh_seconds
        self._followers: dict[str, ReadStatus] = {}
        self._failed: dict[str, str] = {}
        """The state of each pipeline whose run has failed."""
        self._began: set[str] = set()
        self._closing = threading.Event()
        for pipeline in self._pipelines:  # 0, so that the first rows are an increase
            for change in names.CHANGES:
                self.store.add(names.ROWS, (pipeline, change), 0)
        if textfile is not None:
            _continue_totals(self.store, textfile, self._pipelines, project.pipelines)
        self._evidence = EvidenceReader(project, self._pipelines, self.store)
        self._thread = threading.Thread(target=self._repeat, name="metrics", daemon=True)
        self._thread.start()

    # ── called by the pipelines ────────────────────────────────────────────────────────────────────────────────────

    def begin(self, pipeline: str, read_status: ReadStatus | None) -> None:
        self._began.add(pipeline)
        if read_status is not None:
            self._followers[pipeline] = read_status

    def record_step(self, pipeline: str, step: Step | Followed) -> None:
        applied = step if isinstance(step, Followed) else step.applied
        if step.kind == "load":
            self.store.add(names.ROWS, (pipeline, "load"), applied.inserts)
        else:
            for change, rows in (("insert", applied.inserts), ("update", applied.updates), ("delete", applied.deletes)):
                self.store.add(names.ROWS, (pipeline, change), rows)
        seconds = dict(applied.seconds)
        total = seconds.pop("total", None)
        for name, value in seconds.items():
            self.store.observe(names.WINDOW_SECONDS, (pipeline, name), value)
        self.store.observe(names.WINDOW_SECONDS, (pipeline, "total"), sum(seconds.values()) if total is None else total)

    def end(self, pipeline: str, error: CdfError | None) -> None:
        if error is not None:
            self._failed[pipeline] = _judge_failure(error)
            self._set_state(pipeline, self._failed[pipeline])
        elif pipeline not in self._followers:
            self.store.raise_to(names.LAST_SUCCESS, (pipeline,), time.time())

    def close(self) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        self._closing.set()
        self._evidence.stop()
        self._thread.join(CLOSE_SECONDS)  # a server that does not answer is not waited for any longer
        self._evidence.join(deadline - time.monotonic())
        self._publish()
        if self._push is not None:
            self._push.close(max(1.0, deadline - time.monotonic()))

    def find_unready(self) -> tuple[str, ...]:
        """The pipelines that have not started yet, or have failed."""
        return tuple(one for one in self._pipelines if one in self._failed or not self._has_started(one))

    def _has_started(self, pipeline: str) -> bool:
        read = self._followers.get(pipeline)
        if read is None:
            return pipeline in self._began
        status = read()
        return status is not None and status.state != "starting"

    # ── read in the background ───────────────────────────────────────────────────────────────────────────────────

    def _repeat(self) -> None:
        while True:
            is_last = self._closing.is_set()
            # Daemons: the end of a command does not wait for a server that does not answer
            shares = [self._pipelines[at::READERS] for at in range(min(READERS, len(self._pipelines)))]
            threads = [threading.Thread(target=self._refresh_each, args=(share,), daemon=True) for share in shares]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if is_last:
                return  # `close` publishes
            self._publish()
            self._closing.wait(self._refresh_seconds)

    def _refresh_each(self, pipelines: Sequence[str]) -> None:
        for pipeline in pipelines:
            try:
                self._refresh(pipeline)
            except Exception as error:
                log.warning("metrics not refreshed", extra={"pipeline": pipeline, "error": type(error).__name__})

    def _refresh(self, pipeline: str) -> None:
        follower = self._read_follower(pipeline)
        status = read_pipeline_status(self._project, pipeline, now=dt.datetime.now(dt.UTC))
        # Only Spark can read such a table, which is no fault of the pipeline
        state: str = "unknown" if status.code and explain_spark_only(status.source) else status.state
        lag = status.lag_versions, status.lag_seconds
        # Spark reads tables that delta-rs cannot read, and the runner knows best why it waits
        if follower is not None and status.state not in ("stuck", "paused", "stopped_by_brake"):
            state, lag = _judge_follower(follower, status), (follower.lag_versions, follower.lag_seconds)
        self._set_state(pipeline, self._failed.get(pipeline, state))
        self.store.set(names.LAG_VERSIONS, (pipeline,), lag[0])
        self.store.set(names.LAG_SECONDS, (pipeline,), lag[1])
        if status.code is not None:
            return  # what was known of the rest stays: the target could not be read
        days = status.feed_files_days
        self.store.set(names.FEED_EXPIRES_SECONDS, (pipeline,), None if days is None else days * 86_400)
        self.store.set(names.DEAD_LETTERS, (pipeline,), status.dead_letters)
        if status.succeeded_at is not None:  # not every sink records a run that found nothing to do
            self.store.raise_to(names.LAST_SUCCESS, (pipeline,), status.succeeded_at.timestamp())

    def _read_follower(self, pipeline: str) -> FollowStatus | None:
        read = self._followers.get(pipeline)
        return None if read is None else read()

    def _set_state(self, pipeline: str, state: str) -> None:
        for name in names.STATES:
            self.store.set(names.STATE, (pipeline, name), float(name == state))

    def _publish(self) -> None:
        self._write_textfile()
        if self._push is not None:
            self._push.submit(self.store)

    def _write_textfile(self) -> None:
        if self._textfile is None:
            return
        from prometheus_client import write_to_textfile

        try:
            write_to_textfile(str(self._textfile), self.store.build_registry())
        except OSError as error:
            log.warning("metrics not written", extra={"file": str(self._textfile), "error": type(error).__name__})


def _judge_failure(error: CdfError) -> str:
    if isinstance(error, BrakeStopped):
        return "stopped_by_brake"
    if isinstance(error, Paused):
        return "paused"
    return "unreachable" if error.transient else "failed"


def _judge_follower(follower: FollowStatus, status: PipelineStatus) -> str:
    if follower.state == "waiting":
        return "unreachable"
    if follower.state in ("paused", "stopped_by_brake", "failed"):
        return follower.state
    if follower.position is None:
        return status.state if status.code is None else "empty"
    return "behind" if follower.lag_versions else "up_to_date"


def _continue_totals(store: MetricStore, file: Path, pipelines: Sequence[str], configured: Container[str]) -> None:
    if not file.parent.is_dir():
        raise ConfigError(f"metrics.textfile: there is no folder {file.parent}", hint="create it, or name another file")
    try:
        text = file.read_text()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"metrics.textfile: {file} cannot be read ({type(error).__name__})", hint="check its permissions"
        ) from None
    try:
        store.restore(text, pipelines=pipelines, configured=configured)
    except ValueError:
        log.warning("the totals begin again: the file was not written by deltarelay", extra={"file": str(file)})
