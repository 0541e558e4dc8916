"""``deltarelay status``: the position and lag of every pipeline. Starts no JVM."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import CdfError, ConfigError, SourceError
from cdf.sink import Controls
from infra.cli.limit_options import StatusLimitOptions
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, expand_options
from infra.cli.project import load_project, select_pipelines
from infra.diagnostics.evidence import count_overdue, has_anchors, read_anchoring
from infra.output import DIFFERENCE, DONE, FAILED, TEMPORARY, Output, combine_exit_codes, exit_code_for

if TYPE_CHECKING:
    from infra.config.limits import Limits
    from infra.config.models import Project
    from infra.diagnostics.status import PipelineStatus
    from infra.monitoring.health import Incident

__all__ = ["status"]

COLUMNS = ("pipeline", "state", "position", "latest", "lag (versions)", "lag (seconds)", "feed files last (days)")


@dataclass(frozen=True, slots=True)
class _Verdict:
    incidents: Sequence[Incident]
    unread: CdfError | None = None
    """Why what a limit needs is unknown: an anchor or the register of erasures, for example, cannot be read."""

    def to_dict(self) -> dict[str, Any]:
        unread = None if self.unread is None else self.unread.to_dict()
        return {"incidents": [one.to_dict() for one in self.incidents], "unread": unread}


@expand_options
def status(
    *,
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh the table until Ctrl-C.")] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval-seconds", min=0.1, help="With --watch: seconds between refreshes.")
    ] = 2.0,
    limits: StatusLimitOptions,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show position, latest version, lag, and for how many days the feed files that are still needed will exist.

    With a limit, the command exits with 3 and the reason if a pipeline exceeds it, or is stuck.
    """
    if watch and as_json:
        raise typer.BadParameter(
            "cannot be combined with --json: call `status --json` repeatedly", param_hint="--watch"
        )
    judged_by = limits.read()
    output = Output("status", as_json, debug)
    project = load_project(config)
    names = select_pipelines(project, pipeline)
    _check_limits(project, names, judged_by)
    try:
        while watch:
            output.clear()
            output.line(time.strftime("%H:%M:%S  (press Ctrl-C to stop)"))
            _print_statuses(output, [_judge(project, name, judged_by) for name in names])
            _print_verdict(output, "erasure requests", _judge_erasures(project, judged_by))
            time.sleep(interval_seconds)
    except KeyboardInterrupt:
        raise typer.Exit(DONE) from None
    judged = [_judge(project, name, judged_by) for name in names]
    erasures = _judge_erasures(project, judged_by)
    _print_statuses(output, judged)
    _print_verdict(output, "erasure requests", erasures)
    codes = [_exit_code_of(found, verdict if limits.given else _Verdict(())) for found, verdict in judged]
    output.finish(
        {
            "pipelines": [{**found.to_dict(), **verdict.to_dict()} for found, verdict in judged],
            "erasures": erasures.to_dict(),
        },
        combine_exit_codes([*codes, _exit_code_of(None, erasures)]),
    )


def _check_limits(project: Project, names: Sequence[str], limits: Limits) -> None:
    """A limit that nothing can exceed is a mistake of the command."""
    if limits.max_unanchored is not None and not any(has_anchors(project, name) for name in names):
        raise ConfigError(
            "--max-unanchored: no pipeline of this command writes an audit trail with anchors",
            hint="add `anchors` to the connection of the trail, or leave the option out",
        )
    if limits.max_overdue_erasures is not None and project.erasure is None:
        raise ConfigError(
            "--max-overdue-erasures: the configuration has no block `erasure`",
            hint="add the block, or leave the option out",
        )


