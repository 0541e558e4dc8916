"""``deltarelay position``: where the targets stand, and positions moved by hand."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError, TargetNotReady, VerificationError
from cdf.result import Result
from cdf.sink.contract import Bounds, Movable, PositionRecord, Standing, Tracked
from infra.cli.batch import each_target
from infra.cli.confirm import confirm, require_terminal
from infra.cli.output import DIFFERENCE, Output, overall
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, build_pipeline, spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from cdf.pipeline.move_position import Action, Move
    from infra.config.models import Project

__all__ = ["PositionShown", "app"]

app = typer.Typer(help="Look at the positions of targets, and move them by hand.", no_args_is_help=True)

RECORDS_SHOWN = 10

Pipeline = Annotated[str, typer.Option("--pipeline", "-p", help="The pipeline.")]
Version = Annotated[int, typer.Argument(help="A version of the source.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept with the record of the change.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]


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
    """Show where each target stands, who holds its lease, and what was done to its position by hand. No JVM."""
    from infra.config.load import load

    output = Output("position show", as_json, debug)
    project = load(config)
    shown: list[PositionShown] = []

    def work(name: str) -> PositionShown:
        shown.append(found := _shown(project, name))
        return found

    results, codes = each_target(output, project, pipeline, work)
    _print(output, shown)
    code = overall(codes)
    output.result({"pipelines": results}, exit_code=code)
    raise typer.Exit(code)


def _shown(project: Project, name: str) -> PositionShown:
    sink = project.build_sink(name)
    if isinstance(sink, Movable):
        standing = sink.standing(most_records=RECORDS_SHOWN)
    elif isinstance(sink, Tracked):
        standing = Standing(position=sink.position())
    else:
        raise TargetNotReady(f"the sink of {name} does not tell its position without a run", hint="`deltarelay plan`")
    return PositionShown(
        pipeline=name,
        source=project.pipeline(name).source.table,
        position=standing.position.version,
        table_id=standing.position.table_id,
        pending=standing.position.pending,
        epoch=standing.epoch,
        lease_holder=standing.lease_holder,
        lease_until=standing.lease_until,
        updated_at=standing.updated_at,
        records=standing.records,
    )


def _print(output: Output, shown: list[PositionShown]) -> None:
    columns = ("pipeline", "position", "table id", "epoch", "lease", "moved at")
    rows = [
        (
            one.pipeline,
            one.position,
            one.table_id,
            one.epoch,
            "free" if one.lease_until is None else f"held until {_time(one.lease_until)}",
            None if one.updated_at is None else _time(one.updated_at),
        )
        for one in shown
    ]
    if rows:
        output.table(columns, rows, numbers=("position", "epoch"))
    for one in shown:
        for record in one.records:
            before = "nothing" if record.from_version is None else record.from_version
            why = f": {record.reason}" if record.reason else ""
            output.line(
                f"{one.pipeline}: {_time(record.at)} {record.action} from {before} to {record.to_version} "
                f"by {record.by}{why}"
            )


def _time(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# ── set, rewind, adopt ───────────────────────────────────────────────────────────────────────────────────────────────


@app.command("set")
def set_(
    version: Version,
    pipeline: Pipeline,
    reason: Reason = None,
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say that a target equals another version of its source than its position tells. Its rows are not touched.

    Forward, the changes in between are never applied. It also sets anew which table the target was filled from.
    """
    _move("set", version, pipeline, reason=reason, yes=yes, config=config, as_json=as_json, debug=debug)


@app.command()
def rewind(
    version: Version,
    pipeline: Pipeline,
    reason: Reason = None,
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Go back to a version: the next run applies the changes after it once more, and ends with the same rows.

    While it does, readers meet rows of different versions. With `conflicts: refuse` it stops: use `run --reload` there.
    """
    _move("rewind", version, pipeline, reason=reason, yes=yes, config=config, as_json=as_json, debug=debug)


@app.command()
def adopt(
    pipeline: Pipeline,
    version: Annotated[int | None, typer.Argument(help="The version that it equals; default: the latest.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare it with the source first.")] = True,
    reason: Reason = None,
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Take over a target that is filled but has no position, as this version of its source.

    Exit code 3 means that it does not equal that version: nothing was changed.
    """
    _move(
        "adopt",
        version,
        pipeline,
        compare=verify,
        reason=reason,
        yes=yes,
        config=config,
        as_json=as_json,
        debug=debug,
    )


def _move(
    action: Action,
    version: int | None,
    name: str,
    *,
    compare: bool = True,
    reason: str | None,
    yes: bool,
    config: Path,
    as_json: bool,
    debug: bool,
) -> None:
    from cdf.pipeline.move_position import make_move, plan_move
    from infra.config.load import load

    output = Output(f"position {action}", as_json, debug)
    project = load(config)
    project.pipeline(name)
    if version is not None and version < 0:
        raise ConfigError(f"{version} is not a version", hint="versions are whole numbers from 0")
    if not yes:
        require_terminal(f"position {action}")
    with spark_session(output, project) as spark, raise_interrupt_on_signal():
        pipeline = build_pipeline(project, name, spark)
        try:
            move = plan_move(pipeline, action, version, compare=compare)
        except VerificationError as error:
            if "different" not in error.fields:  # no comparison could be made
                raise
            raise typer.Exit(output.error(error, exit_code=DIFFERENCE)) from None
        output.note(describe(move))
        if not yes:
            confirm()
        make_move(pipeline, move, reason=reason)
    output.line(f"{name}: the position is {move.to_version} now")
    output.result(move)


def describe(move: Move) -> str:
    """What will happen, in a sentence."""
    to, before = move.to_version, move.from_version
    if before is None:
        found = "was not compared with it" if move.compared_rows is None else f"equals it, {move.compared_rows} rows"
        return f"{move.pipeline}: the target will count as version {to} of {move.table}; it {found}"
    moves = f"{move.pipeline}: the position will move from {before} to {to} (the latest is {move.latest_version})"
    if to > before:
        return f"{moves}; the changes of versions {before + 1}..{to} will never be applied"
    if to < before:
        return f"{moves}; the next run applies the changes after version {to} once more"
    return f"{moves}; only the table that it belongs to is set anew"
