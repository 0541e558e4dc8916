"""``deltarelay run``: catch up and stop, or follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cdf.errors import ConfigError
from infra.cli.context import DEFAULT_CONFIG, Config, Debug, Json, Logs, Pipelines, Until, Verbose
from infra.cli.each import each_pipeline
from infra.cli.follow import follow as follow_all
from infra.cli.output import DONE, Output, overall
from infra.logs import LogFormat, bind, configure, json_lines, log_details, log_step

if TYPE_CHECKING:
    from cdf import Pipeline, RunResult, Step

__all__ = ["run", "follow_progress"]


def run(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    until: Until = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Do not stop: follow the tables until Ctrl-C or TERM.")
    ] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval-seconds", min=0, help="With --follow: how often to look for something new.")
    ] = 1.0,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="With --follow: where Spark keeps its own notes while it runs; nothing in it is needed afterwards "
            "(default: a temporary folder; on a cluster name a shared one).",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Make the targets of the pipelines named with -p anew from a snapshot, then catch up."
        ),
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log_format: Logs = LogFormat.auto,
    debug: Debug = False,
) -> None:
    """Bring the targets up to date with their sources, window by window, and stop; or stay and follow them.

    A pipeline that fails does not stop the others. What was applied stays; the next run goes on after it.
    """
    from infra.config.load import load

    configure(log_format, long_running=follow, verbose=verbose, debug=debug)
    output = Output("run", as_json, debug)
    if reload:
        _check_reload(pipeline, until=until, follow=follow)
    if follow:
        if until is not None:
            raise typer.BadParameter("--follow has no end: leave out --until", param_hint="--until")
        results, codes = follow_all(output, config, pipeline, interval_seconds=interval_seconds, checkpoint=checkpoint)
        _finish(output, results, codes)

    def work(one: Pipeline) -> tuple[RunResult, int]:
        with follow_progress(output, one.name) as progress:
            result = one.reload(progress=progress) if reload else one.run(until, progress=progress)
        output.line(summary(result))
        return result, DONE

    _finish(output, *each_pipeline(output, load(config), pipeline, work))


def _check_reload(pipelines: Pipelines, *, until: Until, follow: bool) -> None:
    """Nothing is asked: nothing is lost. But a whole table is copied, so nobody does it to every target by accident."""
    if not pipelines:
        raise ConfigError("--reload makes whole targets anew", hint="name the pipelines that it is meant for, with -p")
    if until is not None or follow:
        other = "--follow" if follow else "--until"
        raise ConfigError(
            f"--reload goes to the latest version and stops; {other} does not fit", hint=f"run {other} after it"
        )


def _finish(output: Output, results: list[dict[str, Any]], codes: list[int]) -> NoReturn:
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
    console, log = output.progress_console, bind(pipeline=name)
    if json_lines():
        yield lambda step: log_step(log, step)
        return
    if console is None:

        def tell(step: Step) -> None:
            output.note(f"{name}: {describe_step(step)}")
            log_details(log, step)

        yield tell
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
            log_details(log, step)

        yield show


def describe_step(step: Step) -> str:
    applied = step.applied
    seconds = sum(applied.seconds.values())
    if step.kind == "load":
        way = {"swap": " into a new table", "merge": ", only what differed was written"}
        how = next((text for name, text in way.items() if name in applied.seconds), "")
        return f"copied version {step.last}, {applied.inserts} rows{how} ({seconds:.2f} s)"
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
