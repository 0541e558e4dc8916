"""``deltarelay pause``, ``resume`` and ``approve``: decisions about a pipeline, stored beside its position. No JVM."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from cdf.os_user import os_user
from cdf.result import Result
from cdf.sink import (
    Approval,
    BrakeStop,
    Controllable,
    ControlRecord,
    Controls,
    Pause,
    Position,
    Sink,
    Tracked,
    at_version,
)
from cdf.sink.controls import approve_window
from cdf.sink.controls import pause as pause_controls
from cdf.sink.controls import resume as resume_controls
from infra.cli.batch import process_targets
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_project
from infra.output import Output, combine_exit_codes

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["approve", "pause", "resume"]


@dataclass(frozen=True, slots=True)
class PipelineControls(Result):
    """What is decided about one pipeline, after the command."""

    pipeline: str
    paused: Pause | None
    approvals: tuple[Approval, ...]
    stopped: BrakeStop | None
    records: tuple[ControlRecord, ...]


Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Pipelines, or `tables` entries.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides (default: the user of the operating system).")]


def pause(
    names: Names,
    reason: Annotated[str, typer.Option("--reason", help="Why; every runner and `status` show it.")],
    by: By = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Pause pipelines: every runner stops before its next window, until `resume`. The position stays where it is."""
    now, user = dt.datetime.now(dt.UTC), by or os_user()
    _change(
        Output("pause", as_json, debug),
        load_project(config),
        names,
        lambda controls: pause_controls(controls, now=now, by=user, reason=_require_text(reason, "--reason")),
        lambda name: f"{name}: paused; `deltarelay resume {name}` continues it",
    )


def resume(
    names: Names, by: By = None, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False
) -> None:
    """Continue paused pipelines. A follower continues by itself; otherwise the next run does."""
    now, user = dt.datetime.now(dt.UTC), by or os_user()
    _change(
        Output("resume", as_json, debug),
        load_project(config),
        names,
        lambda controls: controls if controls.paused is None else resume_controls(controls, now=now, by=user),
        lambda name: f"{name}: resumed",
    )


def approve(
    name: Annotated[str, typer.Argument(help="The pipeline.")],
    window: Annotated[str, typer.Option("--window", metavar="A..B", help="The versions, as the error shows them.")],
    by: Annotated[str, typer.Option("--by", help="Who approves; recorded beside the position.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let exactly one window pass that a brake stopped. The next run applies it; the approval is then used up."""
    output = Output("approve", as_json, debug)
    bounds = re.fullmatch(r"(\d+)\.\.(\d+)", window)
    if bounds is None or int(bounds[1]) > int(bounds[2]):
        raise ConfigError(f"`{window}` is not a window", hint="write the first and the last version: --window 12..15")
    first, last = int(bounds[1]), int(bounds[2])
    project = load_project(config)
    project.pipeline(name)  # one pipeline, not a `tables` entry
    table_id = _find_table_id(project.build_sink(name), name, first, last)
    approval = Approval(first, last, table_id, dt.datetime.now(dt.UTC), _require_text(by, "--by"))
    _change(
        output,
        project,
        [name],
        lambda controls: approve_window(controls, approval),
        lambda one: f"{one}: the window {window} is approved; the next run applies it",
    )


def _find_table_id(sink: Sink, name: str, first: int, last: int) -> str:
    """The source table whose window this is, if it is the next one. A target that was never written has no position;
    there it is the window that a brake has stopped."""
    position = sink.position() if isinstance(sink, Tracked) else Position()
    table_id = position.table_id if position.version is not None and position.version + 1 == first else None
    if position.version is None and isinstance(sink, Controllable):
        stop = sink.controls().stopped
        table_id = stop.table_id if stop is not None and (stop.first, stop.last) == (first, last) else None
    if table_id is None:
        raise ConfigError(
            f"the window {first}..{last} is not the next one of {name}: its target {at_version(position.version)}",
            hint="`deltarelay plan` shows the windows of the next run",
        )
    return table_id


def _change(
    output: Output,
    project: Project,
    names: list[str],
    change: Callable[[Controls], Controls],
    describe: Callable[[str], str],
) -> None:
    def change_one(name: str) -> PipelineControls:
        sink = project.build_sink(name)
        if not isinstance(sink, Controllable):
            raise _not_controllable(name)
        controls = sink.change_controls(change)
        output.line(describe(name))
        return PipelineControls(name, controls.paused, controls.approvals, controls.stopped, controls.records)

    results, codes = process_targets(output, project, names, change_one)
    output.finish({"pipelines": results}, combine_exit_codes(codes))


def _require_text(text: str, option: str) -> str:
    if not text.strip():
        raise ConfigError(f"{option} is empty", hint=f"write some words after {option}")
    return text.strip()


def _not_controllable(name: str) -> ConfigError:
    return ConfigError(
        f"the sink of {name} stores no pauses and approvals", hint="stop its runner, or raise the limits under `brakes`"
    )
