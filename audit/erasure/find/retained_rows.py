"""Rows of people that the source has lost, and its copies have not.

For example, a customer was deleted last year without an erasure, so no source table has the row any more. A target with soft
deletes, and an audit trail, still have it. It shows that the e-mail address of a request is that of customer 700, and that
the request is about the orders of customer 700.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING

from audit.erasure.errors import SinkBehind
from cdf.errors import CdfError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.erasure.find.copies import Copy
    from audit.erasure.find.learn import RetainedRows
    from cdf.source.table import ChangeFeed

__all__ = ["rows_from_copies"]


def rows_from_copies(copies: Sequence[Copy]) -> RetainedRows:
    """Return a function that yields the rows that copies retain, and the changes that they have not applied yet: the only
    trace of a lost row may be in these.

    It raises SinkBehind where a copy does not have a column yet, and ConfigError where changes that it has not applied are
    no longer readable.
    """

    def rows(feed: ChangeFeed, version: int, columns: Set[str]) -> Iterator[DataFrame]:
        slowest, behind = "", version
        for copy in copies:
            position = copy.version() if copy.table == feed.table else None
            if position is None:  # an empty target starts with the present state of the table
                continue
            if position < behind:
                slowest, behind = copy.pipeline, position
            if (erasure := copy.erasure) is None:
                continue
            for part in erasure.retained_rows(feed, columns):
                if not columns <= set(part.columns) and position < version:
                    raise SinkBehind(
                        f"{copy.pipeline} is at {position}, before {feed.table} had all columns by which rows are found",
                        hint="run the pipelines (`deltarelay run`), then repeat the command",
                        behind=[copy.pipeline],
                    )
                yield part
        if behind < version:
            yield _unapplied_changes(feed, behind, version, slowest)

    return rows


def _unapplied_changes(feed: ChangeFeed, behind: int, version: int, pipeline: str) -> DataFrame:
    try:
        return feed.read(start_version=behind + 1, end_version=version)
    except CdfError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"{pipeline} is at {behind}, and the changes of {feed.table} that it has not applied cannot be read: "
            f"{error.message}",
            hint="let it run, reload it (`deltarelay run --reload`), or remove the pipeline from the configuration",
        ) from error
