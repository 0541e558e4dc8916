"""Hashes of stored payload rows, recomputed from their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from audit.trail.column_history import GROUPS_COLUMN, SEALED, Column, row_type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["hash_rows"]


def hash_rows(rows: pa.RecordBatch, columns: Sequence[Column]) -> Sequence[bytes | None]:
    """Compute the hash of each payload row; None for a row that no runner writes.

    ``rows``: ``salt`` and ``row``. ``columns``: those with which the rows were written; they may have been encrypted since.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    live = [column for column in columns if column.live]
    row = rows.column("row")
    if any(column.name == SEALED for column in live) or row.type.get_field_index(SEALED) < 0:
        return _hash_with(rows, live)
    is_encrypted = pc.is_valid(pc.struct_field(row, SEALED)).to_pylist()
    hashes: list[bytes | None] = [None] * rows.num_rows
    for wanted, with_columns in ((False, live), (True, [*live, GROUPS_COLUMN])):
        places = [at for at, encrypted in enumerate(is_encrypted) if encrypted is wanted]
        if places:
            taken = rows if len(places) == rows.num_rows else rows.take(pa.array(places))
            for at, hash in zip(places, _hash_with(taken, with_columns), strict=True):
                hashes[at] = hash
    return hashes


def _hash_with(rows: pa.RecordBatch, live: Sequence[Column]) -> Sequence[bytes | None]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_by_halves, hash_rows

    schema, stored = row_type(live, stored=False), {column.stored for column in live}
    row = rows.column("row")
    fields = {field.name: values for field, values in zip(row.type, row.flatten(), strict=True)}
    if stored - fields.keys():  # a column was dropped from the table: all of these rows are altered
        return [None] * rows.num_rows
    values = pa.RecordBatch.from_arrays([fields[column.stored] for column in live], names=schema.names)
    foreign = _any_valid([array for name, array in fields.items() if name not in stored], rows.num_rows)
    salts = [salt if salt is not None and len(salt) == 16 else None for salt in rows.column("salt").to_pylist()]
    joined = b"".join(salt or bytes(16) for salt in salts)

    def hash_slice(first: int, count: int) -> Sequence[bytes]:
        return hash_rows(values.slice(first, count), schema, joined[16 * first : 16 * (first + count)])

    return [
        None if salt is None or planted else hashed
        for salt, hashed, planted in zip(salts, encode_by_halves(hash_slice, rows.num_rows), foreign, strict=True)
    ]


def _any_valid(arrays: Sequence[pa.Array], count: int) -> list[bool]:
    """For each row, whether it has a value in a column that its commit did not have."""
    import numpy as np

    found = np.zeros(count, dtype=bool)
    for values in arrays:
        if values.null_count < count:
            found |= values.is_valid().to_numpy(zero_copy_only=False)
    return [bool(value) for value in found]
