"""Events without records: what a runner left that died, or what somebody else has put there.

The next runner writes the records that make them true for good, so they are not believed: the values have to be those that
the source's feed has for these versions, and the events exactly those that follow from the values. Whether they were written
sealed they tell themselves, for the configuration may be another one by now.
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

__all__ = ["matches_source", "has_encrypted_rows"]

_Names = frozenset[str]


def has_encrypted_rows(payload: DataFrame) -> bool:
    """Whether something is sealed in any row."""
    from pyspark.sql import functions as F

    return has_groups(payload) and not payload.where(F.col("row").getField(SEALED).isNotNull()).isEmpty()


def matches_source(
    events: DataFrame,
    payload: DataFrame,
    anew: DataFrame,
    columns: Sequence[Column],
    table_id: str,
    states: States | None = None,
) -> bool:
    """Whether these ``events`` and this ``payload`` are what a runner has written for some versions, with these columns.

    ``anew``: the payload of the same versions, made out of the source and sealed nowhere; only ids, salts and hashes are its
    own. ``states``: of the registry (``Registry.states``), without which nothing sealed is taken for right. Of a row whose
    columns have been erased meanwhile these columns are not compared.
    """
    copies = [name for name in ("row", "sealed", "salt", "row_hash") if name in payload.columns]
    hashed = payload.select(*copies).mapInArrow(_agreeing(columns), "agrees boolean")
    if not hashed.where("not agrees").isEmpty() or not _same(payload, anew, columns, states, os.urandom(32)):
        return False
    expected = build_event_rows(payload, table_id)
    return events.count() == payload.count() and expected.exceptAll(events.select(expected.columns)).isEmpty()


def _same(payload: DataFrame, anew: DataFrame, columns: Sequence[Column], states: States | None, key: bytes) -> bool:
    fields = _fields(payload, anew)
    if not has_encrypted_rows(payload):
        return _sums(payload, fields, key) == _sums(anew, fields, key)
    live = {column.name: column.stored for column in columns if column.live and column.name != SEALED}
    if states is None or not payload.where(_beside_what_is_sealed(live)).isEmpty():
        return False
    payload = decrypt_rows(payload, [(-1, columns)], states)
    without = _unreadable(payload)
    if without is None or not all(names <= live.keys() for names in without):
        return False
    if without == {frozenset()}:
        return _sums(payload, fields, key) == _sums(anew, fields, key)
    return payload.count() == anew.count() and _are_among(payload, anew, fields, live, without, key)


def _fields(*sides: DataFrame) -> list[StructField]:
    """Of the row, all that either side has: where a column has gone, or one side alone has it, there is to be nothing."""
    found: dict[str, StructField] = {}
    for side in sides:
        row = side.schema["row"].dataType
        assert isinstance(row, StructType)
        found |= {field.name: field for field in row.fields}
    return [found[name] for name in sorted(found)]


def _told(payload: DataFrame, fields: Sequence[StructField], empty: Mapping[str, SparkColumn], *more: str) -> DataFrame:
    """All that an event tells of a row, and the whole of it. ``empty``: where values are left out."""
    from pyspark.sql import functions as F

    row = payload.schema["row"].dataType
    assert isinstance(row, StructType)

    def value(field: StructField) -> SparkColumn:
        nothing = F.lit(None).cast(field.dataType)
        held = F.col("row").getField(field.name) if field.name in row.names else nothing
        return (F.when(empty[field.name], nothing).otherwise(held) if field.name in empty else held).alias(field.name)

    copies = ("committed_at", "baseline", "changed_columns")
    return payload.select(*copies, F.struct(*map(value, fields)).alias("row"), "change_type", "version", *more)


def _sums(payload: DataFrame, fields: Sequence[StructField], key: bytes) -> Mapping[int, Sums]:
    told = _told(payload, fields, {})
    return sum_digests(digest_rows(told, StructType(told.schema.fields[:4]), key))["rows"]


# ── what is sealed ───────────────────────────────────────────────────────────────────────────────────────────────────


def _beside_what_is_sealed(live: Mapping[str, str]) -> SparkColumn:
    """Whether a row has a value in a column that it has sealed as well, where nothing is to be."""
    from pyspark.sql import functions as F

    sealed = F.flatten(F.col("row").getField(SEALED)["columns"])
    both = F.lit(False)
    for name, stored in live.items():
        both = both | (F.array_contains(sealed, name) & F.col("row").getField(stored).isNotNull())
    return F.coalesce(both, F.lit(False))


def _own() -> SparkColumn:
    """The names of the columns that cannot be read in a row, in their order."""
    from pyspark.sql import functions as F

    return F.coalesce(F.sort_array(F.map_keys("unreadable")), F.array().cast("array<string>"))


def _unreadable(payload: DataFrame) -> set[_Names] | None:
    """The sets of columns that rows do not show because they have been erased; None: one does not for another reason."""
    from pyspark.sql import functions as F

    why = F.exists(F.map_values("unreadable"), lambda one: ~one.startswith(ERASED))
    told = payload.select(_own().alias("names"), F.coalesce(why, F.lit(False)).alias("wrong")).distinct().collect()
    return None if any(row["wrong"] for row in told) else {frozenset(row["names"]) for row in told}


def _are_among(
    payload: DataFrame,
    anew: DataFrame,
    fields: Sequence[StructField],
    live: Mapping[str, str],
    without: set[_Names],
    key: bytes,
) -> bool:
    """Whether the rows are among those of ``anew``, each compared without its own columns that are erased, and no others:
    for each set of these, the rows that lack no more than it, as often as they are there."""
    from pyspark.sql import functions as F

    sets = sorted({*without, frozenset().union(*without)}, key=sorted)
    places = F.array(*map(F.lit, range(len(sets))))
    within = [F.size(F.array_except(_own(), _list(names))) == 0 for names in sets]
    own = F.filter(F.array(*(F.when(fits, F.lit(at)) for at, fits in enumerate(within))), lambda at: at.isNotNull())
    left_out: dict[str, SparkColumn] = {}
    for name in frozenset().union(*without):
        left_out[live[name]] = F.col("left_out").isin([at for at, names in enumerate(sets) if name in names])

    def counted(rows: DataFrame, of: SparkColumn, count: str) -> DataFrame:
        told = _told(rows.withColumn("left_out", F.explode(of)), fields, left_out, "left_out")
        return (
            digest_each_row(told, StructType(told.schema.fields[:4]), key)
            .groupBy("place", "digest")
            .agg(F.count("*").alias(count))
        )

    both = counted(payload, own, "held").join(counted(anew, places, "there"), ["place", "digest"], "left")
    return both.where(F.coalesce("there", F.lit(0)) < F.col("held")).isEmpty()


def _list(names: Collection[str]) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.array(*map(F.lit, sorted(names))).cast("array<string>")


# ── the hashes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _agreeing(columns: Sequence[Column]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Whether the hash beside a row is that of its values."""

    def agreeing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            beside = zip(
                hash_rows(batch, columns), batch.column("row_hash").to_pylist(), match_groups(batch), strict=True
            )
            agrees = [right and one is not None and one == kept for one, kept, right in beside]
            yield pa.RecordBatch.from_arrays([pa.array(agrees, pa.bool_())], names=["agrees"])

    return agreeing
