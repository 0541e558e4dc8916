"""Hashes of stored payload rows, recomputed from their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from audit.trail.column_history import GROUPS_COLUMN, SEALED, Column, row_type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["hash_rows"]


def hash_rows(rows: pa.RecordBatch, columns: Sequence[Column]) -> Sequence[bytes | None]:
    """Of payload rows that were written with these columns, and may have been sealed since; None for what cannot have
    been."""
    import pyarrow as pa
    import pyarrow.compute as pc

    live = [column for column in columns if column.live]
    row = rows.column("row")
    if any(column.name == SEALED for column in live) or row.type.get_field_index(SEALED) < 0:
        return _hashes(rows, live)
    since = pc.is_valid(pc.struct_field(row, SEALED)).to_pylist()
    found: list[bytes | None] = [None] * rows.num_rows
    for sealed, its in ((False, live), (True, [*live, GROUPS_COLUMN])):
        places = [at for at, one in enumerate(since) if one is sealed]
        if places:
            taken = rows if len(places) == rows.num_rows else rows.take(pa.array(places))
            for at, hash in zip(places, _hashes(taken, its), strict=True):
                found[at] = hash
    return found


def _hashes(rows: pa.RecordBatch, live: Sequence[Column]) -> Sequence[bytes | None]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_or_none, row_hash

    schema, stored = row_type(live, stored=False), {column.stored for column in live}
    row = rows.column("row")
    places = {field.name: values for field, values in zip(row.type, row.flatten(), strict=True)}
    if stored - places.keys():  # a column was taken out of the table: none of these rows is what it was
        return [None] * rows.num_rows
    own = [places[column.stored] for column in live]
    written = encode_or_none(pa.RecordBatch.from_arrays(own, names=schema.names), schema)
    foreign = _any_valid([values for name, values in places.items() if name not in stored], rows.num_rows)
    return [
        None if one is None or salt is None or len(salt) != 16 or planted else row_hash(salt, one)
        for salt, one, planted in zip(rows.column("salt").to_pylist(), written, foreign, strict=True)
    ]


def _any_valid(arrays: Sequence[pa.Array], count: int) -> list[bool]:
    """Of each row: whether there is a value where its commit had no column."""
    import numpy as np

    found = np.zeros(count, dtype=bool)
    for values in arrays:
        if values.null_count < count:
            found |= values.is_valid().to_numpy(zero_copy_only=False)
    return [bool(one) for one in found]
