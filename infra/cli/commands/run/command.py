"""``deltarelay run``: applies new changes and stops, or follows the sources."""

from __future__ import annotations

import logging
import threading
import time
from typing import Annotated, Any, NoReturn

import typer

from cdf.errors import CdfError, ConfigError, Paused
from cdf.results import RunResult, Step, Totals
from infra.cli.batch import OpenPipeline, process_pipelines_in_parallel
from infra.cli.commands.run.follow import follow_pipelines
from infra.cli.commands.run.progress import RunProgress
from infra.cli.commands.run.summary import format_result, print_summary
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Logs, Pipelines, Until, Verbose
from infra.cli.project import load_project, select_pipelines
from infra.logs import LogFormat, configure
from infra.monitoring.observers import Listen, Observers, observe
from infra.output import DONE, Output, combine_exit_codes, to_cdf_error
from infra.retry import RETRY_SECONDS, TRIES, retry

__all__ = ["run"]

log = logging.getLogger("deltarelay.run")

DEFAULT_JOBS = 4
"""Pipelines that run in parallel by default: while one waits for its database, another can read its table."""


def run(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    until: Until = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Do not stop: replicate new changes until Ctrl-C or SIGTERM.")
    ] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval-seconds", min=0, help="With --follow: seconds between checks for new commits.")
    ] = 1.0,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="Rebuild the targets of the pipelines named with -p from a snapshot, then apply later changes.",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help=f"Maximum number of pipelines to run in parallel (default: {DEFAULT_JOBS}).",
        ),
    ] = None,
    retry_seconds: Annotated[
        float | None,
        typer.Option(
            "--retry-seconds",
            min=0,
            help=f"Retry temporary failures, with at most {TRIES} attempts and back-off pauses of this many seconds in "
            f"total (default: {RETRY_SECONDS:.0f}; 0: no retries).",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="With --follow: serve /metrics (Prometheus), /healthz and /readyz on this port (0: any free one).",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(help="The address on which they are served; in a container use 0.0.0.0. There is no login."),
    ] = "127.0.0.1",
    as_json: Json = False,
    verbose: Verbose = False,
    log_format: Logs = LogFormat.auto,
    debug: Debug = False,
) -> None:
    """Apply new changes to the targets, window by window, and stop; or follow the sources continuously.

    A failed pipeline does not stop the others. Applied changes are kept; the next run continues after them.
    """
    configure(log_format, long_running=follow, verbose=verbose, debug=debug)
    output = Output("run", as_json, debug)
    if reload:
        _check_reload(pipeline, until=until, follow=follow)
    if follow:
        _check_follow(until=until, jobs=jobs, retry_seconds=retry_seconds)
        results, codes = follow_pipelines(
            output,
            config,
            pipeline,
            interval_seconds=interval_seconds,
            listen=None if metrics_port is None else Listen(metrics_host, metrics_port),
        )
        _finish(output, results, codes)
    if metrics_port is not None:
        raise typer.BadParameter(
            "needs --follow: a run that ends writes `metrics.textfile`", param_hint="--metrics-port"
        )

    project = load_project(config)
    with (
        observe(project, select_pipelines(project, pipeline), has_metrics=True) as observers,
        RunProgress(output) as progress,
    ):
        runs = _Runs(
            output,
            progress,
            observers,
            until,
            reload=reload,
            retry_seconds=RETRY_SECONDS if retry_seconds is None else retry_seconds,
        )
        results, codes = process_pipelines_in_parallel(
            output,
            project,
            pipeline,
            runs.run_pipeline,
            jobs=jobs or DEFAULT_JOBS,
            try_without_spark=None if reload or until is not None else runs.run_if_idle,
        )
    print_summary(output, results)
    _finish(output, results, codes)


