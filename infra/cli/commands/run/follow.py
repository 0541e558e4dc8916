"""``deltarelay run --follow``: follows every pipeline in one process until it is stopped."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, SinkUnavailable
from infra.cli.project import load_project, select_pipelines
from infra.logs import bind, log_step
from infra.monitoring.observers import Listen, Observers, observe
from infra.output import DONE, Output, exit_code_for, to_cdf_error
from infra.runtime import BucketProbes, build_pipeline, spark_session
from infra.signals import defer_first_signal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cdf import Followed, Following
    from cdf.results import FollowStatus

__all__ = ["follow_pipelines"]

GRACE_SECONDS = 30.0
"""Maximum time for running windows to finish after Ctrl-C or SIGTERM; then they are rolled back."""
CHECK_SECONDS = 0.5
"""Interval between checks whether a pipeline has failed."""


def follow_pipelines(
    output: Output,
    config: Path,
    wanted: Sequence[str] | None,
    *,
    interval_seconds: float,
    listen: Listen | None = None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Follow until all pipelines have failed, or until Ctrl-C or SIGTERM. → entries for --json, exit codes"""
    project = load_project(config)
    names = select_pipelines(project, wanted)
    running: dict[str, Following] = {}
    probes = BucketProbes()
    trigger = {"processingTime": f"{round(interval_seconds * 1000)} milliseconds"}
    with (
        observe(project, names, has_metrics=True, listen=listen) as observers,
        spark_session(output, project, may_be_remote=True) as spark,
        defer_first_signal() as is_interrupted,
    ):
        failures = _Failures(output, observers)
        for name in names:
            observers.begin(name, functools.partial(_read_status, running, name))
            try:
                pipeline = build_pipeline(project, name, spark, probes=probes)
                running[name] = pipeline.follow(trigger, progress=_create_step_recorder(name, observers))
            except Exception as error:
                failures.record(name, error)
        with _draw_table(output, running) as refresh:
            checked_at = 0.0
            while not is_interrupted():
                time.sleep(0.1)
                if time.monotonic() - checked_at < CHECK_SECONDS:
                    continue
                _collect_failures(running, failures)
                refresh()
                if len(failures.errors) == len(names):
                    break
                checked_at = time.monotonic()
        if is_interrupted():
            output.note("stopping after the current windows (press Ctrl-C again to stop at once) …")
        _stop_all(running, failures)
        _collect_failures(running, failures)
        statuses = {name: handle.status() for name, handle in running.items()}
        for name in names:
            if name not in failures.errors:
                observers.end(name, None)
    results, codes = [], []
    for name in names:
        failure = failures.errors.get(name)
        codes.append(DONE if failure is None else exit_code_for(failure))
        entry: dict[str, Any] = {"pipeline": name, "ok": failure is None}
        if name in statuses:
            entry |= statuses[name].to_dict()
            last = statuses[name].last
            position = "no changes" if last is None else f"at version {last.position}"
            if failure is None:
                output.line(
                    f"{name}: {position} ({statuses[name].windows} windows, {statuses[name].rows_applied} changes)"
                )
        results.append(entry | ({"error": failure.to_dict()} if failure else {}))
    return results, codes


def _read_status(running: dict[str, Following], name: str) -> FollowStatus | None:
    return running[name].status() if name in running else None


def _stop_all(running: dict[str, Following], failures: _Failures) -> None:
    """Stop all pipelines in parallel, in daemon threads: a second Ctrl-C ends the process without waiting for them."""
    unfinished: list[str] = []

    def stop(name: str) -> None:
        if not running[name].stop(GRACE_SECONDS):
            unfinished.append(name)

    threads = [threading.Thread(target=stop, args=(name,), daemon=True) for name in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    for name in unfinished:
        if name not in failures.errors:  # a failure of the pipeline itself has been reported
            error = SinkUnavailable(
                "the current window did not finish in time", hint="the position is intact: run again"
            )
            failures.record(name, error)


def _collect_failures(running: dict[str, Following], failures: _Failures) -> None:
    """Report each pipeline that has failed since the last check."""
    for name, handle in running.items():
        if name in failures.errors:
            continue
        try:
            handle.await_termination(0)
        except Exception as error:
            failures.record(name, error)


class _Failures:
    """Reports each failed pipeline once, as soon as it has failed."""

    def __init__(self, output: Output, observers: Observers) -> None:
        self._output, self._observers = output, observers
        self.errors: dict[str, CdfError] = {}

    def record(self, name: str, error: Exception) -> None:
        self.errors[name] = failure = to_cdf_error(error)
        self._output.failure(name, failure)
        self._observers.end(name, failure)


def _create_step_recorder(name: str, observers: Observers) -> Callable[[Followed], None]:
    log = bind(pipeline=name)

    def record_step(step: Followed) -> None:
        log_step(log, step)
        observers.record_step(name, step)

    return record_step


@contextmanager
def _draw_table(output: Output, running: dict[str, Following]) -> Iterator[Callable[[], None]]:
    """Draw a table that is refreshed on a terminal; nothing elsewhere, where log lines show the steps."""
    console = output.progress_console
    if console is None:
        yield lambda: None
        return
    from rich.live import Live

    with Live(_build_table(running), console=console, refresh_per_second=2, transient=True) as live:
        yield lambda: live.update(_build_table(running))


def _build_table(running: dict[str, Following]) -> RenderableType:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("pipeline")
    table.add_column("state")
    for name in ("version", "lag (versions)", "lag (seconds)", "changes", "changes/s", "last window (seconds)"):
        table.add_column(name, justify="right")
    for name, handle in running.items():
        status = handle.status()
        last = status.last
        figures = (
            ("-",) * 6
            if last is None
            else (
                str(status.position),
                str("-" if status.lag_versions is None else status.lag_versions),
                "-" if status.lag_seconds is None else f"{status.lag_seconds:.1f}",
                str(status.rows_applied),
                f"{last.rows_per_second:.0f}",
                f"{last.seconds['total']:.2f}",
            )
        )
        table.add_row(name, status.state.replace("_", " "), *figures)
    return table
