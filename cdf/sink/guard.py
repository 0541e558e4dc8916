"""Who may object to rows before a sink gets them. The core does not know the reasons, with one exception: a pipeline without
a guard never applies a commit whose ``userMetadata`` contains ``ERASURE``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from cdf.errors import CdfError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.changes.window import Commit

__all__ = ["ERASURE", "ErasureNotConfigured", "Guard", "Without", "erasing_versions"]

ERASURE = "deltarelay_erasure"
"""The ``userMetadata`` of every erasing commit has this word; that of other commits may have it too."""


class ErasureNotConfigured(CdfError):
    """A commit says that it erased persons, and the pipeline has no guard to ask whether it did."""

    code = "erasure_not_configured"


Without: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""Takes the rows of a step, and gives back those that may go to the sink."""


class Guard(Protocol):
    """Asked by a pipeline before each durable step."""

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
        """None: every row may go to the sink. Otherwise what leaves out of the step's rows those that may not.

        Raises a CdfError where nothing of the step may happen. ``rows``: all that the step reads, with the source's columns,
        and of a window those of the feed besides. ``first`` and ``last``: its versions; ``erasing``: those of them that
        ``erased`` has told, whose rows may go anyway. ``now``: the source's rows as of its latest version, for whoever wants
        to know what became of those rows. May be called again with the same rows.
        """
        ...

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:
        """The versions among these that erased somebody. What a commit says of itself is no proof: anybody can write it.

        Raises a transient CdfError where that is not known yet.
        """
        ...


def erasing_versions(commits: Iterable[Commit]) -> frozenset[int]:
    """Return the versions of the erasing commits. Sinks that keep history store no preimage of their changes."""
    return frozenset(commit.version for commit in commits if commit.erasing)
