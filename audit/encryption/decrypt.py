"""Sealed rows of a trail as readers get them: with what can be opened in its columns, and why the rest cannot be."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType, TimestampType

from audit.encryption.aead import Opener
from audit.encryption.column_groups import Unreadable, read_group
from audit.encryption.key_registry import KeyState, States
from audit.encryption.keys_to_tasks import as_data
from audit.trail.column_history import GROUPS, SEALED, Column, plain_type
from cdf.errors import VerificationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "KEPT_SECONDS",
    "Eras",
    "KeysTooOld",
    "groups_in",
    "has_groups",
    "lost_names",
    "opened",
    "sealed_names",
    "shut",
]

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
_TEXTS = ArrayType(BinaryType())
KEPT_SECONDS = 300
"""So long the keys of what readers hold open something: whoever is erased meanwhile is read for five minutes at most."""


class KeysTooOld(Exception):
    """Raised in Spark's tasks."""


def has_groups(payload: DataFrame) -> bool:
    """By the columns that a trail with groups has. Raises VerificationError where somebody has changed their form, or taken
    one away: what is sealed would look as if there were no value."""
    return groups_in(payload.schema)


def groups_in(payload: StructType) -> bool:
    """``has_groups``, by the schema alone."""
    row = payload["row"].dataType
    held = {field.name: plain_type(field.dataType) for field in row.fields} if isinstance(row, StructType) else {}
    groups = held.get(SEALED)
    texts = plain_type(payload["sealed"].dataType) if "sealed" in payload.names else None
    if groups is None and texts is None:
        return False
    if (groups, texts) != (GROUPS, _TEXTS):
        raise VerificationError(
            "what is sealed in the trail does not have the form any more in which it was written",
            hint="`deltarelay audit verify` tells what is altered",
        )
    return True


def sealed_names(payload: DataFrame) -> set[str]:
    """Of the columns that are sealed in any row, with their case folded."""
    from pyspark.sql import functions as F

    if not has_groups(payload):
        return set()
    return {row[0].casefold() for row in payload.select(F.explode(_columns())).distinct().collect()}


def _columns() -> SparkColumn:
    """Those that the groups of a row name, of which anybody may have written NULL."""
    from pyspark.sql import functions as F

    groups, none = F.col("row").getField(SEALED), F.array().cast("array<string>")
    named = F.flatten(F.transform(groups, lambda group: F.coalesce(group["columns"], none)))
    return F.filter(named, lambda name: name.isNotNull())


def lost_names(payload: DataFrame, states: States) -> set[str]:
    """Of the columns that a key which is gone has sealed in any row, with their case folded."""
    from pyspark.sql import functions as F

    group = F.explode(F.col("row").getField(SEALED)).alias("group")
    rows = payload.select(group).select("group.key_id", "group.columns").distinct().collect()
    known = states({bytes(row["key_id"]) for row in rows if row["key_id"] is not None})
    living = {key_id for key_id, one in known.items() if one.key is not None}
    lost = [row["columns"] or () for row in rows if row["key_id"] is None or bytes(row["key_id"]) not in living]
    return {name.casefold() for names in lost for name in names if name is not None}


def shut(payload: DataFrame) -> DataFrame:
    """With ``unreadable``, by column: ``[sealed]``. Opens nothing."""
    from pyspark.sql import functions as F

    names = F.array_distinct(_columns())
    said = F.array_repeat(F.lit(str(Unreadable("sealed"))), F.size(names))
    return payload.withColumn("unreadable", F.map_from_arrays(names, said))


def opened(
    payload: DataFrame,
    eras: Eras,
    states: States,
    tokens: frozenset[bytes] | None = None,
    *,
    until: float = math.inf,
    recorded: float = math.inf,
) -> DataFrame:
    """``payload`` whose ``row`` has the values that can be opened, and no groups; and ``unreadable``: by column, why its
    value is not shown, NULL where all are. ``states``: of ``Registry.states``. ``tokens``: what is sealed for others stays
    so, and their keys are not asked for. ``until``: the time from which on the rows cannot be read any more. ``recorded``:
    the last version whose columns are known; what is sealed of later ones stays so.

    Of a row that does not have the hash beside it all columns are ``[tampered]``: nobody can tell any more which of them
    were sealed. The keys travel as data; who has them is asked once, now: ``payload`` is to be of one version of its table.
    """
    from pyspark.sql import functions as F

    groups = F.col("row").getField(SEALED)
    asked = payload if recorded == math.inf else payload.where(F.col("version") <= recorded)
    told = asked.select(F.posexplode(groups).alias("place", "group")).select("place", "group.key_id", "group.token")
    sealed = told.groupBy("key_id", "token").agg(F.max("place").alias("place")).collect()
    theirs = [one for one in sealed if tokens is None or bytes(one["token"] or b"") in tokens]
    ids = [bytes(one["key_id"]) for one in theirs if one["key_id"] is not None]
    keys = _as_data(payload.sparkSession, states(ids) if ids else {})
    rows, places = payload, range(1 + max((one["place"] for one in sealed), default=-1))
    for place in places:  # a join for each place, and the row stays where it is
        state = keys.withColumnRenamed("state", f"deltarelay_state_{place}")
        same = F.get(groups["key_id"], F.lit(place)) == state[f"deltarelay_state_{place}"]["key_id"]
        rows = rows.join(state, same, "left")
    found = F.array(*(f"deltarelay_state_{place}" for place in places)).cast(ArrayType(_STATE))
    schema = StructType([*payload.schema.fields, StructField("unreadable", MapType(StringType(), StringType()))])
    return rows.select(*payload.columns, found.alias("deltarelay_states")).mapInArrow(
        partial(_opened, [(version, list(columns)) for version, columns in eras], tokens, until, recorded), schema
    )


