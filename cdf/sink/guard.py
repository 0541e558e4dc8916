"""The guard: it removes rows of erased persons before a sink gets them.

Without a guard, a pipeline never applies a commit whose ``userMetadata`` contains ``ERASURE``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from cdf.errors import CdfError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.changes.commits import Commit

__all__ = ["ERASURE", "ErasureNotConfigured", "Guard", "Without", "erasing_versions"]

ERASURE = "deltarelay_erasure"
"""The ``userMetadata`` of every erasing commit contains this word; other commits may contain it, too."""


class ErasureNotConfigured(CdfError):
    """A commit says that it erased persons, and the pipeline has no guard that could confirm it."""

    code = "erasure_not_configured"


Without: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""Filters the rows of a step: returns those that may go to the sink."""


class Guard(Protocol):
    """Called by a pipeline before each durable step."""

    @property
    def executor_modules(self) -> tuple[str, ...]:
        """Modules that Spark's tasks import to run ``check`` and its filter."""
        ...

    def check(
        self,
        rows: DataFrame,
        *,
        key: Sequence[str],
        table: str,
        pipeline: str,
        first: int,
        last: int,
        erasing: Collection[int],
        now: Callable[[], DataFrame],
    ) -> Without | None:
        """Return None if every row may go to the sink, otherwise a filter for the step's rows.

        Raises a CdfError if the whole step must not happen. ``rows``: all rows of the step, with the source's columns and,
        for a window, the feed's metadata columns. ``first`` and ``last``: the step's versions. ``erasing``: those of them
        that ``erased`` has returned; their rows may always go to the sink. ``now``: reads the source's rows at its latest
        version. May be called again with the same rows.
        """
        ...

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:
        """The versions among these commits that erased persons. A commit's own metadata is no proof: any writer can set it.

        Raises a transient CdfError if that is not known yet.
        """
        ...


def erasing_versions(commits: Iterable[Commit]) -> frozenset[int]:
    """Return the versions of the erasing commits. Sinks that keep history store no preimage of their changes."""
    return frozenset(commit.version for commit in commits if commit.erasing)
