"""Checks events without ledger records, which a runner left that died, or which another writer has added.

The next runner writes the records of these events, which makes them permanent. It therefore compares them first: the values
must be those in the source's change feed, and the events must be exactly those that follow from the values. Whether the rows
were written encrypted is read from the rows, because the configuration may have changed since.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from audit.encryption.column_groups import ERASED
from audit.encryption.decrypt import decrypt_rows, has_groups
from audit.encryption.stored_groups import match_groups
from audit.hashing.multiset_digest import Sums, digest_each_row, digest_rows, sum_digests
from audit.trail.column_history import SEALED, Column
from audit.trail.events import build_event_rows
from audit.trail.row_hashes import hash_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from audit.encryption.key_registry import States

__all__ = ["has_encrypted_rows", "matches_source"]

_Names = frozenset[str]


def has_encrypted_rows(payload: DataFrame) -> bool:
    """Whether any row has encrypted columns."""
    from pyspark.sql import functions as F

    return has_groups(payload) and not payload.where(F.col("row").getField(SEALED).isNotNull()).isEmpty()


def matches_source(
    events: DataFrame,
    payload: DataFrame,
    rebuilt: DataFrame,
    columns: Sequence[Column],
    table_id: str,
    states: States | None = None,
) -> bool:
    """Whether ``events`` and ``payload`` are what a runner wrote for some versions, with these columns.

    ``rebuilt``: the payload of the same versions, built from the source without encryption; its ids, salts and hashes
    differ. ``states``: key states of the registry (``Registry.states``); without them encrypted rows never match. Columns
    that were erased from a row since are not compared.
    """
    stored = [name for name in ("row", "sealed", "salt", "row_hash") if name in payload.columns]
    hashed = payload.select(*stored).mapInArrow(_hash_checker(columns), "agrees boolean")
    if not hashed.where("not agrees").isEmpty() or not _has_same_rows(
        payload, rebuilt, columns, states, os.urandom(32)
    ):
        return False
    expected = build_event_rows(payload, table_id)
    return events.count() == payload.count() and expected.exceptAll(events.select(expected.columns)).isEmpty()


def _has_same_rows(
    payload: DataFrame, rebuilt: DataFrame, columns: Sequence[Column], states: States | None, key: bytes
) -> bool:
    fields = _union_fields(payload, rebuilt)
    if not has_encrypted_rows(payload):
        return _sum_rows(payload, fields, key) == _sum_rows(rebuilt, fields, key)
    live = {column.name: column.stored for column in columns if column.live and column.name != SEALED}
    if states is None or not payload.where(_has_value_beside_encrypted(live)).isEmpty():
        return False
    payload = decrypt_rows(payload, [(-1, columns)], states)
    without = _find_erased_columns(payload)
    if without is None or not all(names <= live.keys() for names in without):
        return False
    if without == {frozenset()}:
        return _sum_rows(payload, fields, key) == _sum_rows(rebuilt, fields, key)
    return payload.count() == rebuilt.count() and _is_contained(payload, rebuilt, fields, live, without, key)


def _union_fields(*sides: DataFrame) -> list[StructField]:
    """All fields of ``row`` on either side. A side without a field must have no value there on the other side."""
    found: dict[str, StructField] = {}
    for side in sides:
        row = side.schema["row"].dataType
        assert isinstance(row, StructType)
        found |= {field.name: field for field in row.fields}
    return [found[name] for name in sorted(found)]


def _select_compared(
    payload: DataFrame, fields: Sequence[StructField], empty: Mapping[str, SparkColumn], *more: str
) -> DataFrame:
    """Select the row, and what its event says about it. ``empty``: by field, the condition under which its value is left
    out."""
    from pyspark.sql import functions as F

    row = payload.schema["row"].dataType
    assert isinstance(row, StructType)

    def value(field: StructField) -> SparkColumn:
        nothing = F.lit(None).cast(field.dataType)
        stored = F.col("row").getField(field.name) if field.name in row.names else nothing
        return (F.when(empty[field.name], nothing).otherwise(stored) if field.name in empty else stored).alias(
            field.name
        )

    copies = ("committed_at", "baseline", "changed_columns")
    return payload.select(*copies, F.struct(*map(value, fields)).alias("row"), "change_type", "version", *more)


def _sum_rows(payload: DataFrame, fields: Sequence[StructField], key: bytes) -> Mapping[int, Sums]:
    rows = _select_compared(payload, fields, {})
    return sum_digests(digest_rows(rows, StructType(rows.schema.fields[:4]), key))["rows"]


# ── encrypted rows ───────────────────────────────────────────────────────────────────────────────────────────────────


def _has_value_beside_encrypted(live: Mapping[str, str]) -> SparkColumn:
    """Whether a row has a plain value in a column that is encrypted in this row. A runner never writes that."""
    from pyspark.sql import functions as F

    encrypted = F.flatten(F.col("row").getField(SEALED)["columns"])
    both = F.lit(False)
    for name, stored in live.items():
        both = both | (F.array_contains(encrypted, name) & F.col("row").getField(stored).isNotNull())
    return F.coalesce(both, F.lit(False))


def _unreadable_names() -> SparkColumn:
    """The names of the columns that cannot be read in a row, sorted."""
    from pyspark.sql import functions as F

    return F.coalesce(F.sort_array(F.map_keys("unreadable")), F.array().cast("array<string>"))


def _find_erased_columns(payload: DataFrame) -> set[_Names] | None:
    """The sets of columns that rows do not show because they were erased; None: a row does not show one for another
    reason."""
    from pyspark.sql import functions as F

    is_wrong = F.exists(F.map_values("unreadable"), lambda reason: ~reason.startswith(ERASED))
    names = _unreadable_names().alias("names")
    rows = payload.select(names, F.coalesce(is_wrong, F.lit(False)).alias("wrong")).distinct().collect()
    return None if any(row["wrong"] for row in rows) else {frozenset(row["names"]) for row in rows}


def _is_contained(
    payload: DataFrame,
    rebuilt: DataFrame,
    fields: Sequence[StructField],
    live: Mapping[str, str],
    without: set[_Names],
    key: bytes,
) -> bool:
    """Whether the rows of ``payload`` are among those of ``rebuilt``, each compared without the columns erased from it.

    For each set of erased columns, the rows that lack no column outside the set are counted on both sides without these
    columns; ``rebuilt`` must have each of them at least as often.
    """
    from pyspark.sql import functions as F

    sets = sorted({*without, frozenset().union(*without)}, key=sorted)
    places = F.array(*map(F.lit, range(len(sets))))
    within = [F.size(F.array_except(_unreadable_names(), _array_of(names))) == 0 for names in sets]
    own = F.filter(F.array(*(F.when(fits, F.lit(at)) for at, fits in enumerate(within))), lambda at: at.isNotNull())
    left_out: dict[str, SparkColumn] = {}
    for name in frozenset().union(*without):
        left_out[live[name]] = F.col("left_out").isin([at for at, names in enumerate(sets) if name in names])

    def count(rows: DataFrame, of: SparkColumn, name: str) -> DataFrame:
        compared = _select_compared(rows.withColumn("left_out", F.explode(of)), fields, left_out, "left_out")
        return (
            digest_each_row(compared, StructType(compared.schema.fields[:4]), key)
            .groupBy("place", "digest")
            .agg(F.count("*").alias(name))
        )

    both = count(payload, own, "held").join(count(rebuilt, places, "there"), ["place", "digest"], "left")
    return both.where(F.coalesce("there", F.lit(0)) < F.col("held")).isEmpty()


def _array_of(names: Collection[str]) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.array(*map(F.lit, sorted(names))).cast("array<string>")


# ── hashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _hash_checker(columns: Sequence[Column]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """→ a function that says of each row whether the hash beside it is the hash of its values."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            rows = zip(
                hash_rows(batch, columns), batch.column("row_hash").to_pylist(), match_groups(batch), strict=True
            )
            agrees = [matches and computed is not None and computed == stored for computed, stored, matches in rows]
            yield pa.RecordBatch.from_arrays([pa.array(agrees, pa.bool_())], names=["agrees"])

    return check