class _Runs:
    """Runs single pipelines, and retries temporary failures."""

    def __init__(
        self,
        output: Output,
        progress: RunProgress,
        observers: Observers,
        until: str | None,
        *,
        reload: bool,
        retry_seconds: float,
    ) -> None:
        self._output, self._progress, self._observers = output, progress, observers
        self._until, self._reload, self._retry_seconds = until, reload, retry_seconds

    def run_if_idle(self, name: str, open_pipeline: OpenPipeline) -> tuple[RunResult, int] | None:
        """Run the pipeline if it has nothing to apply. None: in doubt. Raises Paused, as ``run_pipeline`` does."""
        error: Paused | None = None
        try:
            with open_pipeline() as pipeline:
                result = pipeline.run()
        except Paused as paused:
            error = paused
        except Exception as doubt:
            log.debug("needs Spark", extra={"pipeline": name, "reason": type(doubt).__name__})
            return None
        self._observers.begin(name)
        self._observers.end(name, error)
        if error is not None:
            raise error
        self._progress.line(format_result(result))
        return result, DONE

    def run_pipeline(self, name: str, open_pipeline: OpenPipeline) -> tuple[RunResult, int]:
        self._observers.begin(name)
        try:
            result = self._run(name, open_pipeline)
        except Exception as error:
            self._observers.end(name, to_cdf_error(error))
            raise
        self._observers.end(name, None)
        return result, DONE

    def _run(self, name: str, open_pipeline: OpenPipeline) -> RunResult:
        began, totals, progressed, retries = time.monotonic(), Totals(), threading.Event(), -1
        with self._progress.show_steps(name) as show_step:

            def record_step(step: Step) -> None:
                progressed.set()
                totals.add(step)
                self._observers.record_step(name, step)
                show_step(step)

            def run_once() -> RunResult:
                nonlocal retries
                retries = 0 if progressed.is_set() else retries + 1
                progressed.clear()
                with open_pipeline() as pipeline:
                    if self._reload and totals.loaded_rows is None:
                        return pipeline.reload(progress=record_step, retries=retries)
                    return pipeline.run(self._until, progress=record_step, retries=retries)

            def announce_retry(error: CdfError, number: int, seconds: float) -> None:
                self._output.note(
                    f"{name}: {error.message} ({error.code}); attempt {number} of {TRIES} in {seconds:.1f} s"
                )

            last = retry(
                run_once, seconds=self._retry_seconds, has_progressed=progressed.is_set, on_retry=announce_retry
            )
        # The totals cover all attempts: what a failed attempt applied was applied by this command
        result = totals.result(name, last.table, last.position, last.latest_version, time.monotonic() - began)
        self._progress.line(format_result(result))
        return result


def _check_follow(*, until: Until, jobs: int | None, retry_seconds: float | None) -> None:
    for option, given, why in (
        ("--until", until, "--follow does not end by itself"),
        ("--jobs", jobs, "--follow always follows all pipelines in parallel"),
        ("--retry-seconds", retry_seconds, "--follow retries without a limit"),
    ):
        if given is not None:
            raise typer.BadParameter(f"{why}: leave out {option}", param_hint=option)


def _check_reload(pipelines: Pipelines, *, until: Until, follow: bool) -> None:
    """--reload loses no data, so it needs no confirmation; it needs -p, so that it does not copy every table by accident."""
    if not pipelines:
        raise ConfigError(
            "--reload rebuilds whole targets, so it needs the names of pipelines", hint="name them with -p"
        )
    if until is not None or follow:
        other = "--follow" if follow else "--until"
        raise ConfigError(
            f"--reload applies changes up to the latest version and stops; it cannot be combined with {other}",
            hint=f"run {other} afterwards",
        )


def _finish(output: Output, results: list[dict[str, Any]], codes: list[int]) -> NoReturn:
    code = combine_exit_codes(codes)
    if len(codes) > 1 and code != DONE:
        output.line(f"{sum(code != DONE for code in codes)} of {len(codes)} pipelines failed")
    output.result({"pipelines": results}, exit_code=code)
    raise typer.Exit(code)
