"""How far a micro-batch of a streaming query goes: Delta's offset, from the query's own offset log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Offset", "find_running_query", "read_offset"]


@dataclass(frozen=True, slots=True)
class Offset:
    """Delta's offset, from one line of the query's offset log (``DeltaSourceOffset`` in Delta's source)."""

    table_id: str
    version: int
    index: int
    """-1: before ``version``; below -1: a schema change at it; from 0 on: the number of its files that were delivered."""

    @classmethod
    def parse(cls, line: str) -> Offset:
        found = json.loads(line)
        return cls(
            table_id=str(found["reservoirId"]),
            version=int(found["reservoirVersion"]),
            index=int(found["index"]),
        )

    @property
    def touched(self) -> int:
        """The last version of which anything was delivered."""
        return self.version if self.index >= 0 else self.version - 1


def read_offset(spark: SparkSession, checkpoint: str, batch_id: int) -> Offset | None:
    """The end of a micro-batch, from the checkpoint's offset log; None if the log has no such batch."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{batch_id}")
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if batch_id < 0 or not files.exists(path):
        return None
    stream = files.open(path)
    try:
        lines = str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")).splitlines()
    finally:
        stream.close()
    # "v1", the batch's metadata, then one line for each source
    sources = lines[2:]
    if len(sources) != 1 or '"reservoirId"' not in sources[0]:
        raise ConfigError(
            "the streaming query does not read exactly one Delta table",
            hint="pass the micro-batches of one ChangeFeed.stream() to this function",
        )
    return Offset.parse(sources[0])


def find_running_query(spark: SparkSession) -> Any:
    """The JVM's object for the query whose micro-batch this thread handles."""
    name = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    found = spark._jsparkSession.streams().get(name) if name else None
    if found is None:
        raise ConfigError("this function runs inside foreachBatch only", hint="pass it to writeStream.foreachBatch()")
    return found.streamingQuery()
