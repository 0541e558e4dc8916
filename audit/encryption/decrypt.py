"""Decrypts the encrypted rows of a trail for readers: values where the keys allow it, and the reason elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType, TimestampType

from audit.encryption.aead import Decryptor
from audit.encryption.column_groups import Unreadable, decrypt_group
from audit.encryption.key_registry import KeyState, States
from audit.encryption.keys_to_tasks import create_rows
from audit.trail.column_history import GROUPS, SEALED, Column, plain_type
from cdf.errors import VerificationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "KEY_SECONDS",
    "Eras",
    "KeysTooOld",
    "decrypt_rows",
    "find_encrypted_columns",
    "find_lost_columns",
    "has_groups",
    "mask_rows",
    "schema_has_groups",
]

Eras: TypeAlias = "Sequence[tuple[int, Sequence[Column]]]"
"""Pairs of a version and the columns from that version on, ascending."""

_STATE = StructType(
    [
        StructField("key_id", BinaryType()),
        StructField("key", BinaryType()),
        StructField("erased_at", TimestampType()),
        StructField("erased_by", StringType()),
    ]
)
_CIPHERTEXTS = ArrayType(BinaryType())
KEY_SECONDS = 300
"""How long a DataFrame can decrypt with the keys that it has: a person who is erased meanwhile stays readable no longer."""


class KeysTooOld(Exception):
    """Raised in Spark's tasks when the keys of a DataFrame are older than ``KEY_SECONDS``."""


def has_groups(payload: DataFrame) -> bool:
    """Whether the payload has the columns of encrypted rows. Raises VerificationError where one of them was removed or has
    another type: encrypted values would look like missing values."""
    return schema_has_groups(payload.schema)


def schema_has_groups(payload: StructType) -> bool:
    """``has_groups``, by the schema alone."""
    row = payload["row"].dataType
    fields = {field.name: plain_type(field.dataType) for field in row.fields} if isinstance(row, StructType) else {}
    groups = fields.get(SEALED)
    ciphertexts = plain_type(payload["sealed"].dataType) if "sealed" in payload.names else None
    if groups is None and ciphertexts is None:
        return False
    if (groups, ciphertexts) != (GROUPS, _CIPHERTEXTS):
        raise VerificationError(
            "the columns of encrypted values in the trail no longer have the type with which they were written",
            hint="`deltarelay audit verify` reports what is altered",
        )
    return True


def find_encrypted_columns(payload: DataFrame) -> set[str]:
    """Names of the columns that are encrypted in any row, case-folded."""
    from pyspark.sql import functions as F

    if not has_groups(payload):
        return set()
    return {row[0].casefold() for row in payload.select(F.explode(_group_columns())).distinct().collect()}


def _group_columns() -> SparkColumn:
    """The columns that the groups of a row name. Altered groups may contain NULL."""
    from pyspark.sql import functions as F

    groups, none = F.col("row").getField(SEALED), F.array().cast("array<string>")
    names = F.flatten(F.transform(groups, lambda group: F.coalesce(group["columns"], none)))
    return F.filter(names, lambda name: name.isNotNull())


def find_lost_columns(payload: DataFrame, states: States) -> set[str]:
    """Names of the columns that are encrypted under a destroyed or unknown key in any row, case-folded."""
    from pyspark.sql import functions as F

    group = F.explode(F.col("row").getField(SEALED)).alias("group")
    rows = payload.select(group).select("group.key_id", "group.columns").distinct().collect()
    known = states({bytes(row["key_id"]) for row in rows if row["key_id"] is not None})
    active = {key_id for key_id, state in known.items() if state.key is not None}
    lost = [row["columns"] or () for row in rows if row["key_id"] is None or bytes(row["key_id"]) not in active]
    return {name.casefold() for names in lost for name in names if name is not None}


def mask_rows(payload: DataFrame) -> DataFrame:
    """Add ``unreadable`` with ``[sealed]`` for each encrypted column. Decrypts nothing."""
    from pyspark.sql import functions as F

    names = F.array_distinct(_group_columns())
    reasons = F.array_repeat(F.lit(str(Unreadable("sealed"))), F.size(names))
    return payload.withColumn("unreadable", F.map_from_arrays(names, reasons))


