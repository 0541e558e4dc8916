"""Events without records: what a runner left that died, or what somebody else has put there.

The next runner writes the records that make them true for good, so they are not believed: the values have to be those that
the source's feed has for these versions, and the events exactly those that follow from the values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from audit.columns import SEALED, Column
from audit.digest import Sums, digests, sums_of
from audit.keys.groups import ERASED
from audit.keys.opening import has_groups, opened
from audit.rows import event_rows
from audit.verify.values import hashes, whole

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from audit.keys.sealing import Sealing

__all__ = ["as_written"]


def as_written(
    events: DataFrame,
    payload: DataFrame,
    anew: DataFrame,
    columns: Sequence[Column],
    table_id: str,
    sealing: Sealing | None = None,
) -> bool:
    """Whether these ``events`` and this ``payload`` are what a runner has written for some versions.

    ``anew``: the payload of the same versions, made out of the source and sealed nowhere; only ids, salts and hashes are its
    own. Of what has been erased meanwhile the values are not compared.
    """
    key = os.urandom(32)
    if not _same(payload, anew, columns, sealing, key):
        return False
    copies = [name for name in ("row", "sealed", "salt", "row_hash") if name in payload.columns]
    hashed = payload.select(*copies).mapInArrow(_agreeing(columns), "agrees boolean")
    expected = event_rows(payload, table_id)
    return (
        hashed.where("not agrees").isEmpty()
        and events.count() == payload.count()
        and expected.exceptAll(events.select(expected.columns)).isEmpty()
    )


def _same(payload: DataFrame, anew: DataFrame, columns: Sequence[Column], sealing: Sealing | None, key: bytes) -> bool:
    from pyspark.sql import functions as F

    if sealing is None or not has_groups(payload):
        return _sums(payload, key) == _sums(anew, key)
    payload = opened(payload, [(-1, columns)], sealing.registry().states)
    why = {row[0] for row in payload.select(F.explode(F.map_values("unreadable"))).distinct().collect()}
    if not all(one.startswith(ERASED) for one in why):
        return False
    gone = sealing.columns if why else frozenset()
    left_out = {SEALED, *(column.stored for column in columns if column.name.casefold() in gone)}
    return _sums(payload, key, left_out) == _sums(anew, key, left_out)


def _sums(payload: DataFrame, key: bytes, left_out: Collection[str] = ()) -> Mapping[int, Sums]:
    """With all that an event tells of a row, and with the whole of it: where a column has gone there is to be nothing."""
    from pyspark.sql import functions as F

    row = payload.schema["row"].dataType
    assert isinstance(row, StructType)
    kept = [F.col("row").getField(name).alias(name) for name in row.names if name not in left_out]
    told = payload.select(
        "committed_at", "baseline", "changed_columns", F.struct(*kept).alias("row"), "change_type", "version"
    )
    return sums_of(digests(told, StructType(told.schema.fields[:4]), key))["rows"]


def _agreeing(columns: Sequence[Column]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Whether the hash beside a row is that of its values."""

    def agreeing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            beside = zip(hashes(batch, columns), batch.column("row_hash").to_pylist(), whole(batch), strict=True)
            agrees = [right and one is not None and one == kept for one, kept, right in beside]
            yield pa.RecordBatch.from_arrays([pa.array(agrees, pa.bool_())], names=["agrees"])

    return agreeing
