"""The net effect of few changes that are in memory already: the same rules as ``cdf.net``, without a Spark plan.

Planning the window functions takes Spark longer than reading a small window. Held to ``cdf.net``'s tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from cdf.change import CHANGE_TYPE, COMMIT_VERSION, CONFLICTS, DELETE, INSERT, UPDATE, UPDATE_POSTIMAGE

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KeyRefused", "net_on_driver"]

_PUT = "__relay_put"


class KeyRefused(Exception):
    """A null in the key (``null_key``), or a key put twice in one version (``put_twice``)."""

    def __init__(self, reason: str, version: int) -> None:
        super().__init__(f"{reason} {version}")
        self.reason, self.version = reason, version


def net_on_driver(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Reduce the feed's rows to the net effect: the columns as they come, ``_change_type`` and ``_change_conflicts`` as
    ``cdf.net.net_effect`` has them, sorted by key. Raises KeyRefused."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = changes[CHANGE_TYPE]
    nulls = reduce(pc.or_, (pc.is_null(changes[name]) for name in key))
    if pc.any(nulls).as_py():
        raise KeyRefused("null_key", pc.min(changes[COMMIT_VERSION].filter(nulls)).as_py())

    marked = changes.append_column(_PUT, pc.is_in(kind, value_set=pa.array([INSERT, UPDATE_POSTIMAGE], kind.type)))
    sequence = [(name, "ascending") for name in (*key, COMMIT_VERSION, _PUT)]
    rows = marked.take(pc.sort_indices(marked, sort_keys=sequence)).combine_chunks()
    put = rows[_PUT].to_numpy()
    version = rows[COMMIT_VERSION].to_numpy()

    pairs = max(rows.num_rows - 1, 0)
    of_same_key = np.ones(pairs, dtype=bool)
    for name in key:
        of_same_key &= pc.equal(rows[name].slice(1), rows[name].slice(0, pairs)).to_numpy()
    same_kind = of_same_key & (put[1:] == put[:-1])
    put_twice = same_kind & put[1:] & (version[1:] == version[:-1])
    if put_twice.any():
        raise KeyRefused("put_twice", int(version[1:][put_twice].min()))

    edge = np.ones(min(rows.num_rows, 1), dtype=bool)
    first, last = np.concatenate([edge, ~of_same_key]), np.concatenate([~of_same_key, edge])
    number = np.cumsum(first) - 1  # of the key that a row belongs to
    new = put[first][number]
    conflicts = np.bincount(number[1:], weights=same_kind, minlength=1)[number] if pairs else np.zeros(rows.num_rows)
    net_type = np.where(put & new, INSERT, np.where(put, UPDATE, DELETE))
    kept = rows.drop_columns([_PUT, CHANGE_TYPE])
    kept = kept.append_column(CHANGE_TYPE, pa.array(net_type, pa.string()))
    kept = kept.append_column(CONFLICTS, pa.array(conflicts.astype("int32")))
    return kept.filter(pa.array(last & (put | ~new)))