def decrypt_rows(
    payload: DataFrame,
    eras: Eras,
    states: States,
    tokens: frozenset[bytes] | None = None,
    *,
    until: float = math.inf,
    recorded: float = math.inf,
) -> DataFrame:
    """The payload with decrypted values in ``row`` and without groups. ``unreadable`` maps columns to the reason why a value
    is not shown; it is NULL where all values are.

    ``states``: of ``Registry.read_states``. ``tokens``: people whose values are decrypted; the keys of others are not
    requested. ``until``: Unix time from which the rows can no longer be read. ``recorded``: the last version whose columns
    are known; values of later versions stay encrypted.

    All columns of a row whose hash does not match are ``[tampered]``, because it is unknown which of them were encrypted.
    The keys are requested once, now, and travel as data: ``payload`` must be one version of its table.
    """
    from pyspark.sql import functions as F

    groups = F.col("row").getField(SEALED)
    asked = payload if recorded == math.inf else payload.where(F.col("version") <= recorded)
    exploded = asked.select(F.posexplode(groups).alias("place", "group"))
    by_key = exploded.select("place", "group.key_id", "group.token").groupBy("key_id", "token")
    keys_used = by_key.agg(F.max("place").alias("place")).collect()
    requested = [use for use in keys_used if tokens is None or bytes(use["token"] or b"") in tokens]
    ids = [bytes(use["key_id"]) for use in requested if use["key_id"] is not None]
    keys = _create_state_rows(payload.sparkSession, states(ids) if ids else {})
    rows, places = payload, range(1 + max((use["place"] for use in keys_used), default=-1))
    for place in places:  # one join for each position in the list of groups, so that rows need not be grouped again
        state = keys.withColumnRenamed("state", f"deltarelay_state_{place}")
        same_key = F.get(groups["key_id"], F.lit(place)) == state[f"deltarelay_state_{place}"]["key_id"]
        rows = rows.join(state, same_key, "left")
    found = F.array(*(f"deltarelay_state_{place}" for place in places)).cast(ArrayType(_STATE))
    schema = StructType([*payload.schema.fields, StructField("unreadable", MapType(StringType(), StringType()))])
    return rows.select(*payload.columns, found.alias("deltarelay_states")).mapInArrow(
        partial(_decrypt_batches, [(version, list(columns)) for version, columns in eras], tokens, until, recorded),
        schema,
    )


def _create_state_rows(spark: SparkSession, known: Mapping[bytes, KeyState]) -> DataFrame:
    rows = [
        {"key_id": state.key_id, "key": state.key, "erased_at": state.shredded_at, "erased_by": state.shredded_by}
        for state in known.values()
    ]
    return create_rows(spark, [rows], StructType([StructField("state", _STATE)]))


# ── in Spark's tasks ─────────────────────────────────────────────────────────────────────────────────────────────────


