"""Counts the feed's rows while they are read: a separate count would read them twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cdf.changes.in_memory import InMemoryWindow
from cdf.changes.plain_files import PlainFiles, RowsOfFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdf.changes.window import Window

__all__ = ["count_rows"]


def count_rows(window: Window) -> Window:
    """The same window, whose ``rows_in`` returns the number of rows that were read last."""
    if isinstance(window, InMemoryWindow):
        rows = window.rows
        return replace(window, rows_in=lambda: int(rows().num_rows))
    counting = _Counting(window.read)
    return replace(window, read=counting, rows_in=counting.rows if window.has_changes else lambda: 0)


class _Counting:
    def __init__(self, read: Callable[[], DataFrame]) -> None:
        self._read = read
        self._observation: Any = None
        self._counted: int | None = None

    def __call__(self) -> DataFrame:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._counted = None
        self._observation = observation = Observation()
        return self._read().observe(observation, F.count(F.lit(1)).alias("rows"))

    def find_files(self) -> PlainFiles | None:
        files = self._read.find_files() if isinstance(self._read, RowsOfFiles) else None
        return None if files is None else replace(files, count=self._count)

    def _count(self, rows: int) -> None:
        self._counted = rows

    def rows(self) -> int | None:
        """None if the rows were not read completely, or the count is not available yet."""
        if self._counted is not None or self._observation is None:
            return self._counted
        if not hasattr(self._observation, "_jo"):
            # Spark Connect does not wait for a count that is not available yet
            with suppress(Exception):
                return int(self._observation.get["rows"])
            return None
        if self._observation._jo is None:
            return None
        with suppress(Exception):
            if self._observation._jo.future().isCompleted():
                return int(self._observation.get["rows"])
        return None
