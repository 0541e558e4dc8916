"""Sealed rows of a trail as readers get them: with what can be opened in its columns, and why the rest cannot be."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType, TimestampType

from audit.columns import GROUPS, SEALED, Column, plain_type
from audit.keys.cipher import Opener
from audit.keys.data import as_data
from audit.keys.groups import Unreadable, read_group
from audit.keys.registry import KeyState, States

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KEPT_SECONDS", "Eras", "KeysTooOld", "has_groups", "lost_names", "opened", "sealed_names", "shut"]

Eras: TypeAlias = "Sequence[tuple[int, Sequence[Column]]]"
"""The columns from a version on, ascending."""

_STATE = StructType(
    [
        StructField("key_id", BinaryType()),
        StructField("key", BinaryType()),
        StructField("erased_at", TimestampType()),
        StructField("erased_by", StringType()),
    ]
)
KEPT_SECONDS = 300
"""So long the keys of what readers hold open something: whoever is erased meanwhile is read for five minutes at most."""


class KeysTooOld(Exception):
    """Raised in Spark's tasks."""


def has_groups(payload: DataFrame) -> bool:
    """By the columns that a trail with groups has; somebody may have added others, or of another type."""
    row = payload.schema["row"].dataType
    placed = isinstance(row, StructType) and SEALED in row.names and plain_type(row[SEALED].dataType) == GROUPS
    return placed and "sealed" in payload.columns


def sealed_names(payload: DataFrame) -> set[str]:
    """Of the columns that are sealed in any row, with their case folded."""
    from pyspark.sql import functions as F

    if not has_groups(payload):
        return set()
    names = F.explode(F.flatten(F.col("row").getField(SEALED)["columns"]))
    return {row[0].casefold() for row in payload.select(names).distinct().collect()}


def lost_names(payload: DataFrame, states: States) -> set[str]:
    """Of the columns that a key which is gone has sealed in any row, with their case folded."""
    from pyspark.sql import functions as F

    group = F.explode(F.col("row").getField(SEALED)).alias("group")
    rows = payload.select(group).select("group.key_id", "group.columns").distinct().collect()
    known = states({bytes(row["key_id"]) for row in rows})
    living = {key_id for key_id, one in known.items() if one.key is not None}
    return {name.casefold() for row in rows if bytes(row["key_id"]) not in living for name in row["columns"]}


def shut(payload: DataFrame) -> DataFrame:
    """With ``unreadable``, by column: ``[sealed]``. Opens nothing."""
    from pyspark.sql import functions as F

    groups = F.col("row").getField(SEALED)
    said = F.lit(str(Unreadable("sealed")))
    pairs = F.transform(groups, lambda group: F.transform(group["columns"], lambda name: F.struct(name, said)))
    return payload.withColumn("unreadable", F.map_from_entries(F.flatten(pairs)))


def opened(
    payload: DataFrame, eras: Eras, states: States, tokens: frozenset[bytes] | None = None, *, until: float = math.inf
) -> DataFrame:
    """``payload`` whose ``row`` has the values that can be opened, and no groups; and ``unreadable``: by column, why its
    value is not shown, NULL where all are. ``states``: of ``Registry.states``. ``tokens``: what is sealed for others stays
    so, and their keys are not asked for. ``until``: the time from which on the rows cannot be read any more.

    The keys travel as data; who has them is asked once, now.
    """
    from pyspark.sql import functions as F

    groups = F.col("row").getField(SEALED)
    told = payload.select(F.posexplode(groups).alias("place", "group")).select("place", "group.key_id", "group.token")
    sealed = told.groupBy("key_id", "token").agg(F.max("place").alias("place")).collect()
    known = states([bytes(one["key_id"]) for one in sealed if tokens is None or bytes(one["token"]) in tokens])
    keys = _as_data(payload.sparkSession, known)
    rows, places = payload, range(1 + max((one["place"] for one in sealed), default=-1))
    for place in places:  # a join for each place, and the row stays where it is
        state = keys.withColumnRenamed("state", f"deltarelay_state_{place}")
        same = F.get(groups["key_id"], F.lit(place)) == state[f"deltarelay_state_{place}"]["key_id"]
        rows = rows.join(state, same, "left")
    found = F.array(*(f"deltarelay_state_{place}" for place in places)).cast(ArrayType(_STATE))
    schema = StructType([*payload.schema.fields, StructField("unreadable", MapType(StringType(), StringType()))])
    return rows.select(*payload.columns, found.alias("deltarelay_states")).mapInArrow(
        partial(_opened, [(version, list(columns)) for version, columns in eras], tokens, until), schema
    )


