"""``deltarelay position``: shows the positions of targets, and moves them manually."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError, TargetNotReady, VerificationError
from cdf.result import Result
from cdf.sink import Bounds, Movable, PositionRecord, Standing, Tracked
from infra.cli.batch import process_targets
from infra.cli.confirm import confirm, require_terminal
from infra.cli.options import (
    DEFAULT_CONFIG,
    Config,
    Debug,
    Json,
    OnePipeline,
    Pipelines,
    Yes,
    expand_options,
)
from infra.cli.project import load_project
from infra.output import DIFFERENCE, Output, combine_exit_codes
from infra.runtime import build_pipeline, spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from cdf.pipeline.move_position import Action, Move
    from infra.config.models import Project

__all__ = ["PositionShown", "app"]

app = typer.Typer(help="Show the positions of targets, and move them manually.", no_args_is_help=True)

RECORDS_SHOWN = 10

Version = Annotated[int, typer.Argument(help="A version of the source.")]
Reason = Annotated[str | None, typer.Option("--reason", help="The reason; stored with the record of the change.")]


@dataclass(frozen=True, slots=True)
class PositionShown(Result):
    pipeline: str
    source: str
    position: int | None
    table_id: str | None
    pending: Bounds | None
    epoch: int
    lease_holder: str | None
    lease_until: dt.datetime | None
    updated_at: dt.datetime | None
    records: tuple[PositionRecord, ...]


# ── show ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def show(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Show the position of each target, the holder of its lease, and manual changes of the position. Starts no JVM."""
    output = Output("position show", as_json, debug)
    project = load_project(config)
    positions: list[PositionShown] = []

    def read_position(name: str) -> PositionShown:
        positions.append(found := _read_position(project, name))
        return found

    results, codes = process_targets(output, project, pipeline, read_position)
    _print_positions(output, positions)
    output.finish({"pipelines": results}, combine_exit_codes(codes))


def _read_position(project: Project, name: str) -> PositionShown:
    sink = project.build_sink(name)
    if isinstance(sink, Movable):
        state = sink.standing(most_records=RECORDS_SHOWN)
    elif isinstance(sink, Tracked):
        state = Standing(position=sink.position())
    else:
        raise TargetNotReady(
            f"the sink of {name} reports its position only during a run", hint="`deltarelay plan` shows it"
        )
    return PositionShown(
        pipeline=name,
        source=project.pipeline(name).source.table,
        position=state.position.version,
        table_id=state.position.table_id,
        pending=state.position.pending,
        epoch=state.epoch,
        lease_holder=state.lease_holder,
        lease_until=state.lease_until,
        updated_at=state.updated_at,
        records=state.records,
    )


def _print_positions(output: Output, positions: list[PositionShown]) -> None:
    columns = ("pipeline", "position", "table id", "epoch", "lease", "moved at")
    rows = [
        (
            found.pipeline,
            found.position,
            found.table_id,
            found.epoch,
            "free" if found.lease_until is None else f"held until {_format_time(found.lease_until)}",
            None if found.updated_at is None else _format_time(found.updated_at),
        )
        for found in positions
    ]
    if rows:
        output.table(columns, rows, numbers=("position", "epoch"))
    for found in positions:
        for record in found.records:
            before = "no position" if record.from_version is None else record.from_version
            reason = f": {record.reason}" if record.reason else ""
            output.line(
                f"{found.pipeline}: {_format_time(record.at)} {record.action} from {before} to {record.to_version} "
                f"by {record.by}{reason}"
            )


def _format_time(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# ── set, rewind, adopt ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """The options of every command that moves a position."""

    pipeline: OnePipeline
    reason: Reason = None
    yes: Yes = False
    config: Config = DEFAULT_CONFIG
    as_json: Json = False
    debug: Debug = False


@app.command("set")
@expand_options
def set_(version: Version, options: MoveOptions) -> None:
    """Set the position of a target to the version of the source that the target equals. Changes no rows.

    If the position moves forward, the changes in between are never applied. The command also records again which table the
    target was filled from.
    """
    _move("set", version, options)


@app.command()
@expand_options
def rewind(version: Version, options: MoveOptions) -> None:
    """Move a position back to a version: the next run applies the later changes again, and ends with the same rows.

    Meanwhile, readers see rows of different versions. With `conflicts: refuse` the run stops: use `run --reload` instead.
    """
    _move("rewind", version, options)


@app.command()
@expand_options
def adopt(
    options: MoveOptions,
    version: Annotated[int | None, typer.Argument(help="The version that it equals; default: the latest.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare the target with the source first.")
    ] = True,
) -> None:
    """Take over a target that already has rows but no position, as a copy of this version of its source.

    Exit code 3: it differs from that version, and nothing was changed.
    """
    _move("adopt", version, options, compare=verify)


def _move(action: Action, version: int | None, options: MoveOptions, *, compare: bool = True) -> None:
    from cdf.pipeline.move_position import make_move, plan_move

    output = Output(f"position {action}", options.as_json, options.debug)
    project, name = load_project(options.config), options.pipeline
    project.pipeline(name)
    if version is not None and version < 0:
        raise ConfigError(f"{version} is not a version", hint="versions are whole numbers from 0")
    if not options.yes:
        require_terminal(f"position {action}")
    with spark_session(output, project, may_be_remote=True) as spark, raise_interrupt_on_signal():
        pipeline = build_pipeline(project, name, spark)
        try:
            move = plan_move(pipeline.context, action, version, compare=compare)
        except VerificationError as error:
            if "different" not in error.fields:  # the comparison itself failed
                raise
            raise typer.Exit(output.error(error, exit_code=DIFFERENCE)) from None
        output.note(describe_move(move))
        if not options.yes:
            confirm()
        make_move(pipeline.sink, move, reason=options.reason)
    output.line(f"{name}: the position is now {move.to_version}")
    output.result(move)


def describe_move(move: Move) -> str:
    """Describe in one sentence what the move will do."""
    to, before = move.to_version, move.from_version
    if before is None:
        compared = "was not compared with it" if move.compared_rows is None else f"equals it, {move.compared_rows} rows"
        return f"{move.pipeline}: the target will be at version {to} of {move.table}; it {compared}"
    moves = f"{move.pipeline}: the position will move from {before} to {to} (the latest is {move.latest_version})"
    if to > before:
        return f"{moves}; the changes of versions {before + 1}..{to} will never be applied"
    if to < before:
        return f"{moves}; the next run will apply the changes after version {to} again"
    return f"{moves}; only the recorded source table changes"
