"""Rows of persons whom the source has lost, and its copies have not.

A customer who was deleted in the ordinary way last year is in no table any more. A target that marks its deletes, and a
trail, still have the row, which tells that the e-mail of a request is that of customer 700, and that 700's orders are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from audit.erasure.places import Keeping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.erasure.plan import Copy
    from cdf.source import ChangeFeed

__all__ = ["KeptRows", "kept_by"]

KeptRows: TypeAlias = "Callable[[ChangeFeed, int, Collection[str]], Iterator[DataFrame]]"
"""(table, version, columns) → rows of the table that it may have lost by that version, part by part."""


def kept_by(copies: Sequence[Copy]) -> KeptRows:
    """What the copies keep, and the changes that they have not got yet: these may take a row out of the source alone."""

    def rows(feed: ChangeFeed, version: int, columns: Collection[str]) -> Iterator[DataFrame]:
        behind = version
        for copy in copies:
            if copy.table != feed.table or not isinstance(copy.sink, Keeping):
                continue
            stands = copy.version()
            if stands is not None:  # one that holds nothing begins with what the table is then
                yield from copy.sink.kept(feed, columns)
                behind = min(behind, stands)
        if behind < version:
            yield feed.read(start_version=behind + 1, end_version=version)

    return rows
