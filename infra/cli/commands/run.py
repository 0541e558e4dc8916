"""``deltarelay run``: catch up and stop, or follow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cdf.errors import CdfError, ConfigError
from cdf.results import RunResult, Step, Totals
from infra.cli.batch import Use, several_pipelines
from infra.cli.commands.follow import follow as follow_all
from infra.cli.output import DONE, Output, counted, overall
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Logs, Pipelines, Until, Verbose
from infra.logs import LogFormat, bind, configure, is_json, log_step, log_step_details
from infra.retry import RETRY_SECONDS, TRIES, retry

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["run"]

DEFAULT_JOBS = 4
"""Pipelines at a time, where nothing else is said. While one waits for the database another reads its table."""


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
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help=f"So many pipelines at a time (default: up to {DEFAULT_JOBS})."),
    ] = None,
    retry_seconds: Annotated[
        float | None,
        typer.Option(
            "--retry-seconds",
            min=0,
            help=f"What is temporarily in the way is tried again, {TRIES} times in all, with pauses of so many seconds "
            f"together (default: {RETRY_SECONDS:.0f}; 0: not at all).",
        ),
    ] = None,
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
        _check_follow(until=until, jobs=jobs, retry_seconds=retry_seconds)
        results, codes = follow_all(output, config, pipeline, interval_seconds=interval_seconds, checkpoint=checkpoint)
        _finish(output, results, codes)

    project = load(config)
    with _Shown(output) as shown:
        runs = _Runs(
            output, shown, until, reload=reload, retry_seconds=RETRY_SECONDS if retry_seconds is None else retry_seconds
        )
        results, codes = several_pipelines(output, project, pipeline, runs.one, jobs=jobs or DEFAULT_JOBS)
    _summarize(output, results)
    _finish(output, results, codes)


class _Runs:
    """Runs of single pipelines, each tried again where something temporary is in the way."""

    def __init__(self, output: Output, shown: _Shown, until: str | None, *, reload: bool, retry_seconds: float) -> None:
        self._output, self._shown = output, shown
        self._until, self._reload, self._retry_seconds = until, reload, retry_seconds

    def one(self, name: str, use: Use) -> tuple[RunResult, int]:
        began, totals, moved, retries = time.monotonic(), Totals(), threading.Event(), -1
        with self._shown.steps_of(name) as show:

            def done(step: Step) -> None:
                moved.set()
                totals.add(step)
                show(step)

            def once() -> RunResult:
                nonlocal retries
                retries = 0 if moved.is_set() else retries + 1
                moved.clear()
                with use() as pipeline:
                    if self._reload and totals.loaded_rows is None:
                        return pipeline.reload(progress=done, retries=retries)
                    return pipeline.run(self._until, progress=done, retries=retries)

            def tell(error: CdfError, number: int, seconds: float) -> None:
                self._output.note(f"{name}: {error.message} ({error.code}); try {number} of {TRIES} in {seconds:.1f} s")

            last = retry(once, seconds=self._retry_seconds, has_progressed=moved.is_set, on_retry=tell)
        # Of all tries: what an earlier one applied was applied by this command
        result = totals.result(name, last.table, last.position, last.latest_version, time.monotonic() - began)
        self._shown.line(summary(result))
        return result, DONE


def _check_follow(*, until: Until, jobs: int | None, retry_seconds: float | None) -> None:
    for option, given, why in (
        ("--until", until, "--follow has no end"),
        ("--jobs", jobs, "--follow follows all at the same time"),
        ("--retry-seconds", retry_seconds, "--follow tries again for as long as it lasts"),
    ):
        if given is not None:
            raise typer.BadParameter(f"{why}: leave out {option}", param_hint=option)


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
    if result.rejected:
        parts.append(f"{counted(result.rejected, 'row')} set aside: `deltarelay deadletter list`")
    done = ", ".join(parts) or "nothing to do"
    return f"{result.pipeline}: at version {result.position} ({done}; {result.seconds:.1f} s)"


def outcome(entry: Mapping[str, Any]) -> str:
    """What became of one pipeline, in a word or two."""
    if (error := entry.get("error")) is not None:
        return f"{'temporary' if error['transient'] else 'failed'}: {error['code']}"
    if entry["loaded_rows"] is not None:
        return "copied"
    return "applied" if entry["windows"] else "up to date"


def _summarize(output: Output, entries: Sequence[Mapping[str, Any]]) -> None:
    """All of several pipelines in the order of the file: their lines came as they ended."""
    if len(entries) < 2:
        return
    output.line()
    rows = []
    for entry in entries:
        changes = None if "error" in entry else sum(entry[kind] for kind in ("inserts", "updates", "deletes"))
        copied = entry.get("loaded_rows")
        rows.append((entry["pipeline"], outcome(entry), entry.get("position"), copied, changes, entry.get("seconds")))
    columns = ("pipeline", "outcome", "version", "rows copied", "changes", "seconds")
    output.table(columns, rows, numbers=columns[2:])
    counts: dict[str, int] = {}
    for entry in entries:
        counts[outcome(entry)] = counts.get(outcome(entry), 0) + 1
    output.line(f"{counted(len(entries), 'pipeline')}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))


class _Shown:
    """The steps of pipelines, several at a time: moving bars on a terminal, a plain line per step elsewhere."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bars: Progress | None = None
        self._kept: list[str] = []

    def __enter__(self) -> _Shown:
        if (console := self._output.progress_console) is not None:
            self._bars = _bars(console)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()
        for text in self._kept:
            self._output.line(text)

    def line(self, text: str) -> None:
        """A line of the answer; while bars move on the same terminal it waits for their end."""
        if self._bars is None:
            self._output.line(text)
        else:
            self._kept.append(text)

    def steps_of(self, name: str) -> AbstractContextManager[Callable[[Step], None]]:
        log = bind(pipeline=name)
        if is_json():
            return nullcontext(lambda step: log_step(log, step))
        if self._bars is not None:
            return self._bar(self._bars, name)

        def tell(step: Step) -> None:
            self._output.note(f"{name}: {describe_step(step)}")
            log_step_details(log, step)

        return nullcontext(tell)

    @contextmanager
    def _bar(self, bars: Progress, name: str) -> Iterator[Callable[[Step], None]]:
        log, began = bind(pipeline=name), list[int]()
        bars.start()  # not before Spark has started: it writes to the terminal too
        task = bars.add_task(name, total=None, doing="starting")

        def show(step: Step) -> None:
            began.append(step.first)
            total = max(1, step.until - began[0] + 1)
            done = step.last - began[0] + 1
            bars.update(task, total=total, completed=done, doing=f"version {step.last} of {step.until}")
            bars.console.print(f"{name}: {describe_step(step)}", markup=False, highlight=False)
            log_step_details(log, step)

        try:
            yield show
        finally:
            bars.remove_task(task)


