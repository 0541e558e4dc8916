"""The steps of running pipelines as they happen: progress bars on a terminal, a line per step elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from cdf.results import Step
from infra.cli.commands.run.summary import format_step
from infra.logs import bind, is_json, log_step, log_step_details
from infra.output import Output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["RunProgress"]


class RunProgress:
    """Shows the steps of several pipelines that run in parallel."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bars: Progress | None = None
        self._delayed_lines: list[str] = []

    def __enter__(self) -> RunProgress:
        if (console := self._output.progress_console) is not None:
            self._bars = _create_bars(console)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()
        for text in self._delayed_lines:
            self._output.line(text)

    def line(self, text: str) -> None:
        """Print a line of the result; if bars are drawn on the terminal, after they have been removed."""
        if self._bars is None:
            self._output.line(text)
        else:
            self._delayed_lines.append(text)

    def show_steps(self, name: str) -> AbstractContextManager[Callable[[Step], None]]:
        """Return a context in which a function shows each step of the pipeline."""
        log = bind(pipeline=name)
        if is_json():
            return nullcontext(lambda step: log_step(log, step))
        if self._bars is not None:
            return self._draw_bar(self._bars, name)

        def print_step(step: Step) -> None:
            self._output.note(f"{name}: {format_step(step)}")
            log_step_details(log, step)

        return nullcontext(print_step)

    @contextmanager
    def _draw_bar(self, bars: Progress, name: str) -> Iterator[Callable[[Step], None]]:
        log, first_versions = bind(pipeline=name), list[int]()
        bars.start()  # only after Spark has started: it writes to the terminal too
        task = bars.add_task(name, total=None, doing="starting")

        def show_step(step: Step) -> None:
            first_versions.append(step.first)
            total = max(1, step.until - first_versions[0] + 1)
            completed = step.last - first_versions[0] + 1
            bars.update(task, total=total, completed=completed, doing=f"version {step.last} of {step.until}")
            bars.console.print(f"{name}: {format_step(step)}", markup=False, highlight=False)
            log_step_details(log, step)

        try:
            yield show_step
        finally:
            bars.remove_task(task)


def _create_bars(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,  # rich would redirect data to the progress console
    )
