"""Compares the encrypted bytes beside payload rows with what the rows record about them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from audit.encryption.column_groups import is_complete
from audit.trail.column_history import SEALED

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["match_groups"]


def match_groups(rows: pa.RecordBatch, removed_keys: Collection[bytes] = ()) -> list[bool]:
    """For each payload row, whether the encrypted bytes beside it are those that its column groups record.

    ``removed_keys``: ids of keys whose encrypted bytes were removed, and may still be stored.
    """
    import pyarrow.compute as pc

    row = rows.column("row")
    if row.type.get_field_index(SEALED) < 0:
        return [True] * rows.num_rows
    groups = pc.struct_field(row, SEALED).to_pylist()
    texts = rows.column("sealed").to_pylist() if "sealed" in rows.schema.names else [None] * rows.num_rows
    return [is_complete(*both, removed_keys) for both in zip(groups, texts, strict=True)]
