"""The net effect of changes that are already in memory: the same rules as ``cdf.changes.net_spark``, without Spark.

For a small window, planning the window functions takes Spark longer than reading the rows. For a large one, running them
takes longer than sorting: ``net_of_sorted`` reads a partition that is sorted by key, piece by piece. Both modules pass the
same tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    TRANSIENT,
    UPDATE,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)
from cdf.changes.keys import MARK

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KeyRefused", "first_unpaired_image", "net_of_sorted", "net_on_driver"]
_PUT = "__relay_put"


class KeyRefused(Exception):
    """A null in the key (``null_key``), or a key put twice in one version (``put_twice``)."""

    def __init__(self, reason: str, version: int) -> None:
        super().__init__(f"{MARK} {reason} {version}")
        self.reason, self.version = reason, version


def net_on_driver(changes: pa.Table, key: Sequence[str], *, transients: bool = False) -> pa.Table:
    """Reduce the feed's rows to the net effect, sorted by key. Raises KeyRefused.

    ``_change_type`` and ``_change_conflicts`` are those of ``cdf.changes.net_spark.net_effect``.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = changes[CHANGE_TYPE]
    nulls = reduce(pc.or_, (pc.is_null(changes[name]) for name in key))
    if pc.any(nulls).as_py():
        raise KeyRefused("null_key", pc.min(changes[COMMIT_VERSION].filter(nulls)).as_py())

    marked = changes.select([*key, COMMIT_VERSION])
    marked = marked.append_column(_PUT, pc.is_in(kind, value_set=pa.array([INSERT, UPDATE_POSTIMAGE], kind.type)))
    sequence = [(name, "ascending") for name in (*key, COMMIT_VERSION, _PUT)]
    order = pc.sort_indices(marked, sort_keys=sequence)
    rows = marked.take(order).combine_chunks()
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
    transient = new & ~put & (conflicts == 0)
    net_type = np.where(put & new, INSERT, np.where(put, UPDATE, np.where(transient, TRANSIENT, DELETE)))
    kept = last & (transients | ~transient)
    # The other columns are moved once only, and without the rows that are superseded
    net = changes.drop_columns([CHANGE_TYPE]).combine_chunks().take(order.filter(pa.array(kept)))
    net = net.append_column(CHANGE_TYPE, pa.array(net_type[kept], pa.string()))
    return net.append_column(CONFLICTS, pa.array(conflicts[kept].astype("int32")))


def first_unpaired_image(changes: pa.Table) -> int | None:
    """The first version with more preimages than postimages, or fewer. It needs all rows of a version."""
    import pyarrow as pa
    import pyarrow.compute as pc

    before, after = (pc.equal(changes[CHANGE_TYPE], kind).cast("int64") for kind in (UPDATE_PREIMAGE, UPDATE_POSTIMAGE))
    images = pa.table({"version": changes[COMMIT_VERSION], "unpaired": pc.subtract(before, after)})
    by_version = images.group_by("version").aggregate([("unpaired", "sum")])
    found = pc.min(by_version["version"].filter(pc.not_equal(by_version["unpaired_sum"], 0))).as_py()
    return None if found is None else int(found)


def net_of_sorted(
    changes: Iterable[pa.RecordBatch], key: Sequence[str], *, transients: bool = False
) -> Iterator[pa.Table]:
    """``net_on_driver`` for rows that are ordered by key; versions may have any order.

    Only the rows of the last key are held in memory until all of them have been read.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    pending: pa.Table | None = None
    for batch in changes:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch])
        rows = rows if pending is None else pa.concat_tables([pending, rows])
        last = rows.slice(rows.num_rows - 1)
        of_last = reduce(pc.and_, (pc.equal(rows[name], last[name][0]) for name in key))
        other_keys = np.flatnonzero(
            ~pc.fill_null(of_last, False).to_numpy()
        )  # a null key equals no key, and is refused
        complete = int(other_keys[-1]) + 1 if len(other_keys) else 0
        pending = rows.slice(complete)
        if complete:
            yield net_on_driver(rows.slice(0, complete), key, transients=transients)
    if pending is not None and pending.num_rows:
        yield net_on_driver(pending, key, transients=transients)
