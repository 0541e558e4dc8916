"""Encrypts plaintext rows of the payload, in Spark's tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, BooleanType, LongType

from audit.encryption.column_groups import encrypt_rows, keys_column, read_row_keys
from audit.encryption.stored_groups import match_groups
from audit.reencryption.plaintext_rows import ColumnEra
from audit.trail.column_history import SEALED, row_type
from audit.trail.row_hashes import hash_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PLACE", "encrypt_batches"]

_SALT_BYTES = 16
PLACE = {
    "id": BinaryType(),
    "version": LongType(),
    "index": LongType(),
    "intact": BooleanType(),
    "salt": BinaryType(),
    "row_hash": BinaryType(),
}
"""Columns of the result before ``row`` and ``sealed``. ``intact``: the plaintext row had the hash of its event."""


def encrypt_batches(
    eras: Sequence[ColumnEra], gone: frozenset[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """``gone``: ids of keys whose ciphertexts were removed. Yields batches with ``PLACE``, ``row`` and ``sealed``."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = [era.since for era in eras]
    for batch in batches:
        era_of_rows = np.searchsorted(starts, batch.column("version").to_numpy(), side="right") - 1
        encrypted = [
            frozenset(name for group in groups or () for name in group["columns"])
            for groups in pc.struct_field(batch.column("row"), SEALED).to_pylist()
        ]
        parts: dict[tuple[int, frozenset[str]], list[int]] = {}
        for place, part in enumerate(zip(era_of_rows.tolist(), encrypted, strict=True)):
            parts.setdefault(part, []).append(place)
        for (era, names), places in parts.items():
            yield _encrypt_batch(batch.take(pa.array(places)), eras[era], names, gone)


def _encrypt_batch(
    rows: pa.RecordBatch, era: ColumnEra, encrypted: frozenset[str], gone: frozenset[bytes]
) -> pa.RecordBatch:
    """``encrypted``: the columns that are already encrypted in these rows."""
    import pyarrow as pa

    row = rows.column("row")
    parts = dict(zip((field.name for field in row.type), row.flatten(), strict=True))
    live = [column for column in era.columns if column.live and column.name != SEALED]
    schema = row_type(live, stored=False)
    values = pa.RecordBatch.from_arrays([parts[column.stored] for column in live], names=schema.names)
    people = [
        replace(
            person,
            classes=tuple((name, tuple(one for one in own if one not in encrypted)) for name, own in person.classes),
        )
        for person in era.people
    ]
    row_keys = [read_row_keys(rows.column(keys_column(at))) for at in range(len(people))]
    remaining, groups, ciphertexts = encrypt_rows(values, schema, people, row_keys, rows.column("id").to_pylist())
    computed = zip(hash_rows(rows, era.columns), match_groups(rows, gone), strict=True)
    stored = zip(rows.column("row_hash").to_pylist(), rows.column("expected").to_pylist(), strict=True)
    intact = [
        matches and hash is not None and hash == own == expected
        for (hash, matches), (own, expected) in zip(computed, stored, strict=True)
    ]
    parts |= {column.stored: remaining.column(column.name).cast(parts[column.stored].type) for column in live}
    parts[SEALED] = _append_lists(parts[SEALED], groups)
    salts = [os.urandom(_SALT_BYTES) for _ in range(rows.num_rows)]
    new = pa.StructArray.from_arrays(list(parts.values()), fields=list(row.type))
    salted = pa.RecordBatch.from_arrays([pa.array(salts, pa.binary()), new], names=["salt", "row"])
    return pa.RecordBatch.from_arrays(
        [
            *(rows.column(name) for name in ("id", "version", "index")),
            pa.array(intact),
            salted.column("salt"),
            pa.array(hash_rows(salted, era.columns), pa.binary()),
            new,
            _append_lists(rows.column("sealed"), ciphertexts),
        ],
        names=[*PLACE, "row", "sealed"],
    )


def _append_lists(before: pa.Array, new: pa.Array) -> pa.Array:
    """Concatenate the lists of each row."""
    import pyarrow as pa

    joined = [[*(one or ()), *(other or ())] for one, other in zip(before.to_pylist(), new.to_pylist(), strict=True)]
    return pa.array([of_row or None for of_row in joined], before.type)
