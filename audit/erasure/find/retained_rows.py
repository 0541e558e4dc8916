"""Rows of persons whom the source has lost, and its copies have not.

A customer who was deleted in the ordinary way last year is in no table any more. A target that marks its deletes, and a
trail, still have the row, which tells that the e-mail of a request is that of customer 700, and that 700's orders are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, TypeAlias

from audit.erasure.errors import SinkBehind
from cdf.errors import CdfError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.erasure.find.copies import Copy
    from cdf.source.table import ChangeFeed

__all__ = ["KeptRows", "kept_by"]

KeptRows: TypeAlias = "Callable[[ChangeFeed, int, Set[str]], Iterator[DataFrame]]"
"""(table, version, columns) → rows of the table that it may have lost by that version, part by part."""


def kept_by(copies: Sequence[Copy]) -> KeptRows:
    """What the copies keep, and the changes that they have not got yet: these may take a row out of the source alone.

    Raises SinkBehind where a copy does not know a column yet, and ConfigError where what it has yet to take is gone.
    """

    def rows(feed: ChangeFeed, version: int, columns: Set[str]) -> Iterator[DataFrame]:
        slowest, behind = "", version
        for copy in copies:
            stands = copy.version() if copy.table == feed.table else None
            if stands is None:  # one that holds nothing begins with what the table is then
                continue
            if stands < behind:
                slowest, behind = copy.pipeline, stands
            if (erasure := copy.erasure) is None:
                continue
            for part in erasure.retained_rows(feed, columns):
                if not columns <= set(part.columns) and stands < version:
                    raise SinkBehind(
                        f"{copy.pipeline} stands at {stands}, before columns of {feed.table} by which rows are found",
                        hint="let the pipelines run (`deltarelay run`), then go on",
                        behind=[copy.pipeline],
                    )
                yield part
        if behind < version:
            yield _yet_to_take(feed, behind, version, slowest)

    return rows


def _yet_to_take(feed: ChangeFeed, behind: int, version: int, pipeline: str) -> DataFrame:
    try:
        return feed.read(start_version=behind + 1, end_version=version)
    except CdfError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"{pipeline} stands at {behind}, and what it has yet to take of {feed.table} cannot be read: {error.message}",
            hint="let it run, reload it (`deltarelay run --reload`), or take the pipeline out of the configuration",
        ) from error
