"""The rows of a change feed as Kafka events, in Spark SQL: one shuffle, one sort, and no row ever reaches Python.

Each image of a row becomes JSON before the shuffle. The shuffle brings all keys of a lane together; the sort, by version,
key, removes before puts, and the row's text, makes the order of a lane the same in every computation of the same rows, so
that a writer can go on in the middle. The feed does not pair the images of an update: an image before and an image after
of one key in one version are neighbours in that order, and belong together.

    ====================================  ======================  ==========================
    the feed has, of one key and version  ``debezium``            ``row``
    ====================================  ======================  ==========================
    ``delete``                            d, tombstone            tombstone
    preimage and postimage                u                       the row
    preimage alone: its key was changed   d, tombstone            tombstone
    postimage alone: it came to this key  c                       the row
    ``insert``                            c                       the row
    ====================================  ======================  ==========================

A table that holds a key several times is no error here. Its preimages and postimages are each put in the order of their
JSON, the last of the former is paired with the first of the latter, and the others stand alone. ``again`` counts such
changes: a put of a key after a put of it, or a remove before a remove of it, in one version; in a snapshot each row of a key
but the first. Of a net effect it is ``CONFLICTS``, which also counts over the versions of the window. What a key's earlier
windows, and in a history its earlier versions, say is not looked at.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import types as T

from cdf.changes.canonical import plain_decimals
from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    METADATA_COLUMNS,
    TRANSIENT,
    UPDATE,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    quoted,
)
from cdf.changes.keys import MARK, check_key
from cdf.errors import ConfigError, TypeNotSupported
from connectors.kafka.connect_schema import envelope_schema, key_schema, row_schema
from connectors.kafka.write.json_form import has_form, json_object

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

__all__ = ["Envelope", "EventFormat", "to_envelope", "snapshot_to_envelope", "check_schema"]

Envelope = Literal["debezium", "row"]

CREATED, UPDATED, DELETED, READ, TOMBSTONE = "c", "u", "d", "r", "t"
_SNAPSHOT = "snapshot"
_CHANGE_TYPES = {CREATED: INSERT, UPDATED: UPDATE, DELETED: DELETE, TOMBSTONE: DELETE, READ: _SNAPSHOT}

# The order of the changes of one key in one version. Preimages and postimages have to be neighbours.
_REMOVED, _BEFORE, _AFTER, _ADDED = range(4)
_SIDES = {DELETE: _REMOVED, UPDATE_PREIMAGE: _BEFORE, UPDATE_POSTIMAGE: _AFTER, UPDATE: _AFTER, INSERT: _ADDED}
_SIDES |= {TRANSIENT: _REMOVED}

_EVERY_KEY = "spark.sql.requireAllClusterKeysForDistribution"


@dataclass(frozen=True, slots=True)
class EventFormat:
    """How the events of a topic are written."""

    envelope: Envelope = "debezium"
    schemas: bool = False
    """Kafka Connect's schema beside every key and value: ``{"schema": …, "payload": …}``."""


def check_schema(schema: T.StructType, key: Sequence[str], format: EventFormat) -> list[str]:  # noqa: ARG001
    """Why rows of this schema cannot be written without loss: every type, by name. Empty: they can.

    JSON holds the same types in each envelope, with and without Connect's schema; formats to come may not.
    """
    problems = [
        f"column {field.name!r} has type {field.dataType.simpleString()}, which has no JSON form without loss"
        for field in _columns(schema).fields
        if not has_form(field.dataType)
    ]
    if key:
        try:
            check_key(schema, key, "the table")
        except TypeNotSupported as error:
            problems.append(error.message)
    return problems


