"""Events without records: what a runner left that died, or what somebody else has put there.

The next runner writes the records that make them true for good, so they are not believed: the values have to be those that
the source's feed has for these versions, and the events exactly those that follow from the values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from audit.columns import Column, row_type
from audit.digest import Sums, digests, sums_of
from audit.rows import event_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["as_written"]


def as_written(
    events: DataFrame, payload: DataFrame, anew: DataFrame, columns: Sequence[Column], table_id: str
) -> bool:
    """Whether these ``events`` and this ``payload`` are what a runner has written for some versions.

    ``anew``: the payload of the same versions, made out of the source; only ids, salts and hashes are its own.
    """
    key = os.urandom(32)
    if _sums(payload, key) != _sums(anew, key):
        return False
    hashed = payload.select("row", "salt", "row_hash").mapInArrow(_agreeing(columns), "agrees boolean")
    expected = event_rows(payload, table_id)
    return (
        hashed.where("not agrees").isEmpty()
        and events.count() == payload.count()
        and expected.exceptAll(events.select(expected.columns)).isEmpty()
    )


def _sums(payload: DataFrame, key: bytes) -> Mapping[int, Sums]:
    """With all that an event tells of a row, and with the whole of it: where a column has gone there is to be nothing."""
    told = payload.select("committed_at", "baseline", "changed_columns", "row")
    return sums_of(digests(payload.select(*told.columns, "change_type", "version"), told.schema, key))["rows"]


def _agreeing(columns: Sequence[Column]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Whether the hash beside a row is that of its values."""
    live = [column for column in columns if column.live]

    def agreeing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from audit.encoding import encode_rows, row_hash

        schema = row_type(live, stored=False)
        for batch in batches:
            row = batch.column("row")
            places = dict(zip((field.name for field in row.type), row.flatten(), strict=True))
            values = [places[column.stored] for column in live]
            encoded = encode_rows(pa.RecordBatch.from_arrays(values, names=schema.names), schema)
            beside = zip(batch.column("salt").to_pylist(), batch.column("row_hash").to_pylist(), encoded, strict=True)
            agrees = [len(salt or b"") == 16 and row_hash(salt, one) == kept for salt, kept, one in beside]
            yield pa.RecordBatch.from_arrays([pa.array(agrees, pa.bool_())], names=["agrees"])

    return agreeing
