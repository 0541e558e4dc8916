"""Compares two columns of any type by their canonical encoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, DataType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


__all__ = ["add_same"]


def add_same(rows: DataFrame, before: str, after: str) -> DataFrame:
    """Add ``same``: whether two columns have equal values, by their canonical encoding, because Spark cannot compare
    maps."""
    schema = StructType([*rows.schema.fields, StructField("same", BooleanType())])
    return rows.mapInArrow(partial(_add_same_to_batches, rows.schema[after].dataType, before, after), schema)


def _add_same_to_batches(
    type: DataType, before: str, after: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_columns

    schema = StructType([StructField(before, type), StructField(after, type)])
    for batch in batches:
        pairs = zip(*encode_columns(batch.select([before, after]), schema), strict=True)
        same = pa.array([one == other for one, other in pairs], pa.bool_())
        yield pa.RecordBatch.from_arrays([*batch.columns, same], names=[*batch.schema.names, "same"])