def to_envelope(
    changes: DataFrame,
    *,
    key: Sequence[str],
    table: str,
    table_id: str,
    pipeline: str,
    format: EventFormat,
    net: bool = False,
    lanes: int = 1,
    withheld: Collection[int] = (),
) -> DataFrame:
    """The events of the feed's rows; with ``net``, of a net effect (``Window.net()``), where ``before`` is always null.

    ``withheld``: versions that erased somebody; ``before`` is null in them too, for the feed has that row whole.

    Columns: ``lane``, ``key``, ``value`` (null: a tombstone), ``op`` (c, u, d, r, or t for a tombstone), ``version``,
    ``timestamp``, ``change_type``, ``again`` and ``event_id``. Partition n holds lane n and nothing else, in one order
    whatever the order of ``changes``: by version, then key, then removes before puts.

    A key's lane depends on its value and the number of lanes alone. The event id is the MD5 of table id, version, op, key
    and value: the same in every window, retry and rewind. Two events have the same id only if all of these are equal, as
    when a table without a real key holds a row twice.

    A null in the key, and a value that JSON cannot hold, fail the job that computes the events: ``Window.failure`` and
    ``connectors.kafka.write.json_form.rejection_of`` put that in words.
    """
    from pyspark.sql import functions as F

    events = _Events(changes, key, table, table_id, pipeline, format, lanes)
    version, kind = quoted(COMMIT_VERSION), quoted(CHANGE_TYPE)
    again = quoted(CONFLICTS) if net else F.lit(0)
    images = events.images(version, quoted(COMMIT_TIMESTAMP), _coded(kind, _SIDES), again)
    if net:
        return events.written(_net_ops(events.in_order(images)), snapshot=False)
    return events.written(_withheld(events.paired(images), withheld), snapshot=False)


def snapshot_to_envelope(
    rows: DataFrame,
    *,
    key: Sequence[str],
    table: str,
    table_id: str,
    pipeline: str,
    version: int,
    timestamp: dt.datetime | None,
    format: EventFormat,
    lanes: int = 1,
) -> DataFrame:
    """Every row of the table at ``version`` as an ``r`` event; columns and order as ``to_envelope`` has them."""
    from pyspark.sql import functions as F

    events = _Events(rows, key, table, table_id, pipeline, format, lanes)
    # A type by its name may mean another one in a session that says so
    unknown = F.lit(None).cast(T.TimestampType())
    time = unknown if timestamp is None else F.timestamp_micros(F.lit(_micros(timestamp)))
    images = events.images(F.lit(version).cast("long"), time, F.lit(_ADDED), F.lit(0))
    again = F.lag(F.lit(1), 1, 0).over(_neighbours())
    read = images.withColumns({_OP: F.lit(READ), _BEFORE_IMAGE: F.lit(None).cast("string"), _AGAIN: again})
    return events.written(read, snapshot=True)


# The columns between the steps. The table's own columns are gone by then: they are in the images.
_LANE, _KEY, _VERSION, _TIME, _SIDE, _IMAGE, _BEFORE_IMAGE, _OP, _AGAIN = (
    "lane", "key", "version", "timestamp", "side", "image", "before", "op", "again"
)  # fmt: skip


