"""``deltarelay deadletter``: rows that could not be stored, and were set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import ConfigError, TargetNotReady
from cdf.result import Result
from cdf.sink.contract import DeadLetter, SetsAside
from infra.cli.batch import each_target
from infra.cli.confirm import confirm, require_terminal
from infra.cli.output import DIFFERENCE, DONE, Output, overall
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, build_pipeline, spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["Dropped", "Letters", "Replayed", "app"]

app = typer.Typer(help="Look at rows that could not be stored, try them again, or forget them.", no_args_is_help=True)

_MOST = 2**31 - 1

Pipeline = Annotated[str, typer.Option("--pipeline", "-p", help="The pipeline.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]


@dataclass(frozen=True, slots=True)
class Letters(Result):
    pipeline: str
    letters: tuple[dict[str, Any], ...]
    """Without ``key`` and ``row``, which hold values; ``deadletter show`` has them."""


@dataclass(frozen=True, slots=True)
class Replayed(Result):
    pipeline: str
    stored: int
    deleted: int
    """Rows whose key the source no longer has."""
    rejected: int
    """Those that still do not fit."""


@dataclass(frozen=True, slots=True)
class Dropped(Result):
    pipeline: str
    dropped: int


@app.command("list")
def list_(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many of each pipeline, the oldest.")] = 100,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List them: version, reason and column, without any value. No JVM."""
    from infra.config.load import load

    output = Output("deadletter list", as_json, debug)
    project = load(config)
    rows: list[tuple[Any, ...]] = []

    def work(name: str) -> Letters:
        found = _sink(project, name).dead_letters(most=limit)
        rows.extend(
            (name, one.id, one.version, one.change, one.reason, one.column or one.constraint, one.sqlstate)
            for one in found
        )
        return Letters(name, tuple(map(_without_values, found)))

    results, codes = each_target(output, project, pipeline, work)
    if rows:
        columns = ("pipeline", "id", "version", "change", "reason", "column or constraint", "sqlstate")
        output.table(columns, rows, numbers=("id", "version"))
    elif DONE in codes:
        output.line("no dead letters")
    code = overall(codes)
    output.result({"pipelines": results}, exit_code=code)
    raise typer.Exit(code)


@app.command()
def show(
    ids: Annotated[list[int], typer.Argument(help="As `deadletter list` tells them.")],
    pipeline: Pipeline,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show single ones with their key, and with the row where `reject_rows` kept it. No JVM."""
    from infra.config.load import load

    output = Output("deadletter show", as_json, debug)
    found = _sink(load(config), pipeline).dead_letters(most=_MOST, ids=ids)
    missing = sorted(set(ids) - {one.id for one in found})
    if missing:
        raise ConfigError(
            f"{pipeline} has no dead letter {', '.join(map(str, missing))}",
            hint="`deltarelay deadletter list` has their ids",
        )
    for one in found:
        output.line(str(one))
    output.result({"pipeline": pipeline, "letters": [one.to_dict() for one in found]})


@app.command()
def replay(pipeline: Pipeline, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Try all of a pipeline again, with the rows that the source has now, at the target's position.

    Exit code 3 means that some still do not fit; they stay.
    """
    from cdf.pipeline.replay import replay as try_again
    from infra.config.load import load

    output = Output("deadletter replay", as_json, debug)
    project = load(config)
    _sink(project, pipeline)
    with spark_session(output, project) as spark, raise_interrupt_on_signal():
        applied = try_again(build_pipeline(project, pipeline, spark))
    result = Replayed(pipeline, max(applied.inserts - applied.rejected, 0), applied.deletes, applied.rejected)
    output.line(f"{pipeline}: {result.stored} stored, {result.deleted} deleted, {result.rejected} still do not fit")
    code = DIFFERENCE if result.rejected else DONE
    output.result(result, exit_code=code)
    raise typer.Exit(code)


@app.command()
def drop(
    pipeline: Pipeline,
    ids: Annotated[list[int] | None, typer.Argument(help="As `deadletter list` tells them; default: all.")] = None,
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Forget dead letters. Their rows stay what they are in the target, and `verify` holds them against the source again."""
    from infra.config.load import load

    output = Output("deadletter drop", as_json, debug)
    sink = _sink(load(config), pipeline)
    found = len(sink.dead_letters(most=_MOST, ids=ids))
    if not yes:
        require_terminal("deadletter drop")
        output.note(f"{pipeline}: {found} dead letters will be forgotten")
        confirm()
    dropped = sink.drop_dead_letters(ids)
    output.line(f"{pipeline}: {dropped} dead letters forgotten")
    output.result(Dropped(pipeline, dropped))


def _sink(project: Project, name: str) -> SetsAside:
    sink = project.build_sink(name)
    if not isinstance(sink, SetsAside):
        raise TargetNotReady(f"the sink of {name} sets no rows aside", hint="leave it out with -p")
    return sink


def _without_values(letter: DeadLetter) -> dict[str, Any]:
    return {name: value for name, value in letter.to_dict().items() if name not in ("key", "row")}