def _decrypt_batches(
    eras: Eras,
    tokens: frozenset[bytes] | None,
    until: float,
    recorded: float,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    starts, decryptor = [version for version, _ in eras], Decryptor()
    for batch in batches:
        if time.time() >= until:
            raise KeysTooOld
        states = batch.column("deltarelay_states")
        rows = batch.select([name for name in batch.schema.names if name != "deltarelay_states"])
        versions = rows.column("version").fill_null(-1).to_numpy()
        era_of_rows = np.searchsorted(starts, versions, side="right") - 1
        era_of_rows[versions > recorded] = _NOT_RECORDED
        for era in np.unique(era_of_rows):
            places = pa.array(np.flatnonzero(era_of_rows == era))
            if era == _NOT_RECORDED:
                yield _mask_batch(rows.take(places))
                continue
            columns = eras[era][1] if era >= 0 else ()  # before the first commit: its columns are unknown
            yield _decrypt_batch(rows.take(places), states.take(places), columns, tokens, decryptor)


_NOT_RECORDED = -2


def _mask_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    groups = pc.struct_field(rows.column("row"), SEALED).to_pylist()
    reasons = [dict.fromkeys(_names_in(of_row), str(Unreadable("sealed"))) for of_row in groups]
    return _add_reasons(rows, rows.column("row"), reasons)


def _names_in(groups: Sequence[Mapping[str, Any] | None] | None) -> list[str]:
    """The columns of these groups. Altered groups may contain None."""
    return [name for group in groups or () if group is not None for name in group["columns"] or () if name is not None]


def _add_reasons(rows: pa.RecordBatch, row: pa.Array, unreadable: Sequence[Mapping[str, str]]) -> pa.RecordBatch:
    import pyarrow as pa

    reasons = pa.array([list(of_row.items()) or None for of_row in unreadable], pa.map_(pa.string(), pa.string()))
    arrays = [row if name == "row" else rows.column(name) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays([*arrays, reasons], names=[*rows.schema.names, "unreadable"])


def _decrypt_batch(
    rows: pa.RecordBatch,
    states: pa.Array,
    columns: Sequence[Column],
    tokens: frozenset[bytes] | None,
    decryptor: Decryptor,
) -> pa.RecordBatch:
    """``rows``: of one era, whose columns are ``columns``."""
    import pyarrow as pa

    from audit.trail.row_hashes import hash_rows

    live = {column.name: column for column in columns if column.live}
    row = rows.column("row")
    parts = dict(zip((field.name for field in row.type), row.flatten(), strict=True))
    intact = [
        hash is not None and hash == stored
        for hash, stored in zip(hash_rows(rows, columns), rows.column("row_hash").to_pylist(), strict=True)
    ]
    plaintexts: dict[tuple[str, ...], list[tuple[int, bytes]]] = {}
    unreadable: list[dict[str, str]] = [{} for _ in intact]
    names, tampered = [name for name in live if name != SEALED], str(Unreadable("tampered"))
    beside = (parts[SEALED].to_pylist(), rows.column("sealed").to_pylist(), states.to_pylist())
    ids = rows.column("id").to_pylist()
    for at, (groups, ciphertexts, known) in enumerate(zip(*beside, strict=True)):
        if not intact[at] or any(group is None or group["columns"] is None for group in groups or ()):
            unreadable[at] = dict.fromkeys([*names, *_names_in(groups)], tampered)
            continue
        groups = groups or ()
        complete = ciphertexts is None or len(ciphertexts) == len(groups)
        ciphertexts = ciphertexts if ciphertexts is not None and complete else [None] * len(groups)
        # A row has as many states as the row with the most groups. A group without a state has an unknown key
        for group, ciphertext, state in zip_longest(groups, ciphertexts, (known or ())[: len(groups)]):
            if tokens is not None and group["token"] not in tokens:
                unreadable[at].update(dict.fromkeys(group["columns"], str(Unreadable("sealed"))))
                continue
            result = decrypt_group(group, ciphertext, ids[at], _read_state(state), decryptor, intact=complete)
            if isinstance(result, Unreadable):
                unreadable[at].update(dict.fromkeys(group["columns"], str(result)))
            else:
                plaintexts.setdefault(tuple(group["columns"]), []).append((at, result))
    for group_names, found in plaintexts.items():
        own = [live[name] for name in group_names if name in live]
        for at in _fill_columns(parts, own, found, rows.num_rows):
            unreadable[at].update(dict.fromkeys(group_names, tampered))
    parts[SEALED] = pa.nulls(rows.num_rows, parts[SEALED].type)
    return _add_reasons(rows, pa.StructArray.from_arrays(list(parts.values()), fields=list(row.type)), unreadable)


def _fill_columns(
    parts: dict[str, pa.Array], columns: Sequence[Column], plaintexts: Sequence[tuple[int, bytes]], count: int
) -> list[int]:
    """Put decrypted values into ``parts``, the columns of ``count`` rows. ``plaintexts``: index of a row, and the encoding
    of ``columns``. Returns the rows whose encoding is not canonical."""
    import pyarrow as pa

    from audit.hashing.row_decoding import decode_rows

    schema = StructType([StructField(column.name, column.type) for column in columns])
    values, canonical = decode_rows([plaintext for _, plaintext in plaintexts], schema)
    chosen = list(range(count))
    for place, (at, _) in enumerate(plaintexts):
        chosen[at] = count + place
    for column, new in zip(columns, values, strict=True):
        before = parts[column.stored]
        parts[column.stored] = pa.concat_arrays([before, new.cast(before.type)]).take(pa.array(chosen, pa.int64()))
    return [at for (at, _), is_canonical in zip(plaintexts, canonical, strict=True) if not is_canonical]


def _read_state(state: Mapping[str, Any] | None) -> KeyState | None:
    if state is None:
        return None
    return KeyState(state["key_id"], "", state["key"], state["erased_at"], state["erased_by"])