class _Events:
    """What is the same for every row of one call, and the steps that need it."""

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
        self._rows = rows
        self._schema = _columns(rows.schema)
        self._key = tuple(key)
        self._format = format
        self._lanes = lanes
        self._table_id = table_id
        self._pipeline = pipeline
        self._source = {"connector": "deltarelay", "name": pipeline, "table": table, "table_id": table_id}
        if rows.isStreaming:
            raise ConfigError(
                "events cannot be made of a stream itself: their order needs the rows of a whole version",
                hint="make them inside of foreachBatch, where each micro-batch is an ordinary DataFrame",
            )
        check_key(self._schema, self._key, table)
        if problems := check_schema(self._schema, self._key, format):
            raise TypeNotSupported("; ".join(problems), hint="leave the columns out, or cast them at the source")
        if (rows.sparkSession.conf.get(_EVERY_KEY, "false") or "").lower() == "true":
            raise ConfigError(
                f"the session has {_EVERY_KEY} = true: Spark would tear the lanes apart to pair the images of updates",
                hint="set it to false for the session that makes the events",
            )

    @property
    def _debezium(self) -> bool:
        return self._format.envelope == "debezium"

    def images(self, version: Column, time: Column, side: Column, again: Column) -> DataFrame:
        """Every row's key and text, and its lane, in that lane's partition."""
        from pyspark.sql import functions as F

        null_key = reduce(or_, (quoted(name).isNull() for name in self._key))
        refusal = F.raise_error(F.concat(F.lit(f"{MARK} null_key "), version.cast("string"))).cast("string")
        image = self._json(self._schema.names, version)
        if not self._debezium:
            image = F.when(side >= _AFTER, image)  # nobody will see the row that was removed
        with plain_decimals(self._rows.sparkSession):
            texts = self._rows.select(
                version.alias(_VERSION),
                time.alias(_TIME),
                side.alias(_SIDE),
                F.when(null_key, refusal).otherwise(self._json(self._key, version)).alias(_KEY),
                image.alias(_IMAGE),
                again.alias(_AGAIN),
            )
        lane = F.pmod(F.crc32(F.col(_KEY).cast("binary")), F.lit(self._lanes)).cast("int")
        return texts.select("*", lane.alias(_LANE)).repartitionById(self._lanes, _LANE)

    def _json(self, names: Sequence[str], version: Column) -> Column:
        return json_object(self._schema, names, version, connect=self._format.schemas)

    def in_order(self, images: DataFrame) -> DataFrame:
        return images.sortWithinPartitions(_VERSION, _KEY, _SIDE, _IMAGE)

    def paired(self, images: DataFrame) -> DataFrame:
        """Op and image before, from the neighbours; without the preimages that an update has taken up."""
        from pyspark.sql import functions as F

        neighbours = _neighbours()
        side = F.col(_SIDE)
        before, after = F.lag(side).over(neighbours), F.lead(side).over(neighbours)
        marked = images.select(
            "*",
            F.coalesce((side == _BEFORE) & (after == _AFTER), F.lit(False)).alias("taken_up"),
            F.coalesce((side == _AFTER) & (before == _BEFORE), F.lit(False)).alias("updates"),
            F.lag(_IMAGE).over(neighbours).alias("neighbour"),
            # Of the removes the last one may be taken up, and of the puts the first one may have taken it up
            F.coalesce(
                ((side >= _AFTER) & (before >= _AFTER)) | ((side < _AFTER) & (after < _AFTER)), F.lit(False)
            ).alias("doubled"),
        )
        updates = F.col("updates")
        return marked.where(~F.col("taken_up")).select(
            *(name for name in images.columns if name != _AGAIN),
            F.col("doubled").cast("int").alias(_AGAIN),
            F.when(updates, UPDATED).when(side >= _AFTER, CREATED).otherwise(DELETED).alias(_OP),
            F.when(updates, F.col("neighbour")).when(side < _AFTER, F.col(_IMAGE)).alias(_BEFORE_IMAGE),
        )

    def written(self, rows: DataFrame, *, snapshot: bool) -> DataFrame:
        """Keys, values and what else a record has; a tombstone behind each delete."""
        from pyspark.sql import functions as F

        rows = rows.withColumn(_OP, self._ops())
        op, key = F.col(_OP), F.col(_KEY)
        value = self._enveloped(snapshot) if self._debezium else F.col(_IMAGE)
        written = rows.select(
            _LANE,
            self._with_schema(key, self._key_schema()).alias("key"),
            F.when(op != TOMBSTONE, self._with_schema(value, self._value_schema())).alias("value"),
            _OP,
            _VERSION,
            _TIME,
            self._change_type().alias("change_type"),
            _AGAIN,
        )
        # Nothing but the value can hold the sign between the parts, and it is the last
        parts = (F.lit(self._table_id), F.col(_VERSION).cast("string"), op, key, F.coalesce("value", F.lit("")))
        return written.select(
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

    def _change_type(self) -> Column:
        """As the feed has it; `update` where both images are in one event."""
        from pyspark.sql import functions as F

        op, side = F.col(_OP), F.col(_SIDE)
        alone = F.when((side == _AFTER) & (op == CREATED), UPDATE_POSTIMAGE)
        alone = alone.when((side == _BEFORE) & op.isin(DELETED, TOMBSTONE), UPDATE_PREIMAGE)
        return alone.otherwise(_coded(op, _CHANGE_TYPES))

    def _ops(self) -> Column:
        from pyspark.sql import functions as F

        op = F.col(_OP)
        if not self._debezium:
            return F.when(op == DELETED, TOMBSTONE).otherwise(op)
        with_tombstone = F.array(F.lit(DELETED), F.lit(TOMBSTONE))
        return F.explode(F.when(op == DELETED, with_tombstone).otherwise(F.array(op)))

    def _enveloped(self, snapshot: bool) -> Column:
        from pyspark.sql import functions as F

        def text(value: str) -> Column:
            return F.lit(value)

        def or_null(value: Column) -> Column:
            return F.coalesce(value, F.lit("null"))

        time = or_null(F.unix_millis(_TIME).cast("string"))
        names = _dumped({**self._source, "snapshot": str(snapshot).lower()}).removesuffix("}")
        after = F.when(F.col(_OP) != DELETED, F.col(_IMAGE))
        return F.concat(
            text('{"before":'), or_null(F.col(_BEFORE_IMAGE)),
            text(',"after":'), or_null(after),
            text(f',"source":{names},"ts_ms":'), time,
            text(',"commit_version":'), F.col(_VERSION).cast("string"),
            text('},"op":"'), F.col(_OP),
            text('","ts_ms":'), time, text("}"),
        )  # fmt: skip

    def _with_schema(self, payload: Column, schema: dict[str, Any]) -> Column:
        from pyspark.sql import functions as F

        if not self._format.schemas:
            return payload
        return F.concat(F.lit(f'{{"schema":{_dumped(schema)},"payload":'), payload, F.lit("}"))

    def _key_schema(self) -> dict[str, Any]:
        return key_schema(self._schema, self._key, self._pipeline)

    def _value_schema(self) -> dict[str, Any]:
        make = envelope_schema if self._debezium else row_schema
        return make(self._schema, self._key, self._pipeline)


def _neighbours() -> WindowSpec:
    """By key and version, not by lane: Spark keeps all rows of a window's partition until it has the last one. The rows are
    where this needs them already, and the sort for it is the order of the events."""
    from pyspark.sql import Window as Over

    return Over.partitionBy(_LANE, _VERSION, _KEY).orderBy(_SIDE, _IMAGE)


def _net_ops(images: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    op = _coded(F.col(_SIDE), {_ADDED: CREATED, _AFTER: UPDATED, _REMOVED: DELETED})
    return images.withColumns({_OP: op, _BEFORE_IMAGE: F.lit(None).cast("string")})


def _withheld(paired: DataFrame, versions: Collection[int]) -> DataFrame:
    from pyspark.sql import functions as F

    if not versions:
        return paired
    image = F.when(~F.col(_VERSION).isin(*versions), F.col(_BEFORE_IMAGE))
    return paired.withColumn(_BEFORE_IMAGE, image)


def _columns(schema: T.StructType) -> T.StructType:
    """The table's own columns."""
    return T.StructType([field for field in schema.fields if field.name not in (*METADATA_COLUMNS, CONFLICTS)])


def _coded(value: Column, codes: Mapping[Any, Any]) -> Column:
    from pyspark.sql import functions as F

    (first, code), *others = codes.items()
    return reduce(lambda found, other: found.when(value == other[0], other[1]), others, F.when(value == first, code))


def _micros(time: dt.datetime) -> int:
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _dumped(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