def _bars(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,  # it would turn data into messages
    )


def describe_step(step: Step) -> str:
    applied = step.applied
    seconds = sum(applied.seconds.values())
    if step.kind == "load":
        way = {"swap": " into a new table", "merge": ", only what differed was written"}
        how = next((text for name, text in way.items() if name in applied.seconds), "")
        aside = _set_aside(applied.rejected)
        return f"copied version {step.last}, {applied.inserts} rows{how} ({seconds:.2f} s){aside}"
    versions = f"version {step.first}" if step.first == step.last else f"versions {step.first}..{step.last}"
    copied = "" if applied.copied is None else f", by a copy of the table ({applied.copied} rows)"
    text = (
        f"{versions}: {applied.inserts} inserts, {applied.updates} updates, {applied.deletes} deletes{copied} "
        f"({seconds:.2f} s)"
    )
    if applied.ddl:
        text += f", the target's columns altered ({counted(len(applied.ddl), 'statement')})"
    if applied.conflicts.total:
        counts = [f"{count} {kind}" for kind, count in applied.conflicts.to_dict().items() if count]
        text += f", conflicts: {', '.join(counts)}"
    return text + _set_aside(applied.rejected)


def _set_aside(rejected: int) -> str:
    return f", {counted(rejected, 'row')} of them set aside" if rejected else ""
