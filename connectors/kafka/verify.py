"""The topic folded to the last value of each key, in canonical form: what ``verify`` holds against the source.

The tasks read the partitions, from their beginnings to where they ended when the comparison began. It does not matter
whether the topic was compacted meanwhile: of each key the last record stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cdf.errors import VerificationError
from cdf.verify.spark_image import FrameImage
from connectors.kafka.client import Cluster, Reader
from connectors.kafka.errors import from_task, in_words
from connectors.kafka.write.json_form import parsed, wire_type

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message
    from pyspark.sql import DataFrame

    from cdf.sink import Position, Source
    from connectors.kafka.write.envelope import EventFormat

__all__ = ["KafkaImage", "newest_version"]

T = TypeVar("T")
_RECORD = "key binary, value binary, at long, version long"
_BATCH = 10_000


class KafkaImage(FrameImage):
    """The rows that a compacted topic leaves."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        ends: Sequence[int],
        position: Position,
        source: Source,
        format: EventFormat,
    ) -> None:
        super().__init__(position, source)
        self._cluster, self._topic, self._ends, self._format = cluster, topic, tuple(ends), format

    def frame(self) -> DataFrame:
        """The row of each key whose last record is no tombstone, with the source's columns."""
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        schema, format = self._source.schema, self._format
        wire = wire_type(schema, connect=format.schemas)
        assert isinstance(wire, T.StructType)
        if format.envelope == "debezium":
            wire = T.StructType().add("after", wire)
        if format.schemas:
            wire = T.StructType().add("payload", wire)
        last = self._records().groupBy("key").agg(F.max_by("value", "at").alias("value"))
        # What is no JSON of ours fails here, instead of being taken for a row of nulls
        read = F.from_json(F.col("value").cast("string"), wire, {"mode": "FAILFAST"})
        if format.schemas:
            read = read["payload"]
        if format.envelope == "debezium":
            read = read["after"]
        rows = last.where(F.col("value").isNotNull()).select(read.alias("row")).where(F.col("row").isNotNull())
        columns = [
            parsed(F.col("row").getField(field.name), field.dataType).alias(field.name) for field in schema.fields
        ]
        return rows.select(*columns)

    def _records(self) -> DataFrame:
        return _records(self._cluster, self._topic, self._ends)

    def run_job(self, job: Callable[[], T]) -> T:
        try:
            return job()
        except Exception as error:
            fault = from_task(error)
            failure = (
                in_words(fault, "reading the topic")
                if fault is not None
                else VerificationError(
                    f"{self._topic} holds records that are no events of this pipeline's settings",
                    hint="`envelope` and `schemas` have to be those that the topic was written with",
                )
            )
        raise failure


def newest_version(cluster: Cluster, topic: str, ends: Sequence[int]) -> int | None:
    """Of the commits whose events are in the topic, before these offsets. Raises what Spark raises."""
    from pyspark.sql import functions as F

    found = _records(cluster, topic, tuple(ends)).agg(F.max("version")).first()
    return None if found is None else found[0]


def _records(cluster: Cluster, topic: str, ends: Sequence[int]) -> DataFrame:
    from pyspark.sql import SparkSession

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from _read(cluster, topic, number, ends[number])

    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    return spark.range(0, len(ends), 1, max(1, len(ends))).mapInArrow(read, _RECORD)


def _read(cluster: Cluster, topic: str, partition: int, end: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("at", pa.int64()), ("version", pa.int64())])
    reader = Reader(cluster, topic, partition)
    try:
        records = map(_record, reader.stream(end))
        while some := list(islice(records, _BATCH)):
            columns = (
                pa.array(column, kind) for column, kind in zip(zip(*some, strict=True), schema.types, strict=True)
            )
            yield pa.RecordBatch.from_arrays(list(columns), schema=schema)
    finally:
        reader.close()


def _record(message: Message) -> tuple[bytes | None, bytes | None, int, int | None]:
    return message.key(), message.value(), int(message.offset() or 0), commit_version(message)


def commit_version(message: Message) -> int | None:
    """Of the source; None for a record that is not ours."""
    headers: Any = message.headers() or ()
    version = dict(headers).get("deltarelay.commit_version")
    return None if version is None else int(version)