def _as_data(spark: SparkSession, known: Mapping[bytes, KeyState]) -> DataFrame:
    told = [
        {"key_id": one.key_id, "key": one.key, "erased_at": one.shredded_at, "erased_by": one.shredded_by}
        for one in known.values()
    ]
    return as_data(spark, [told], StructType([StructField("state", _STATE)]))


def _opened(
    eras: Eras, tokens: frozenset[bytes] | None, until: float, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    starts, opener = [version for version, _ in eras], Opener()
    for batch in batches:
        if time.time() >= until:
            raise KeysTooOld
        states = batch.column("deltarelay_states")
        rows = batch.select([name for name in batch.schema.names if name != "deltarelay_states"])
        era = np.searchsorted(starts, rows.column("version").fill_null(-1).to_numpy(), side="right") - 1
        for one in np.unique(era[era >= 0]):
            places = pa.array(np.flatnonzero(era == one))
            yield _with_values(rows.take(places), states.take(places), eras[one][1], tokens, opener)
        if len(places := np.flatnonzero(era < 0)):  # of no commit: nobody knows what would be in it
            yield _with_values(rows.take(pa.array(places)), states.take(pa.array(places)), (), tokens, opener)


def _with_values(
    rows: pa.RecordBatch,
    states: pa.Array,
    columns: Sequence[Column],
    tokens: frozenset[bytes] | None,
    opener: Opener,
) -> pa.RecordBatch:
    import pyarrow as pa

    from audit.decoding import decode_rows
    from audit.verify.values import hashes

    live = {column.name: column for column in columns if column.live}
    row = rows.column("row")
    parts = dict(zip((field.name for field in row.type), row.flatten(), strict=True))
    intact = [
        one is not None and one == kept
        for one, kept in zip(hashes(rows, columns), rows.column("row_hash").to_pylist(), strict=True)
    ]
    read_by: dict[tuple[str, ...], list[tuple[int, bytes]]] = {}
    unreadable: list[dict[str, str]] = [{} for _ in intact]
    beside = (parts[SEALED].to_pylist(), rows.column("sealed").to_pylist(), states.to_pylist())
    ids = rows.column("id").to_pylist()
    for at, (groups, texts, known) in enumerate(zip(*beside, strict=True)):
        texts = texts if texts is not None and len(texts) == len(groups or ()) else [None] * len(groups or ())
        for group, text, told in zip(groups or (), texts, known or (), strict=False):  # others may have more groups
            if tokens is not None and group["token"] not in tokens:
                unreadable[at].update(dict.fromkeys(group["columns"], str(Unreadable("sealed"))))
                continue
            read = read_group(group, text, ids[at], _state(told), opener, intact=intact[at])
            if isinstance(read, Unreadable):
                unreadable[at].update(dict.fromkeys(group["columns"], str(read)))
            else:
                read_by.setdefault(tuple(group["columns"]), []).append((at, read))
    for names, found in read_by.items():
        own = [live[name] for name in names if name in live]
        values, canonical = decode_rows(
            [one for _, one in found], StructType([StructField(one.name, one.type) for one in own])
        )
        for (at, _), right in zip(found, canonical, strict=True):
            if not right:
                unreadable[at].update(dict.fromkeys(names, str(Unreadable("tampered"))))
        chosen = list(range(rows.num_rows))
        for place, (at, _) in enumerate(found):
            chosen[at] = rows.num_rows + place
        for column, new in zip(own, values, strict=True):
            held = parts[column.stored]
            parts[column.stored] = pa.concat_arrays([held, new.cast(held.type)]).take(pa.array(chosen, pa.int64()))
    parts[SEALED] = pa.nulls(rows.num_rows, parts[SEALED].type)
    whole = pa.StructArray.from_arrays(list(parts.values()), fields=list(row.type))
    told_why = pa.array([list(one.items()) or None for one in unreadable], pa.map_(pa.string(), pa.string()))
    arrays = [whole if name == "row" else rows.column(name) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays([*arrays, told_why], names=[*rows.schema.names, "unreadable"])


def _state(told: Mapping[str, Any] | None) -> KeyState | None:
    if told is None:
        return None
    return KeyState(told["key_id"], "", told["key"], told["erased_at"], told["erased_by"])
