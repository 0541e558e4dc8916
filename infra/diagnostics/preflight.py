"""What stands between a source and its target, found without a JVM and without writing anything.

``doctor`` and ``validate --connect`` both ask here: the table by delta-rs, the target by the sink's own ``inspect``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.errors import CdfError
from cdf.result import Result
from cdf.sink import Inspection, Source
from infra.diagnostics.delta_table import SourceTable, open_source, spark_only

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["Connected", "Problem", "connect", "has_key", "look_at_target", "source_problems"]


@dataclass(frozen=True, slots=True)
class Problem:
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Connected(Result):
    """One pipeline, looked at from both ends."""

    pipeline: str
    ok: bool
    """No problem was found. ``latest_version`` is None where the source was not looked at."""
    position: int | None = None
    """The version at which the target stands; None: empty, or it could not be looked at."""
    latest_version: int | None = None
    problems: tuple[str, ...] = ()
    """What would stop a run; each says what helps."""
    warnings: tuple[str, ...] = ()
    ddl: tuple[str, ...] = ()
    """Statements that a run would begin with at the target."""
    transient: bool = False
    """The only problem is one that can go away by itself."""


def source_problems(table: SourceTable, key: Sequence[str]) -> list[Problem]:
    """What can be seen in the table's present state: the feed, and the columns of the key."""
    problems = []
    if not table.feed_on:
        problems.append(
            Problem(
                f"the change feed of {table.address} is off",
                f"`deltarelay feed enable {table.address}` turns it on; earlier changes are not in it",
            )
        )
    if not has_key(table, key):
        there = [column.name for column in table.columns]
        unknown = [column for column in key if column not in there]
        problems.append(
            Problem(
                f"the key names columns that {table.address} does not have: {', '.join(unknown)}",
                f"correct source.key; the columns are {', '.join(there)}",
            )
        )
    return problems


def has_key(table: SourceTable, key: Sequence[str]) -> bool:
    return {column.name for column in table.columns}.issuperset(key)


def look_at_target(project: Project, name: str, table: SourceTable) -> Inspection:
    """The sink's own ``inspect``; raises what it raises."""
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


def connect(project: Project, name: str) -> Connected:
    """Never raises for what is wrong with the source or the target: that is what it reports."""
    settings = project.pipeline(name)
    if (why := spark_only(settings.source.table)) is not None:
        warning = f"nothing was looked at: {settings.source.table} {why} (`deltarelay plan` starts Spark and looks)"
        return Connected(name, ok=True, warnings=(warning,))
    try:
        table = open_source(settings.source.table, project.storage)
    except CdfError as error:
        return Connected(name, ok=False, problems=(_told(error),), transient=error.transient)
    problems = [f"{one.message}: {one.fix}" for one in source_problems(table, settings.source.key)]
    if not has_key(table, settings.source.key):  # the target's side of it cannot be judged
        return Connected(name, ok=False, latest_version=table.version, problems=tuple(problems))
    try:
        found = look_at_target(project, name, table)
    except CdfError as error:
        return Connected(
            name,
            ok=False,
            latest_version=table.version,
            problems=(*problems, _told(error)),
            transient=error.transient and not problems,
        )
    problems += found.problems
    return Connected(
        name,
        ok=not problems,
        position=found.position.version,
        latest_version=table.version,
        problems=tuple(problems),
        warnings=found.warnings,
        ddl=found.ddl,
    )


def _told(error: CdfError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
