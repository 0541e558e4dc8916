"""An image whose rows Spark reads, for targets that cannot compute digests themselves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cdf.changes.canonical import BUCKET, KEY_DIGEST, KEY_TEXT, ROW_DIGEST, checksum, digests
from cdf.sink import BucketDigest, Image, Position, RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.sink import Source

__all__ = ["FrameImage"]

T = TypeVar("T")


class FrameImage(Image):
    """The DataFrame of ``frame`` is persisted until ``close``, because a comparison reads it up to three times."""

    def __init__(self, position: Position, source: Source) -> None:
        self._position, self._source = position, source
        self._rows: DataFrame | None = None

    @abstractmethod
    def frame(self) -> DataFrame:
        """The target's rows, with the columns of the source's schema."""

    def schema(self) -> StructType:
        """The columns of ``frame`` that are compared."""
        return self._source.schema

    def run_job(self, job: Callable[[], T]) -> T:
        """Run a job over the rows. A subclass may translate the job's errors."""
        return job()

    @property
    def position(self) -> Position:
        return self._position

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema().names)

    def row_count(self) -> int:
        return int(self.run_job(lambda: self._persisted().count()))

    def digest(self, buckets: int) -> Mapping[int, BucketDigest]:
        from pyspark.sql import functions as F

        hashed = self._digests(buckets, show_keys=False)
        found: list[Any] = self.run_job(
            lambda: hashed.groupBy(BUCKET).agg(F.count("*").alias("rows"), checksum().alias("checksum")).collect()
        )
        return {row[BUCKET]: BucketDigest(int(row["rows"]), int(row["checksum"])) for row in found}

    def rows(self, buckets: int, chosen: Collection[int], *, show_keys: bool) -> Iterator[RowDigest]:
        from pyspark.sql import functions as F

        hashed = self._digests(buckets, show_keys=show_keys).where(F.col(BUCKET).isin(list(chosen)))
        for row in self.run_job(hashed.collect):
            yield RowDigest(row[KEY_DIGEST], row[ROW_DIGEST], row[KEY_TEXT])

    def close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.unpersist()

    def _digests(self, buckets: int, *, show_keys: bool) -> DataFrame:
        return digests(self._persisted(), self.schema(), self._source.key, buckets, show_keys=show_keys)

    def _persisted(self) -> DataFrame:
        if self._rows is None:
            self._rows = self.frame().persist()
        return self._rows
