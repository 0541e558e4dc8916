"""The images of rows as columns of Spark, placed and sorted for their events. ``envelope`` explains the result."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import types as T

from cdf.changes.canonical import plain_decimals
from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    TRANSIENT,
    UPDATE,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    quoted,
)
from cdf.changes.keys import MARK, check_key
from cdf.errors import ConfigError, TypeNotSupported
from cdf.spark_versions import repartition_by_number
from connectors.kafka.connect_schema import build_envelope_schema, build_key_schema, build_row_schema
from connectors.kafka.event_format import EventFormat, check_schema, select_table_columns
from connectors.kafka.types import to_json_object
from connectors.kafka.write.event_assembler import (
    ADDED,
    AFTER,
    BEFORE,
    EVENT_COLUMNS,
    REMOVED,
    EventAssembler,
    Images,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["EventBuilder", "EventRows"]

_SIDES = {DELETE: REMOVED, UPDATE_PREIMAGE: BEFORE, UPDATE_POSTIMAGE: AFTER, UPDATE: AFTER, INSERT: ADDED}
_SIDES |= {TRANSIENT: REMOVED}

# The columns of the images, besides the lane
_LANE, _KEY, _VERSION, _TIME, _SIDE, _IMAGE, _AGAIN = "lane", "key", "version", "at", "side", "image", "again"
_IMAGE_TYPES = {
    _LANE: "int32",
    _KEY: "binary",
    _IMAGE: "binary",
    _SIDE: "int32",
    _VERSION: "int64",
    _TIME: "int64",
    _AGAIN: "int32",
}


class EventRows(NamedTuple):
    """The images of rows, and what builds events of them."""

    unsorted: DataFrame
    lanes: int
    assembler: EventAssembler

    @property
    def images(self) -> DataFrame:
        """Sorted in the partition of their lane."""
        placed = repartition_by_number(self.unsorted, self.lanes, _LANE)
        return _select_bytes(placed.sortWithinPartitions(_VERSION, _KEY, _SIDE, _IMAGE))

    def collect_images(self) -> pa.Table:
        """In memory, one lane after the other. If the rows come from memory, Spark computes their text without a job."""
        import pyarrow as pa

        rows = _select_bytes(self.unsorted).collect()
        # By lane, and then as in ``images``: version, key, side, image; nulls first
        rows.sort(key=lambda row: (row[0], row[4], row[1], row[3], row[2] is not None, row[2] or b""))
        columns = zip(*rows, strict=True) if rows else ((),) * len(_IMAGE_TYPES)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _IMAGE_TYPES.values(), strict=True)]
        return pa.Table.from_arrays(arrays, names=list(_IMAGE_TYPES))

    def build_events(self) -> DataFrame:
        from pyspark.sql import functions as F

        assembler = self.assembler

        def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return assembler.assemble_batches(batches)

        events = self.images.mapInArrow(build, EVENT_COLUMNS)
        time = F.timestamp_micros("at").alias("timestamp")
        return events.select(_LANE, "key", "value", "op", "version", time, "change_type", "again", "event_id")


class EventBuilder:
    """Builds the events of a DataFrame; holds what is the same for all of its rows."""

    def __init__(
        self,
        rows: DataFrame,
        key: Sequence[str],
        table: str,
        table_id: str,
        pipeline: str,
        format: EventFormat,
        lanes: int,
    ) -> None:
        """Raises ConfigError and TypeNotSupported for rows of which no events can be built."""
        self._rows = rows
        self._schema = select_table_columns(rows.schema)
        self._key = tuple(key)
        self._format = format
        self._lanes = lanes
        self._table_id = table_id
        self._pipeline = pipeline
        self._source = {"connector": "deltarelay", "name": pipeline, "table": table, "table_id": table_id}
        self._is_debezium = format.envelope == "debezium"
        if rows.isStreaming:
            raise ConfigError(
                "events cannot be built from a stream: their order requires the rows of a whole version",
                hint="build them in foreachBatch, where each micro-batch is an ordinary DataFrame",
            )
        check_key(self._schema, self._key, table)
        if problems := check_schema(self._schema, self._key, format):
            raise TypeNotSupported("; ".join(problems), hint="leave the columns out, or cast them at the source")

    def build_changes(self, withheld: Collection[int]) -> EventRows:
        from pyspark.sql import functions as F

        images = self._build_feed_images(F.lit(0))
        return EventRows(images, self._lanes, self._build_assembler("changes", withheld))

    def build_net(self) -> EventRows:
        return EventRows(self._build_feed_images(quoted(CONFLICTS)), self._lanes, self._build_assembler("net"))

    def build_snapshot(self, version: int, timestamp: dt.datetime | None) -> EventRows:
        from pyspark.sql import functions as F

        at = F.lit(None if timestamp is None else _to_micros(timestamp)).cast("long")
        images = self._build_images(F.lit(version).cast("long"), at, F.lit(ADDED), F.lit(0))
        return EventRows(images, self._lanes, self._build_assembler("snapshot"))

    # ── images ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _build_feed_images(self, again: Column) -> DataFrame:
        side = _map_codes(quoted(CHANGE_TYPE), _SIDES)
        from pyspark.sql import functions as F

        return self._build_images(quoted(COMMIT_VERSION), F.unix_micros(quoted(COMMIT_TIMESTAMP)), side, again)

    def _build_images(self, version: Column, time: Column, side: Column, again: Column) -> DataFrame:
        """Return the key, the text and the lane of every row."""
        from pyspark.sql import functions as F

        null_key = reduce(or_, (quoted(name).isNull() for name in self._key))
        refusal = F.raise_error(F.concat(F.lit(f"{MARK} null_key "), version.cast("string"))).cast("string")
        image = self._to_json(self._schema.names, version)
        if not self._is_debezium:
            image = F.when(side >= AFTER, image)  # no event contains the removed row
        with plain_decimals(self._rows.sparkSession):
            texts = self._rows.select(
                version.alias(_VERSION),
                time.alias(_TIME),
                side.alias(_SIDE),
                F.when(null_key, refusal).otherwise(self._to_json(self._key, version)).alias(_KEY),
                image.alias(_IMAGE),
                again.alias(_AGAIN),
            )
        lane = F.pmod(F.crc32(F.col(_KEY).cast("binary")), F.lit(self._lanes)).cast("int")
        return texts.select("*", lane.alias(_LANE))

    def _to_json(self, names: Sequence[str], version: Column) -> Column:
        return to_json_object(self._schema, names, version, connect=self._format.schemas)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _build_assembler(self, images: Images, withheld: Collection[int] = ()) -> EventAssembler:
        build_value_schema = build_envelope_schema if self._is_debezium else build_row_schema
        source = _dump_json({**self._source, "snapshot": str(images == "snapshot").lower()}).removesuffix("}")
        return EventAssembler(
            images=images,
            table_id=self._table_id,
            source=f',"source":{source}'.encode() if self._is_debezium else None,
            key_head=self._build_head(build_key_schema),
            value_head=self._build_head(build_value_schema),
            tail=b"}" if self._format.schemas else b"",
            withheld=frozenset(withheld),
        )

    def _build_head(self, build_schema: Callable[[T.StructType, Sequence[str], str], dict[str, Any]]) -> bytes:
        if not self._format.schemas:
            return b""
        schema = build_schema(self._schema, self._key, self._pipeline)
        return f'{{"schema":{_dump_json(schema)},"payload":'.encode()


def _select_bytes(images: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    kinds = {_KEY: "binary", _IMAGE: "binary"}
    return images.select(
        *(F.col(name).cast(kinds[name]).alias(name) if name in kinds else name for name in _IMAGE_TYPES)
    )


def _map_codes(value: Column, codes: Mapping[Any, Any]) -> Column:
    from pyspark.sql import functions as F

    (first, code), *others = codes.items()
    return reduce(lambda found, other: found.when(value == other[0], other[1]), others, F.when(value == first, code))


def _to_micros(time: dt.datetime) -> int:
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _dump_json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
