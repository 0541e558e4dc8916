"""Sends keys to Spark's tasks as rows of data. They never occur in a plan, which prints its literals.

PySpark hands data to the JVM in a file in the driver's ``spark.local.dir``. Spark removes the file, but its blocks stay on
disk, unless ``spark.io.encryption.enabled`` is on. The sessions of the commands turn it on where keys are configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from cdf.session import require_classic
from cdf.spark_versions import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["create_rows"]

_CHUNK = 50_000
_BROADCAST = 100_000
"""Maximum number of rows that are sent to every task."""


def create_rows(spark: SparkSession, columns: Sequence[Sequence[Any]], schema: StructType) -> DataFrame:
    """``columns``: the values of each column. A small result is broadcast where it is joined."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    require_classic(spark, "reading or writing encrypted columns")
    fields = arrow_schema(schema)
    count = len(columns[0])
    chunks = [
        _serialize(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(values[start : start + _CHUNK], field.type)
                    for values, field in zip(columns, fields, strict=True)
                ],
                schema=fields,
            )
        )
        for start in range(0, max(count, 1), _CHUNK)
    ]
    data = spark.createDataFrame(spark.sparkContext.parallelize(chunks, len(chunks)), "chunk binary")
    rows = data.mapInArrow(_deserialize, schema)
    return F.broadcast(rows) if count <= _BROADCAST else rows


def _serialize(batch: pa.RecordBatch) -> tuple[bytes]:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return (sink.getvalue().to_pybytes(),)


def _deserialize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for chunk in batch.column(0):
            yield from pa.ipc.open_stream(chunk.as_buffer())