def _judge(project: Project, name: str, limits: Limits) -> tuple[PipelineStatus, _Verdict]:
    from infra.diagnostics.status import read_pipeline_status
    from infra.monitoring.health import describe_unknown, find_incidents, judge_anchoring

    now = dt.datetime.now(dt.UTC)
    found = read_pipeline_status(project, name, now=now, stuck_after=limits.stuck_after)
    incidents = find_incidents(found, limits, now)
    unread: CdfError | None = None
    if (unknown := describe_unknown(found, limits)) is not None:
        unread = SourceError(unknown, hint="the limits that need it cannot be judged; leave them out for this pipeline")
    if limits.max_unanchored is not None and has_anchors(project, name):
        try:
            incidents += judge_anchoring(read_anchoring(project, name), limits, now)
        except CdfError as error:
            unread = error
    return found, _Verdict(incidents, unread)


def _judge_erasures(project: Project, limits: Limits) -> _Verdict:
    from infra.monitoring.health import judge_erasures

    if limits.max_overdue_erasures is None:
        return _Verdict(())
    try:
        return _Verdict(judge_erasures(count_overdue(project), limits))
    except CdfError as error:
        return _Verdict((), error)


def _exit_code_of(found: PipelineStatus | None, verdict: _Verdict) -> int:
    if found is not None and found.code is not None:
        return TEMPORARY if found.transient else FAILED
    if verdict.incidents or (found is not None and found.state == "stopped_by_brake"):
        return DIFFERENCE
    return DONE if verdict.unread is None else exit_code_for(verdict.unread)


def _print_statuses(output: Output, judged: Sequence[tuple[PipelineStatus, _Verdict]]) -> None:
    rows = [
        (
            found.pipeline,
            found.state.replace("_", " "),
            found.position,
            found.latest_version,
            found.lag_versions,
            None if found.lag_seconds is None else f"{found.lag_seconds:.0f}",
            found.feed_files_days,
        )
        for found, _ in judged
    ]
    output.table(COLUMNS, rows)
    for found, verdict in judged:
        if found.last:
            output.line(f"{found.pipeline}: {_format_last_step(found.last)}")
        for line in _describe_controls(found):
            output.line(f"{found.pipeline}: {line}")
        if found.error:
            output.line(f"{found.pipeline}: {found.error}" + (f" ({found.hint})" if found.hint else ""))
        _print_verdict(output, found.pipeline, verdict)
        if found.note:
            output.line(f"{found.pipeline}: {found.note}", style="yellow")


def _print_verdict(output: Output, name: str, verdict: _Verdict) -> None:
    for incident in verdict.incidents:
        if incident.kind not in ("failed", "unreachable", "stopped_by_brake"):  # other lines say these
            output.line(f"{name}: {incident.kind.replace('_', ' ')}: {incident.text}", style="yellow")
    if (error := verdict.unread) is not None:
        output.line(f"{name}: unknown: {error.message}" + (f" ({error.hint})" if error.hint else ""))


def _describe_controls(found: PipelineStatus) -> Iterator[str]:
    controls = found.controls or Controls()
    if (pause := controls.paused) is not None:
        yield (
            f"paused since {pause.at:%Y-%m-%d %H:%M} UTC by {pause.by}: {pause.reason} "
            f"(`deltarelay resume {found.pipeline}`)"
        )
    if (stop := controls.stopped) is not None and found.state == "stopped_by_brake":
        yield (
            f"since {stop.at:%Y-%m-%d %H:%M} UTC: {stop.message} "
            f"(`deltarelay approve {found.pipeline} --window {stop.first}..{stop.last} --by YOU`, or repair the source)"
        )


def _format_last_step(last: Mapping[str, Any]) -> str:
    """Describe the last step of ``run --follow``: row counts, throughput, and seconds per phase."""
    # Another release may have written the record, with other fields
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in last.get("seconds", {}).items())
    rows = [
        f"{last[name]:,} rows {word}"
        for name, word in (("rows_in", "in"), ("rows_applied", "applied"))
        if last.get(name) is not None
    ]
    speed = [f"{last['rows_per_second']:,.0f} rows/s ({seconds})"] if last.get("rows_per_second") is not None else []
    return f"last step at {last.get('at', '?')}: {', '.join([*rows, *speed])}"
