"""``deltarelay deadletter``: the dead letters of a target, which are rows that it could not store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdf.errors import ConfigError, TargetNotReady
from cdf.result import Result
from cdf.sink import DeadLetter, DeadLetterStore
from infra.cli.batch import process_targets
from infra.cli.confirm import confirm, require_terminal
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, OnePipeline, Pipelines, Yes
from infra.cli.project import load_project
from infra.output import DIFFERENCE, DONE, Output, combine_exit_codes, format_count
from infra.runtime import build_pipeline, spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["DeadLetters", "Dropped", "Replayed", "app"]

app = typer.Typer(
    help="Inspect, replay or delete dead letters: rows that a target could not store.", no_args_is_help=True
)

_ALL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DeadLetters(Result):
    pipeline: str
    letters: tuple[dict[str, Any], ...]
    """Without ``key`` and ``row``, which contain values; ``deadletter show`` has them."""


@dataclass(frozen=True, slots=True)
class Replayed(Result):
    pipeline: str
    stored: int
    deleted: int
    """Rows whose key no longer exists in the source."""
    rejected: int
    """Rows that the target still cannot store."""


@dataclass(frozen=True, slots=True)
class Dropped(Result):
    pipeline: str
    dropped: int


@app.command("list")
def list_(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of dead letters per pipeline; the oldest are shown.")
    ] = 100,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List dead letters with version, reason and column, without any value. Starts no JVM."""
    output = Output("deadletter list", as_json, debug)
    project = load_project(config)
    rows: list[tuple[Any, ...]] = []

    def list_letters(name: str) -> DeadLetters:
        letters = _build_sink(project, name).dead_letters(most=limit)
        rows.extend(
            (
                name,
                letter.id,
                letter.version,
                letter.change,
                letter.reason,
                letter.column or letter.constraint,
                letter.sqlstate,
            )
            for letter in letters
        )
        return DeadLetters(name, tuple(map(_remove_values, letters)))

    results, codes = process_targets(output, project, pipeline, list_letters)
    if rows:
        columns = ("pipeline", "id", "version", "change", "reason", "column or constraint", "sqlstate")
        output.table(columns, rows, numbers=("id", "version"))
    elif DONE in codes:
        output.line("no dead letters")
    output.finish({"pipelines": results}, combine_exit_codes(codes))


@app.command()
def show(
    ids: Annotated[list[int], typer.Argument(help="Ids, as `deadletter list` shows them.")],
    pipeline: OnePipeline,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show dead letters with their key, and with their row if `reject_rows` stores it. Starts no JVM."""
    output = Output("deadletter show", as_json, debug)
    letters = _build_sink(load_project(config), pipeline).dead_letters(most=_ALL, ids=ids)
    missing = sorted(set(ids) - {letter.id for letter in letters})
    if missing:
        raise ConfigError(
            f"{pipeline} has no dead letter {', '.join(map(str, missing))}",
            hint="`deltarelay deadletter list` shows their ids",
        )
    for letter in letters:
        output.line(str(letter))
    output.result({"pipeline": pipeline, "letters": [letter.to_dict() for letter in letters]})


@app.command()
def replay(pipeline: OnePipeline, config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Retry all dead letters of a pipeline, with the rows of the source at the target's position.

    Exit code 3: the target still cannot store some of them; they remain dead letters.
    """
    from cdf.pipeline.replay import replay as replay_dead_letters

    output = Output("deadletter replay", as_json, debug)
    project = load_project(config)
    _build_sink(project, pipeline)
    with spark_session(output, project, may_be_remote=True) as spark, raise_interrupt_on_signal():
        applied = replay_dead_letters(build_pipeline(project, pipeline, spark).runner)
    result = Replayed(pipeline, max(applied.inserts - applied.rejected, 0), applied.deletes, applied.rejected)
    output.line(f"{pipeline}: {result.stored} stored, {result.deleted} deleted, {result.rejected} rejected again")
    output.finish(result, DIFFERENCE if result.rejected else DONE)


@app.command()
def drop(
    pipeline: OnePipeline,
    ids: Annotated[list[int] | None, typer.Argument(help="Ids, as `deadletter list` shows them; default: all.")] = None,
    yes: Yes = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Delete dead letters. Their rows in the target do not change, and `verify` compares them with the source again."""
    output = Output("deadletter drop", as_json, debug)
    sink = _build_sink(load_project(config), pipeline)
    number = len(sink.dead_letters(most=_ALL, ids=ids))
    if not yes:
        require_terminal("deadletter drop")
        output.note(f"{pipeline}: {format_count(number, 'dead letter')} will be deleted")
        confirm()
    dropped = sink.drop_dead_letters(ids)
    output.line(f"{pipeline}: {format_count(dropped, 'dead letter')} deleted")
    output.result(Dropped(pipeline, dropped))


def _build_sink(project: Project, name: str) -> DeadLetterStore:
    sink = project.build_sink(name)
    if not isinstance(sink, DeadLetterStore):
        raise TargetNotReady(f"the sink of {name} has no dead letters", hint="select other pipelines with -p")
    return sink


def _remove_values(letter: DeadLetter) -> dict[str, Any]:
    return {name: value for name, value in letter.to_dict().items() if name not in ("key", "row")}
