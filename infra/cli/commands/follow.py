"""``deltarelay run --follow``: every pipeline in one process, until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, SinkUnavailable
from infra.cli.output import DONE, Output, exit_code_of, in_our_words
from infra.cli.session import Answered, build_pipeline, chosen, spark_session
from infra.logs import bind, log_step
from infra.signals import defer_first_signal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cdf import Followed, Following

__all__ = ["follow"]

GRACE_SECONDS = 30.0
"""So long the running windows may take to finish after Ctrl-C or TERM; then they are rolled back."""
LOOK_SECONDS = 0.5
"""How often it is looked whether a pipeline has ended by itself."""


def follow(
    output: Output, config: Path, wanted: Sequence[str] | None, *, interval_seconds: float, checkpoint: str | None
) -> tuple[list[dict[str, Any]], list[int]]:
    """Follow until all pipelines have failed, or Ctrl-C or TERM came. → entries for --json, exit codes"""
    from infra.config.load import load

    project = load(config)
    names = chosen(project, wanted)
    running: dict[str, Following] = {}
    failed: dict[str, CdfError] = {}
    answered = Answered()
    trigger = {"processingTime": f"{round(interval_seconds * 1000)} milliseconds"}
    with spark_session(output, project) as spark, defer_first_signal() as asked:
        for name in names:
            try:
                pipeline = build_pipeline(project, name, spark, answered=answered)
                folder = None if checkpoint is None else f"{checkpoint.rstrip('/')}/{name}"
                running[name] = pipeline.follow(folder, trigger, progress=_logged(name))
            except Exception as error:
                failed[name] = in_our_words(error)
                output.failure(name, failed[name])
        with _shown(output, running) as show:
            looked = 0.0
            while not asked():
                time.sleep(0.1)
                if time.monotonic() - looked < LOOK_SECONDS:
                    continue
                _collect(output, running, failed)
                show()
                if len(failed) == len(names):
                    break
                looked = time.monotonic()
        if asked():
            output.note("stopping after the windows that are being applied (once more: at once) …")
        _stop_all(output, running, failed)
        _collect(output, running, failed)
        statuses = {name: handle.status() for name, handle in running.items()}
    results, codes = [], []
    for name in names:
        why = failed.get(name)
        codes.append(DONE if why is None else exit_code_of(why))
        entry: dict[str, Any] = {"pipeline": name, "ok": why is None}
        if name in statuses:
            entry |= statuses[name].to_dict()
            last = statuses[name].last
            at = "no change came" if last is None else f"at version {last.position}"
            if why is None:
                output.line(f"{name}: {at} ({statuses[name].windows} windows, {statuses[name].rows_applied} changes)")
        results.append(entry | ({"error": why.to_dict()} if why else {}))
    return results, codes


def _stop_all(output: Output, running: dict[str, Following], failed: dict[str, CdfError]) -> None:
    """All at the same time. In threads that nobody has to wait for, so that a second Ctrl-C really ends it."""
    left: list[str] = []

    def stop(name: str) -> None:
        if not running[name].stop(GRACE_SECONDS):
            left.append(name)

    stopping = [threading.Thread(target=stop, args=(name,), daemon=True) for name in running]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        while thread.is_alive():
            thread.join(0.2)
    for name in left:
        if name in failed:
            continue  # it has failed by itself, and that is told
        failed[name] = SinkUnavailable(
            "the running window did not end in time", hint="the position is intact: run again"
        )
        output.failure(name, failed[name])


def _collect(output: Output, running: dict[str, Following], failed: dict[str, CdfError]) -> None:
    """Tell once of each pipeline that has ended by itself."""
    for name, handle in running.items():
        if name in failed:
            continue
        try:
            handle.await_termination(0)
        except Exception as error:
            failed[name] = in_our_words(error)
            output.failure(name, failed[name])


def _logged(name: str) -> Callable[[Followed], None]:
    log = bind(pipeline=name)
    return lambda step: log_step(log, step)


@contextmanager
def _shown(output: Output, running: dict[str, Following]) -> Iterator[Any]:
    """A table that is drawn anew on a terminal; nothing elsewhere, where log lines tell."""
    console = output.progress_console
    if console is None:
        yield lambda: None
        return
    from rich.live import Live

    with Live(_table(running), console=console, refresh_per_second=2, transient=True) as live:
        yield lambda: live.update(_table(running))


def _table(running: dict[str, Following]) -> RenderableType:
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
