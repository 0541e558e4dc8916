"""What the commands of ``deltarelay audit`` share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError, TargetNotReady
from cdf.result import Result
from infra.cli.context import chosen, spark_session
from infra.cli.output import DIFFERENCE, DONE, Output, in_our_words, overall
from infra.interrupt import ctrl_c_counts

if TYPE_CHECKING:
    from audit.trail import Trail
    from infra.config.model import Project

__all__ = ["One", "each_trail", "loaded", "told", "trail_of"]

One = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline that writes the trail.")]


def each_trail(
    output: Output,
    config: Path,
    wanted: Sequence[str] | None,
    work: Callable[[str, Trail], tuple[Result, int]],
    *,
    before: Callable[[Mapping[str, Trail]], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """One session, every trail by itself; ends the command. ``after``: once the result was shown."""
    project = loaded(config)
    kinds = {name: project.connections[one.sink.connection].kind for name, one in project.pipelines.items()}
    names = [name for name in chosen(project, wanted) if wanted or kinds[name] == "delta_audit"]
    if not names:
        raise ConfigError("no pipeline writes an audit trail", hint="a connection of kind: delta_audit keeps one")
    results, codes = [], []
    with spark_session(output, project):
        if before is not None:
            before({name: trail_of(project, name) for name in names})
        for name in names:
            try:
                with ctrl_c_counts():
                    result, code = work(name, trail_of(project, name))
                entry = {"pipeline": name, "ok": code == DONE, **result.to_dict()}
            except BrokenPipeError:
                raise
            except Exception as error:
                failure = in_our_words(error)
                code = output.failure(name, failure)
                entry = {"pipeline": name, "ok": False, "error": failure.to_dict()}
            results.append(entry)
            codes.append(code)
    # One that could not be looked at weighs more than one in which something was found
    code = overall(code for code in codes if code != DIFFERENCE) or max(codes, default=DONE)
    output.result({"pipelines": results}, exit_code=code)
    if after is not None:
        after()
    raise typer.Exit(code)


def loaded(config: Path) -> Project:
    from infra.config.load import load

    return load(config)


def trail_of(project: Project, name: str) -> Trail:
    """Of the session that was made for this command."""
    from connectors.delta_audit.sink import DeltaAuditSink

    sink = project.build_sink(name)
    if not isinstance(sink, DeltaAuditSink):
        raise TargetNotReady(
            f"{name} writes no audit trail", hint="name a pipeline whose connection is kind: delta_audit"
        )
    return sink.trail


def told(at: dt.datetime | None) -> str:
    return "-" if at is None else at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
