"""Who may object to rows before a sink gets them. The core knows nothing of why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.window import Commit

__all__ = ["Guard"]


class Guard(Protocol):
    """Asked by a pipeline before each durable step."""

    def check(
        self, rows: DataFrame, *, table: str, pipeline: str, first: int, last: int, now: Callable[[], DataFrame]
    ) -> None:
        """Raises a CdfError where one of the rows may not go to the sink: nothing of the step happens then.

        ``rows``: what the step puts into the target, with the source's columns; of a window the rows after their change.
        ``first`` and ``last``: its versions. ``now``: the source's rows as of its latest version, for whoever wants to know
        what became of those rows. May be called again with the same rows.
        """
        ...

    def erased(self, commits: Sequence[Commit], *, table: str) -> frozenset[int]:
        """The versions among these that erased somebody. What a commit says of itself is no proof: anybody can write it.

        Raises a transient CdfError where that is not known yet.
        """
        ...
