"""Checks source and target of a pipeline without a JVM and without writing, for ``doctor`` and ``validate --connect``.

The source is read by delta-rs, the target is checked by the sink's ``inspect``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.errors import CdfError
from cdf.result import Result
from cdf.sink import Inspection, Source
from infra.diagnostics.delta_table import SourceTable, explain_spark_only, open_source

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["ConnectionCheck", "Problem", "check_connections", "has_key", "inspect_target", "find_source_problems"]


@dataclass(frozen=True, slots=True)
class Problem:
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class ConnectionCheck(Result):
    """The check of one pipeline: source and target."""

    pipeline: str
    ok: bool
    """No problem was found. ``latest_version`` is None where the source was not checked."""
    position: int | None = None
    """The version of the target; None: it is empty, or could not be checked."""
    latest_version: int | None = None
    problems: tuple[str, ...] = ()
    """What would stop a run; each with its remedy."""
    warnings: tuple[str, ...] = ()
    ddl: tuple[str, ...] = ()
    """Statements that a run would first execute at the target."""
    transient: bool = False
    """The only problem is temporary."""


def find_source_problems(table: SourceTable, key: Sequence[str]) -> list[Problem]:
    """Problems of the table's current state: the change feed, and the columns of the key."""
    problems = []
    if not table.feed_on:
        problems.append(
            Problem(
                f"the change feed of {table.address} is off",
                f"enable it with `deltarelay feed enable {table.address}`; earlier changes are not recorded",
            )
        )
    if not has_key(table, key):
        columns = [column.name for column in table.columns]
        unknown = [column for column in key if column not in columns]
        problems.append(
            Problem(
                f"the key names columns that {table.address} does not have: {', '.join(unknown)}",
                f"correct source.key; the columns are {', '.join(columns)}",
            )
        )
    return problems


def has_key(table: SourceTable, key: Sequence[str]) -> bool:
    return {column.name for column in table.columns}.issuperset(key)


def inspect_target(project: Project, name: str, table: SourceTable) -> Inspection:
    """The result of the sink's ``inspect``; raises the errors of the sink."""
    settings = project.pipeline(name)
    return project.build_sink(name).inspect(
        Source(
            table=settings.source.table,
            table_id=table.table_id,
            schema=table.schema,
            key=settings.source.key,
            pipeline=name,
        )
    )


def check_connections(project: Project, name: str) -> ConnectionCheck:
    """Check both ends of a pipeline. Problems of source and target are reported, not raised."""
    settings = project.pipeline(name)
    if (why := explain_spark_only(settings.source.table)) is not None:
        warning = (
            f"nothing was checked: {settings.source.table} {why} (check it with `deltarelay plan`, which starts Spark)"
        )
        return ConnectionCheck(name, ok=True, warnings=(warning,))
    try:
        table = open_source(settings.source.table, project.storage)
    except CdfError as error:
        return ConnectionCheck(name, ok=False, problems=(format_error(error),), transient=error.transient)
    problems = [f"{one.message}: {one.fix}" for one in find_source_problems(table, settings.source.key)]
    if not has_key(table, settings.source.key):  # the target cannot be checked without them
        return ConnectionCheck(name, ok=False, latest_version=table.version, problems=tuple(problems))
    try:
        found = inspect_target(project, name, table)
    except CdfError as error:
        return ConnectionCheck(
            name,
            ok=False,
            latest_version=table.version,
            problems=(*problems, format_error(error)),
            transient=error.transient and not problems,
        )
    problems += found.problems
    return ConnectionCheck(
        name,
        ok=not problems,
        position=found.position.version,
        latest_version=table.version,
        problems=tuple(problems),
        warnings=found.warnings,
        ddl=found.ddl,
    )


def format_error(error: CdfError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
