"""The trails that the commands of ``deltarelay audit`` work with, and text that they share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cdf.errors import CdfError, ConfigError, TargetNotReady
from cdf.result import Result
from infra.cli.batch import report_failure
from infra.cli.project import load_project, select_pipelines
from infra.output import DIFFERENCE, DONE, Output, combine_exit_codes
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from connectors.delta_audit.sink import DeltaAuditSink
    from infra.config.models import Project

__all__ = [
    "build_trail_sink",
    "combine_trail_codes",
    "escape_unprintable",
    "format_time",
    "open_trail",
    "process_trails",
    "translate_read_errors",
]


def process_trails(
    output: Output,
    config: Path,
    wanted: Sequence[str] | None,
    work: Callable[[str, Trail], tuple[Result, int]],
    *,
    before: Callable[[Mapping[str, Trail]], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """Run ``work`` for each trail in one Spark session, and end the command.

    ``before`` is called with all trails first; ``after`` is called once the result has been printed.
    """
    project = load_project(config)
    kinds = {name: project.connections[pipeline.sink.connection].kind for name, pipeline in project.pipelines.items()}
    names = [name for name in select_pipelines(project, wanted) if wanted or kinds[name] == "delta_audit"]
    if not names:
        raise ConfigError("no pipeline writes an audit trail", hint="add a connection of kind: delta_audit")
    results, codes = [], []
    with spark_session(output, project):
        if before is not None:
            before({name: open_trail(project, name) for name in names})
        for name in names:
            try:
                with raise_interrupt_on_signal():
                    result, code = work(name, open_trail(project, name))
                entry = {"pipeline": name, "ok": code == DONE, **result.to_dict()}
            except BrokenPipeError:
                raise
            except Exception as error:
                entry, code = report_failure(output, name, error)
            results.append(entry)
            codes.append(code)
    code = combine_trail_codes(codes)
    output.result({"pipelines": results}, exit_code=code)
    if after is not None:
        after()
    raise typer.Exit(code)


def combine_trail_codes(codes: Sequence[int]) -> int:
    """Return one exit code for several trails: a finding in one trail takes precedence over failures of others."""
    return DIFFERENCE if DIFFERENCE in codes else combine_exit_codes(codes)


def open_trail(project: Project, name: str) -> Trail:
    """Open the trail of a pipeline in the Spark session of this command."""
    return build_trail_sink(project, name).trail


def build_trail_sink(project: Project, name: str) -> DeltaAuditSink:
    from connectors.delta_audit.sink import DeltaAuditSink

    sink = project.build_sink(name)
    if not isinstance(sink, DeltaAuditSink):
        raise TargetNotReady(
            f"{name} writes no audit trail", hint="name a pipeline whose connection has `kind: delta_audit`"
        )
    return sink


@contextmanager
def translate_read_errors(trail: Trail) -> Iterator[None]:
    """Raise any unexpected error as one about the trail: an altered trail may have any content, and break any reader."""
    try:
        yield
    except (CdfError, BrokenPipeError):
        raise
    except Exception as error:
        from audit.errors import unreadable_trail

        raise unreadable_trail(trail.path, error) from error


def format_time(at: dt.datetime | None) -> str:
    return "-" if at is None else at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def escape_unprintable(text: str) -> str:
    """Escape the characters that a terminal would interpret or not show."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