def _as_data(spark: SparkSession, known: Mapping[bytes, KeyState]) -> DataFrame:
    told = [
        {"key_id": one.key_id, "key": one.key, "erased_at": one.shredded_at, "erased_by": one.shredded_by}
        for one in known.values()
    ]
    return as_data(spark, [told], StructType([StructField("state", _STATE)]))


def _opened(
    eras: Eras,
    tokens: frozenset[bytes] | None,
    until: float,
    recorded: float,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    starts, opener = [version for version, _ in eras], Opener()
    for batch in batches:
        if time.time() >= until:
            raise KeysTooOld
        states = batch.column("deltarelay_states")
        rows = batch.select([name for name in batch.schema.names if name != "deltarelay_states"])
        versions = rows.column("version").fill_null(-1).to_numpy()
        era = np.searchsorted(starts, versions, side="right") - 1
        era[versions > recorded] = _NOT_YET
        for one in np.unique(era):
            places = pa.array(np.flatnonzero(era == one))
            if one == _NOT_YET:
                yield _unopened(rows.take(places))
                continue
            columns = eras[one][1] if one >= 0 else ()  # of no commit: nobody knows what would be in it
            yield _with_values(rows.take(places), states.take(places), columns, tokens, opener)


_NOT_YET = -2


def _unopened(rows: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    groups = pc.struct_field(rows.column("row"), SEALED).to_pylist()
    return _told(
        rows, rows.column("row"), [dict.fromkeys(_names(of_row), str(Unreadable("sealed"))) for of_row in groups]
    )


def _names(groups: Sequence[Mapping[str, Any] | None] | None) -> list[str]:
    """The columns of these groups, which anybody may have written."""
    return [name for group in groups or () if group is not None for name in group["columns"] or () if name is not None]


def _told(rows: pa.RecordBatch, row: pa.Array, unreadable: Sequence[Mapping[str, str]]) -> pa.RecordBatch:
    import pyarrow as pa

    why = pa.array([list(one.items()) or None for one in unreadable], pa.map_(pa.string(), pa.string()))
    arrays = [row if name == "row" else rows.column(name) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays([*arrays, why], names=[*rows.schema.names, "unreadable"])


def _with_values(
    rows: pa.RecordBatch,
    states: pa.Array,
    columns: Sequence[Column],
    tokens: frozenset[bytes] | None,
    opener: Opener,
) -> pa.RecordBatch:
    import pyarrow as pa

    from audit.hashing.row_decoding import decode_rows
    from audit.trail.row_hashes import hash_rows

    live = {column.name: column for column in columns if column.live}
    row = rows.column("row")
    parts = dict(zip((field.name for field in row.type), row.flatten(), strict=True))
    intact = [
        one is not None and one == kept
        for one, kept in zip(hash_rows(rows, columns), rows.column("row_hash").to_pylist(), strict=True)
    ]
    read_by: dict[tuple[str, ...], list[tuple[int, bytes]]] = {}
    unreadable: list[dict[str, str]] = [{} for _ in intact]
    theirs, tampered = [name for name in live if name != SEALED], str(Unreadable("tampered"))
    beside = (parts[SEALED].to_pylist(), rows.column("sealed").to_pylist(), states.to_pylist())
    ids = rows.column("id").to_pylist()
    for at, (groups, texts, known) in enumerate(zip(*beside, strict=True)):
        if not intact[at] or any(group is None or group["columns"] is None for group in groups or ()):
            unreadable[at] = dict.fromkeys([*theirs, *_names(groups)], tampered)
            continue
        groups = groups or ()
        whole = texts is None or len(texts) == len(groups)
        texts = texts if texts is not None and whole else [None] * len(groups)
        # Rows have as many states as any of them has groups. Where more were found than asked for, nothing is known of them
        for group, text, told in zip_longest(groups, texts, (known or ())[: len(groups)]):
            if tokens is not None and group["token"] not in tokens:
                unreadable[at].update(dict.fromkeys(group["columns"], str(Unreadable("sealed"))))
                continue
            read = read_group(group, text, ids[at], _state(told), opener, intact=whole)
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
                unreadable[at].update(dict.fromkeys(names, tampered))
        chosen = list(range(rows.num_rows))
        for place, (at, _) in enumerate(found):
            chosen[at] = rows.num_rows + place
        for column, new in zip(own, values, strict=True):
            held = parts[column.stored]
            parts[column.stored] = pa.concat_arrays([held, new.cast(held.type)]).take(pa.array(chosen, pa.int64()))
    parts[SEALED] = pa.nulls(rows.num_rows, parts[SEALED].type)
    return _told(rows, pa.StructArray.from_arrays(list(parts.values()), fields=list(row.type)), unreadable)


def _state(told: Mapping[str, Any] | None) -> KeyState | None:
    if told is None:
        return None
    return KeyState(told["key_id"], "", told["key"], told["erased_at"], told["erased_by"])
