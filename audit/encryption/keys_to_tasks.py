"""Keys as rows of Spark's: as data that travels to the tasks, and never as part of a plan, which shows what stands in it.

Without ``spark.io.encryption.enabled`` PySpark hands data to the JVM by a file of the driver's ``spark.local.dir``, which is
removed at once and whose blocks are not: sessions that the commands make have it on where keys are configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["as_data"]

_CHUNK = 50_000
_BROADCAST = 100_000
"""So many rows at most are sent to every task."""


def as_data(spark: SparkSession, columns: Sequence[Sequence[Any]], schema: StructType) -> DataFrame:
    """``columns``: their values, one after the other. It is broadcast where it is joined, unless there is too much of it."""
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema

    form = to_arrow_schema(schema, timezone="UTC")
    count = len(columns[0])
    chunks = [
        _written(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(values[start : start + _CHUNK], field.type)
                    for values, field in zip(columns, form, strict=True)
                ],
                schema=form,
            )
        )
        for start in range(0, max(count, 1), _CHUNK)
    ]
    data = spark.createDataFrame(spark.sparkContext.parallelize(chunks, len(chunks)), "chunk binary")
    rows = data.mapInArrow(_read, schema)
    return F.broadcast(rows) if count <= _BROADCAST else rows


def _written(batch: pa.RecordBatch) -> tuple[bytes]:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return (sink.getvalue().to_pybytes(),)


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for chunk in batch.column(0):
            yield from pa.ipc.open_stream(chunk.as_buffer())
