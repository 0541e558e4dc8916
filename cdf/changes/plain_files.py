"""Parquet files that hold exactly the rows of a snapshot or of a window, for a sink that decodes them itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PlainFiles", "RowsOfFiles", "SelectedRows", "name_of_file"]


def name_of_file(path: str) -> str:
    """As in ``PlainFiles.names``."""
    return path.rpartition("/")[2]


def _ignore(_: int) -> None:
    return


@dataclass(frozen=True, slots=True)
class PlainFiles:
    session: SparkSession = field(repr=False)
    """For DataFrames of rows that were read here."""
    names: tuple[str, ...]
    """Each file once, without its folder."""
    columns: Mapping[str, str]
    """The wanted columns, and their names in the files."""
    read: Callable[[], DataFrame] = field(repr=False)
    """A row for each file: ``path`` and ``content``. Each row is an Arrow batch of its own, because it may be large.
    Without content the path is one of this machine's file system."""
    read_here: Callable[[int], Iterator[tuple[str, pa.Buffer]]] = field(repr=False)
    """Reads the files in this process instead, one after the other, each up to so many bytes and one more."""
    size: int = 0
    """Of a snapshot's files together, in bytes, as the log says."""
    versions: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    """For a window: the version of each file, and whether it has a column ``_change_type``; else all rows are inserts."""
    find_times: Callable[[], Mapping[int, dt.datetime]] = field(repr=False, default=dict)
    """For a window: the time of each version as Delta computes it. Raises an error if Spark must find out."""
    count: Callable[[int], None] = field(repr=False, default=_ignore)
    """To be called with the number of rows that were read."""


@runtime_checkable
class RowsOfFiles(Protocol):
    """A ``read`` of a snapshot or a window that knows its files. A function that replaces it, to filter the rows for
    example, has no ``find_files``: files are never copied past a filter."""

    def __call__(self) -> DataFrame: ...

    def find_files(self) -> PlainFiles | None:
        """The files that hold exactly these rows; None: no files do."""


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The same rows with these columns only (present name → new name)."""

    rows: RowsOfFiles
    columns: Mapping[str, str]

    def __call__(self) -> DataFrame:
        from cdf.changes.columns import quoted

        return self.rows().select(*(quoted(name).alias(target) for name, target in self.columns.items()))

    def find_files(self) -> PlainFiles | None:
        files = self.rows.find_files()
        if files is None:
            return None
        kept = {target: files.columns[name] for name, target in self.columns.items() if name in files.columns}
        return replace(files, columns=kept)
