"""The rows of a table, and the Parquet files that hold exactly these rows.

Decoding a file by its columns takes a fraction of the processor time of Spark's rows. But a file alone is not the table:
Delta may mark rows as deleted, keep values in paths and rename columns. So only plain files are handed out
(``TableStates.read_plain_files``, ``Commit.plain_files``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import METADATA_COLUMNS, quoted
from cdf.changes.plain_files import PlainFiles, name_of_file
from cdf.errors import SourceError
from cdf.lag import DEFAULT_RETENTION, parse_interval
from cdf.session import check_session
from cdf.source.batch_reader import load_range
from cdf.source.snapshot_reader import read_snapshot
from cdf.spark_versions import create_from_arrow, create_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cdf.changes.commits import Commit
    from cdf.source.table_handle import TableHandle

__all__ = ["MAX_FILES", "MAX_FILE_BYTES", "FeedRows", "TableRows"]

MAX_FILE_BYTES = 64 * 2**20
"""A task holds a whole file. Spark's own reader holds a row group, which has 128 MB by default."""
MAX_FILES = 1_000
"""The driver lists each of them again."""
_LOCAL: tuple[str, ...] = ("file:/",)
_PATTERN = frozenset("{}[]*?\\")
"""Spark takes a path with one of these characters for a pattern."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """``Snapshot.read`` for a table at a version; a ``RowsOfFiles``."""

    table: TableHandle
    version: int

    def __call__(self) -> DataFrame:
        return read_snapshot(self.table, self.version)

    def find_files(self) -> PlainFiles | None:
        check_session(self.table.spark)
        if self.version != self.table.log.latest():
            read_snapshot(self.table, self.version)  # raises what Delta's time travel refuses
        listed = self.table.log.plain_files(self.version, most=MAX_FILES)
        if listed is None:
            return None
        columns = {name: name for name in self.table.log.metadata(self.version).schema.fieldNames()}
        files = _plain_files(self.table.spark, listed, columns)
        return None if files is None else replace(files, size=sum(size for _, size in listed))


@dataclass(frozen=True, slots=True)
class FeedRows:
    """``Window.read`` for a range of commits; a ``RowsOfFiles``."""

    table: TableHandle
    commits: tuple[Commit, ...]
    columns: tuple[str, ...]

    def __call__(self) -> DataFrame:
        # The table may have more columns now than the window's schema
        rows = load_range(self.table, self.commits[0].version, self.commits[-1].version)
        return rows.select(*map(quoted, (*self.columns, *METADATA_COLUMNS)))

    def find_files(self) -> PlainFiles | None:
        read = [commit for commit in self.commits if commit.change_files]
        folder = self.table.log.folder()
        if folder is None or any(commit.plain_files is None for commit in read):
            return None
        properties = self.table.log.metadata(self.commits[-1].version).properties
        # Delta refuses a range that is older than this
        retention = parse_interval(properties.get("delta.deletedFileRetentionDuration", DEFAULT_RETENTION))
        if self.commits[0].timestamp < dt.datetime.now(dt.UTC) - retention:
            return None
        if properties.get("delta.columnMapping.mode", "none") != "none":
            return None
        paths = [(path, commit) for commit in read for path in commit.plain_files or ()]
        versions = {name_of_file(path): (commit.version, commit.atomic) for path, commit in paths}
        columns = {name: name for name in self.columns}
        files = (
            _plain_files(self.table.spark, [(f"{folder}/{path}", 0) for path, _ in paths], columns) if paths else None
        )
        return None if files is None else replace(files, versions=versions, find_times=self._find_times)

    def _find_times(self) -> Mapping[int, dt.datetime]:
        if any(commit.metadata is not None for commit in self.commits):
            raise SourceError("the commits may have times of two kinds", hint="Spark reads them")
        log = self.table.log
        if log.metadata(self.commits[-1].version).has_commit_times:
            return {commit.version: commit.timestamp for commit in self.commits}
        return log.file_times(self.commits[0].version, self.commits[-1].version)


def _plain_files(
    spark: SparkSession, files: Sequence[tuple[str, int]], columns: Mapping[str, str]
) -> PlainFiles | None:
    """``files``: paths and sizes."""
    names = tuple(name_of_file(path) for path, _ in files)
    local = [path.removeprefix("file:") for path, _ in files if path.startswith(_LOCAL)]
    if len(set(names)) < len(names) or len(names) > MAX_FILES:
        return None
    if len(local) == len(files):
        sizes = [size for _, size in files]
        return PlainFiles(
            spark, names, columns, lambda: _list_paths(spark, local, sizes), _read_each(_read_local, local)
        )
    if any(size > MAX_FILE_BYTES or _PATTERN & set(path) for path, size in files):
        return None
    paths = [path for path, _ in files]
    read = partial(_read_from_storage, spark)
    return PlainFiles(spark, names, columns, lambda: _read_contents(spark, paths), _read_each(read, paths))


def _list_paths(spark: SparkSession, paths: Sequence[str], sizes: Sequence[int]) -> DataFrame:
    """The tasks open the files themselves, as Spark's would. Each gets about as many bytes."""
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StringType, StructType

    parallel = spark.sparkContext.defaultParallelism
    largest_first = [path for _, path in sorted(zip(sizes, paths, strict=True), reverse=True)]
    spread = [path for first in range(parallel) for path in largest_first[first::parallel]]
    listed = pa.table({"path": spread, "content": pa.nulls(len(spread), pa.binary())})
    # Of a list of tuples, Spark would make rows in a worker
    return create_from_arrow(spark, listed, StructType().add("path", StringType()).add("content", BinaryType()))


def _read_contents(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The tasks get the files through Spark's own access to the storage."""
    session = create_session(spark)  # the caller's other queries keep their settings
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    session.conf.set("spark.sql.sources.binaryFile.maxLength", str(MAX_FILE_BYTES))
    return session.read.format("binaryFile").load(list(paths)).select("path", "content")


def _read_each(
    read: Callable[[str, int], bytes], paths: Sequence[str]
) -> Callable[[int], Iterator[tuple[str, pa.Buffer]]]:
    def read_here(most: int) -> Iterator[tuple[str, pa.Buffer]]:
        import pyarrow as pa

        for path in paths:
            yield path, pa.py_buffer(read(path, most + 1))

    return read_here


def _read_local(path: str, most: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(most)


def _read_from_storage(spark: SparkSession, path: str, most: int) -> bytes:
    jvm: Any = spark._jvm
    file = jvm.org.apache.hadoop.fs.Path(path)
    stream = file.getFileSystem(spark._jsc.hadoopConfiguration()).open(file)
    try:
        return bytes(stream.readNBytes(most))
    finally:
        stream.close()
