"""``deltarelay run``: catch up and stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from infra.cli.context import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, Until
from infra.cli.each import each_pipeline
from infra.cli.output import DONE, Output, overall

if TYPE_CHECKING:
    from cdf import Pipeline, RunResult, Step

__all__ = ["run", "follow_progress"]


def run(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    until: Until = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Bring the targets up to date with their sources, window by window, and stop.

    A pipeline that fails does not stop the others. What was applied stays; the next run goes on after it.
    """
    output = Output("run", as_json, debug)

    def work(one: Pipeline) -> tuple[RunResult, int]:
        with follow_progress(output, one.name) as progress:
            result = one.run(until, progress=progress)
        output.line(summary(result))
        return result, DONE

    results, codes = each_pipeline(output, config, pipeline, work)
    code = overall(codes)
    if len(codes) > 1 and code != DONE:
        output.line(f"{sum(one != DONE for one in codes)} of {len(codes)} pipelines failed")
    output.result({"pipelines": results}, exit_code=code)
    raise typer.Exit(code)


def summary(result: RunResult) -> str:
    parts = []
    if result.loaded_rows is not None:
        parts.append(f"copied {result.loaded_rows} rows")
    if result.windows:
        parts.append(
            f"{result.windows} window{'s' if result.windows != 1 else ''}: {result.inserts} inserts, "
            f"{result.updates} updates, {result.deletes} deletes"
        )
    if result.conflicts.total:
        parts.append(f"{result.conflicts.total} conflicts")
    done = ", ".join(parts) or "nothing to do"
    return f"{result.pipeline}: at version {result.position} ({done}; {result.seconds:.1f} s)"


@contextmanager
def follow_progress(output: Output, name: str) -> Iterator[Callable[[Step], None]]:
    """A moving bar on a terminal, a plain line per step elsewhere."""
    console = output.progress_console
    if console is None:
        yield lambda step: output.note(f"{name}: {describe_step(step)}")
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[doing]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None, doing="starting")
        began: list[int] = []

        def show(step: Step) -> None:
            began.append(step.first)
            total = max(1, step.until - began[0] + 1)
            done = step.last - began[0] + 1
            bar.update(task, total=total, completed=done, doing=f"version {step.last} of {step.until}")
            bar.console.print(f"{name}: {describe_step(step)}", markup=False, highlight=False)

        yield show


def describe_step(step: Step) -> str:
    applied = step.applied
    seconds = sum(applied.seconds.values())
    if step.kind == "load":
        return f"copied version {step.last}, {applied.inserts} rows ({seconds:.2f} s)"
    versions = f"version {step.first}" if step.first == step.last else f"versions {step.first}..{step.last}"
    text = (
        f"{versions}: {applied.inserts} inserts, {applied.updates} updates, {applied.deletes} deletes ({seconds:.2f} s)"
    )
    if applied.ddl:
        text += f", {len(applied.ddl)} columns added"
    if applied.conflicts.total:
        counts = [f"{count} {kind}" for kind, count in applied.conflicts.to_dict().items() if count]
        text += f", conflicts: {', '.join(counts)}"
    return text
