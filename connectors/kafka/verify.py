"""The rows of a compacted topic, which ``verify`` compares with the source: the last value of each key.

Tasks read the partitions up to the ends that they had when the comparison began. Compaction in the meantime changes nothing,
because it keeps the last record of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from cdf.errors import VerificationError
from cdf.session import find_session
from cdf.sink import Position, Source
from cdf.verify.spark_image import FrameImage
from connectors.kafka import topics
from connectors.kafka.client import Cluster
from connectors.kafka.errors import find_task_fault, to_cdf_error
from connectors.kafka.event_format import EventFormat
from connectors.kafka.inspect import read_existing_state
from connectors.kafka.reader import PartitionReader, read_commit_version
from connectors.kafka.target import KafkaTarget
from connectors.kafka.types import build_wire_type, parse_value

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message
    from pyspark.sql import DataFrame

__all__ = ["KafkaImage", "open_image", "read_newest_version"]

T = TypeVar("T")
_RECORD = "key binary, value binary, at long, version long"
_BATCH = 10_000


def open_image(target: KafkaTarget, source: Source) -> KafkaImage:
    """Fix the ends of the topic and its position. Raises VerificationError during a window, and KafkaFault."""
    existing = topics.describe_topics(target.cluster, target.topic, target.position_topic)
    state = read_existing_state(target, existing)
    if state.pending is not None:
        raise VerificationError(
            f"{target.topic} has only a part of version {state.pending.first} to {state.pending.last}, so it equals no "
            "version",
            hint="`deltarelay run` finishes it",
        )
    topic = existing.get(target.topic)
    ends = [] if topic is None else [high for _, high in topics.read_offsets(target.cluster, topic)]
    _wait_for_commits(target.cluster, target.topic, ends)
    now = read_existing_state(target, existing) if ends else state
    if (now.version, now.pending, now.lane_progress) != (state.version, state.pending, state.lane_progress):
        raise VerificationError(
            f"a run wrote to {target.topic} while the comparison started",
            hint="run verify again, or stop the pipeline first",
        )
    return KafkaImage(target.cluster, target.topic, ends, state.position, source, target.format)


def _wait_for_commits(cluster: Cluster, topic: str, ends: Sequence[int]) -> None:
    """Wait for the end of every transaction that has written before these ends. Then the position after it can be read."""
    for number, end in enumerate(ends):
        reader = PartitionReader(cluster, topic, number, max(0, end - 1))
        try:
            for _ in reader.stream(end):
                pass
        finally:
            reader.close()


class KafkaImage(FrameImage):
    """The rows of a compacted topic."""

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
        """Return the row of each key whose last record is not a tombstone, with the source's columns."""
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        schema, format = self._source.schema, self._format
        wire = build_wire_type(schema, connect=format.schemas)
        assert isinstance(wire, T.StructType)
        if format.envelope == "debezium":
            wire = T.StructType().add("after", wire)
        if format.schemas:
            wire = T.StructType().add("payload", wire)
        last = self._records().groupBy("key").agg(F.max_by("value", "at").alias("value"))
        # FAILFAST: a record in another form would otherwise be read as a row of nulls
        read = F.from_json(F.col("value").cast("string"), wire, {"mode": "FAILFAST"})
        if format.schemas:
            read = read["payload"]
        if format.envelope == "debezium":
            read = read["after"]
        rows = last.where(F.col("value").isNotNull()).select(read.alias("row")).where(F.col("row").isNotNull())
        columns = [
            parse_value(F.col("row").getField(field.name), field.dataType).alias(field.name) for field in schema.fields
        ]
        return rows.select(*columns)

    def _records(self) -> DataFrame:
        return _read_records(self._cluster, self._topic, self._ends)

    def run_job(self, job: Callable[[], T]) -> T:
        try:
            return job()
        except Exception as error:
            fault = find_task_fault(error)
            failure = (
                to_cdf_error(fault, "reading the topic")
                if fault is not None
                else VerificationError(
                    f"{self._topic} has records that are not events in the configured form",
                    hint="set `envelope` and `schemas` to the values with which the topic was written",
                )
            )
        raise failure


def read_newest_version(cluster: Cluster, topic: str, ends: Sequence[int]) -> int | None:
    """Return the newest commit version among the events before these offsets. Raises Spark's exceptions."""
    from pyspark.sql import functions as F

    found = _read_records(cluster, topic, tuple(ends)).agg(F.max("version")).first()
    return None if found is None else found[0]


def _read_records(cluster: Cluster, topic: str, ends: Sequence[int]) -> DataFrame:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from _read_partition(cluster, topic, number, ends[number])

    spark = find_session()
    if spark is None:
        raise VerificationError(f"reading {topic} needs a Spark session", hint="create one first")
    return spark.range(0, len(ends), 1, max(1, len(ends))).mapInArrow(read, _RECORD)


def _read_partition(cluster: Cluster, topic: str, partition: int, end: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("at", pa.int64()), ("version", pa.int64())])
    reader = PartitionReader(cluster, topic, partition)
    try:
        records = map(_to_row, reader.stream(end))
        while batch := list(islice(records, _BATCH)):
            columns = (
                pa.array(column, kind) for column, kind in zip(zip(*batch, strict=True), schema.types, strict=True)
            )
            yield pa.RecordBatch.from_arrays(list(columns), schema=schema)
    finally:
        reader.close()


def _to_row(message: Message) -> tuple[bytes | None, bytes | None, int, int | None]:
    return message.key(), message.value(), int(message.offset() or 0), read_commit_version(message)
