"""The steps from rows to events, as columns of Spark: images, pairs of images, records. ``envelope`` explains the result."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

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
from cdf.spark_versions import partition_columns, repartition_by_number
from connectors.kafka.connect_schema import build_envelope_schema, build_key_schema, build_row_schema
from connectors.kafka.event_format import EventFormat, check_schema, select_table_columns
from connectors.kafka.types import to_json_object

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

__all__ = ["TOMBSTONE", "EventBuilder"]

CREATED, UPDATED, DELETED, READ, TOMBSTONE = "c", "u", "d", "r", "t"
_SNAPSHOT = "snapshot"
_CHANGE_TYPES = {CREATED: INSERT, UPDATED: UPDATE, DELETED: DELETE, TOMBSTONE: DELETE, READ: _SNAPSHOT}

# The order of the changes of one key in one version. Preimages and postimages must be neighbours.
_REMOVED, _BEFORE, _AFTER, _ADDED = range(4)
_SIDES = {DELETE: _REMOVED, UPDATE_PREIMAGE: _BEFORE, UPDATE_POSTIMAGE: _AFTER, UPDATE: _AFTER, INSERT: _ADDED}
_SIDES |= {TRANSIENT: _REMOVED}

_EVERY_KEY = "spark.sql.requireAllClusterKeysForDistribution"

# The columns between the steps. The images contain the table's own columns.
_LANE, _KEY, _VERSION, _TIME, _SIDE, _IMAGE, _BEFORE_IMAGE, _OP, _AGAIN = (
    "lane", "key", "version", "timestamp", "side", "image", "before", "op", "again"
)  # fmt: skip


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
        if (rows.sparkSession.conf.get(_EVERY_KEY, "false") or "").lower() == "true":
            raise ConfigError(
                f"the session has {_EVERY_KEY} = true: Spark would split the lanes in order to pair the images of updates",
                hint="set it to false in the session that builds the events",
            )

    def build_change_events(self, withheld: Collection[int]) -> DataFrame:
        from pyspark.sql import functions as F

        paired = _pair_images(self._build_feed_images(F.lit(0)))
        return self._build_records(_hide_before_images(paired, withheld), is_snapshot=False)

    def build_net_events(self) -> DataFrame:
        from pyspark.sql import functions as F

        images = self._build_feed_images(quoted(CONFLICTS))
        images = images.sortWithinPartitions(_VERSION, _KEY, _SIDE, _IMAGE)
        op = _map_codes(F.col(_SIDE), {_ADDED: CREATED, _AFTER: UPDATED, _REMOVED: DELETED})
        with_ops = images.withColumns({_OP: op, _BEFORE_IMAGE: F.lit(None).cast("string")})
        return self._build_records(with_ops, is_snapshot=False)

    def build_snapshot_events(self, version: int, timestamp: dt.datetime | None) -> DataFrame:
        from pyspark.sql import functions as F

        # A type given by name may mean another type in a session that is configured so
        unknown = F.lit(None).cast(T.TimestampType())
        time = unknown if timestamp is None else F.timestamp_micros(F.lit(_to_micros(timestamp)))
        images = self._build_images(F.lit(version).cast("long"), time, F.lit(_ADDED), F.lit(0))
        again = F.lag(F.lit(1), 1, 0).over(_get_neighbours(images))
        read = images.withColumns({_OP: F.lit(READ), _BEFORE_IMAGE: F.lit(None).cast("string"), _AGAIN: again})
        return self._build_records(read, is_snapshot=True)

    # ── images ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _build_feed_images(self, again: Column) -> DataFrame:
        side = _map_codes(quoted(CHANGE_TYPE), _SIDES)
        return self._build_images(quoted(COMMIT_VERSION), quoted(COMMIT_TIMESTAMP), side, again)

    def _build_images(self, version: Column, time: Column, side: Column, again: Column) -> DataFrame:
        """Return the key, the text and the lane of every row, in the partition of that lane."""
        from pyspark.sql import functions as F

        null_key = reduce(or_, (quoted(name).isNull() for name in self._key))
        refusal = F.raise_error(F.concat(F.lit(f"{MARK} null_key "), version.cast("string"))).cast("string")
        image = self._to_json(self._schema.names, version)
        if not self._is_debezium:
            image = F.when(side >= _AFTER, image)  # no event contains the removed row
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
        return repartition_by_number(texts.select("*", lane.alias(_LANE)), self._lanes, _LANE)

    def _to_json(self, names: Sequence[str], version: Column) -> Column:
        return to_json_object(self._schema, names, version, connect=self._format.schemas)

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _build_records(self, rows: DataFrame, *, is_snapshot: bool) -> DataFrame:
        """Build keys, values and the other fields of a record; a tombstone follows each delete."""
        from pyspark.sql import functions as F

        rows = rows.withColumn(_OP, self._build_ops())
        op, key = F.col(_OP), F.col(_KEY)
        value = self._wrap_in_envelope(is_snapshot) if self._is_debezium else F.col(_IMAGE)
        records = rows.select(
            _LANE,
            self._add_schema(key, build_key_schema(self._schema, self._key, self._pipeline)).alias("key"),
            F.when(op != TOMBSTONE, self._add_schema(value, self._build_value_schema())).alias("value"),
            _OP,
            _VERSION,
            _TIME,
            _build_change_type().alias("change_type"),
            _AGAIN,
        )
        # Only the value may contain the separator, and it comes last
        parts = (F.lit(self._table_id), F.col(_VERSION).cast("string"), op, key, F.coalesce("value", F.lit("")))
        return records.select(
            _LANE,
            key.cast("binary").alias("key"),
            F.col("value").cast("binary").alias("value"),
            _OP,
            _VERSION,
            _TIME,
            "change_type",
            _AGAIN,
            F.md5(F.concat_ws("\n", *parts).cast("binary")).alias("event_id"),
        )

    def _build_ops(self) -> Column:
        from pyspark.sql import functions as F

        op = F.col(_OP)
        if not self._is_debezium:
            return F.when(op == DELETED, TOMBSTONE).otherwise(op)
        with_tombstone = F.array(F.lit(DELETED), F.lit(TOMBSTONE))
        return F.explode(F.when(op == DELETED, with_tombstone).otherwise(F.array(op)))

    def _wrap_in_envelope(self, is_snapshot: bool) -> Column:
        from pyspark.sql import functions as F

        def text(value: str) -> Column:
            return F.lit(value)

        def or_null(value: Column) -> Column:
            return F.coalesce(value, F.lit("null"))

        time = or_null(F.unix_millis(_TIME).cast("string"))
        source = _dump_json({**self._source, "snapshot": str(is_snapshot).lower()}).removesuffix("}")
        after = F.when(F.col(_OP) != DELETED, F.col(_IMAGE))
        return F.concat(
            text('{"before":'), or_null(F.col(_BEFORE_IMAGE)),
            text(',"after":'), or_null(after),
            text(f',"source":{source},"ts_ms":'), time,
            text(',"commit_version":'), F.col(_VERSION).cast("string"),
            text('},"op":"'), F.col(_OP),
            text('","ts_ms":'), time, text("}"),
        )  # fmt: skip

    def _add_schema(self, payload: Column, schema: dict[str, Any]) -> Column:
        from pyspark.sql import functions as F

        if not self._format.schemas:
            return payload
        return F.concat(F.lit(f'{{"schema":{_dump_json(schema)},"payload":'), payload, F.lit("}"))

    def _build_value_schema(self) -> dict[str, Any]:
        build = build_envelope_schema if self._is_debezium else build_row_schema
        return build(self._schema, self._key, self._pipeline)


def _pair_images(images: DataFrame) -> DataFrame:
    """Add op and preimage, taken from the neighbouring row; drop the preimages that became part of an update."""
    from pyspark.sql import functions as F

    neighbours = _get_neighbours(images)
    side = F.col(_SIDE)
    before, after = F.lag(side).over(neighbours), F.lead(side).over(neighbours)
    marked = images.select(
        "*",
        F.coalesce((side == _BEFORE) & (after == _AFTER), F.lit(False)).alias("is_in_update"),
        F.coalesce((side == _AFTER) & (before == _BEFORE), F.lit(False)).alias("is_update"),
        F.lag(_IMAGE).over(neighbours).alias("neighbour"),
        # Only the last remove and the first put of a key may form an update
        F.coalesce(((side >= _AFTER) & (before >= _AFTER)) | ((side < _AFTER) & (after < _AFTER)), F.lit(False)).alias(
            "is_repeated"
        ),
    )
    is_update = F.col("is_update")
    return marked.where(~F.col("is_in_update")).select(
        *(name for name in images.columns if name != _AGAIN),
        F.col("is_repeated").cast("int").alias(_AGAIN),
        F.when(is_update, UPDATED).when(side >= _AFTER, CREATED).otherwise(DELETED).alias(_OP),
        F.when(is_update, F.col("neighbour")).when(side < _AFTER, F.col(_IMAGE)).alias(_BEFORE_IMAGE),
    )


def _hide_before_images(paired: DataFrame, versions: Collection[int]) -> DataFrame:
    from pyspark.sql import functions as F

    if not versions:
        return paired
    image = F.when(~F.col(_VERSION).isin(*versions), F.col(_BEFORE_IMAGE))
    return paired.withColumn(_BEFORE_IMAGE, image)


def _build_change_type() -> Column:
    """Return the change type of the feed; `update` if both images are in one event."""
    from pyspark.sql import functions as F

    op, side = F.col(_OP), F.col(_SIDE)
    unpaired = F.when((side == _AFTER) & (op == CREATED), UPDATE_POSTIMAGE)
    unpaired = unpaired.when((side == _BEFORE) & op.isin(DELETED, TOMBSTONE), UPDATE_PREIMAGE)
    return unpaired.otherwise(_map_codes(op, _CHANGE_TYPES))


def _get_neighbours(images: DataFrame) -> WindowSpec:
    """Return the rows of a key and version, not those of a lane: Spark keeps all rows of a window's partition in memory
    until it has the last one. The rows are in the right partitions already, and the sort is the order of the events."""
    from pyspark.sql import Window as Over

    return Over.partitionBy(*partition_columns(images, _LANE), _VERSION, _KEY).orderBy(_SIDE, _IMAGE)


def _map_codes(value: Column, codes: Mapping[Any, Any]) -> Column:
    from pyspark.sql import functions as F

    (first, code), *others = codes.items()
    return reduce(lambda found, other: found.when(value == other[0], other[1]), others, F.when(value == first, code))


def _to_micros(time: dt.datetime) -> int:
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _dump_json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
