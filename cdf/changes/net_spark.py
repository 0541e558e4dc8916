"""The net effect of a window: at most one change per key, with the same result as the whole sequence.

The feed has no order inside a version. The correct order there is: first all removes (``delete``, ``update_preimage``),
then all puts (``insert``, ``update_postimage``). It is correct for key changes and swaps, delete and re-insert, overwrites
and restores. A key's changes in the window are therefore ordered by (version, remove before put), and:

    ===============  ==============  ==========================================
    first change is  last change is  net effect
    ===============  ==============  ==========================================
    put              put             ``insert``: the last put's row
    remove           put             ``update``: the last put's row
    remove           remove          ``delete``: only the key matters
    put              remove          nothing, or ``transient`` if the caller asks for it: only the key matters;
                                     ``delete``, if changes of the key contradict each other in between
    ===============  ==============  ==========================================

In a table that holds every key once, removes and puts of one key alternate. If they do not:

* after two puts of one key in one version, the key's row is unknown: the window is refused as a whole;
* a put after a put of an earlier version, or a remove after a remove, means that the source held the key twice or that
  changes are missing: they are counted per key in ``_change_conflicts``, and the last change wins.

A transient key changes nothing in a target that held no row under it before the window. If the target holds such a row, it
contradicts the insert, so a sink that reads its target asks for these keys (``transients``). A sink that does not read its
target asks for them if such a row may exist, after a rewind or after a guard has removed rows, and treats them as deletes.

A null in a key column is refused. Both refusals are raised on the cluster, in the one pass that computes the result, so the
consumer of the rows fails before it can make anything durable; ``violation_of`` translates the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    METADATA_COLUMNS,
    TRANSIENT,
    UPDATE,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    quoted,
)
from cdf.changes.keys import MARK, KeyFaults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["net_effect", "first_unpaired_image", "count_key_faults"]

_PUT, _NEW, _LAST, _REFUSED = "__relay_put", "__relay_new", "__relay_last", "__relay_refused"


def net_effect(changes: DataFrame, key: Sequence[str], *, transients: bool = False) -> DataFrame:
    """Reduce the feed's rows to the net effect. ``transients``: include keys that are first inserted and finally deleted.

    The result has the table's columns, then ``_change_type`` (insert, update, delete or transient), ``_commit_version``
    (of the last change), ``_commit_timestamp`` and ``_change_conflicts``. It is partitioned by key and sorted by key
    inside each partition, which is the fastest order for an index.
    """
    version, put = F.col(COMMIT_VERSION), F.col(_PUT)
    keys = [quoted(name) for name in key]
    null_key = reduce(or_, (column.isNull() for column in keys))

    sequence = Over.partitionBy(*keys).orderBy(version, put)
    so_far = sequence.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    same_kind = F.lag(put).over(sequence) == put
    put_twice = same_kind & put & (F.lag(version).over(sequence) == version)
    refused = F.when(null_key, _refusal("null_key", version)).when(put_twice, _refusal("put_twice", version))
    # A separate column before the sort: inside the window function, the expression makes Spark sort twice.
    ordered = changes.select("*", F.col(CHANGE_TYPE).isin(INSERT, UPDATE_POSTIMAGE).alias(_PUT))
    marked = ordered.select(
        "*",
        F.first(put).over(so_far).alias(_NEW),
        F.lead(version).over(sequence).isNull().alias(_LAST),
        F.sum(F.when(same_kind, 1).otherwise(0)).over(so_far).cast("int").alias(CONFLICTS),
        # A running maximum, so that the key's last row depends on every row of the key: otherwise the optimizer could skip
        # the refusal of a row that the filter below drops.
        F.max(refused).over(so_far).alias(_REFUSED),
    )
    new, last = F.col(_NEW), F.col(_LAST)
    transient = new & ~put & (F.col(CONFLICTS) == 0)
    net = marked.where(F.col(_REFUSED).isNull() & last & (F.lit(transients) | ~transient))
    net_type = F.when(put & new, INSERT).when(put, UPDATE).when(transient, TRANSIENT).otherwise(DELETE)
    columns = [quoted(name) for name in changes.columns if name not in METADATA_COLUMNS]
    return net.select(*columns, net_type.alias(CHANGE_TYPE), version, F.col(COMMIT_TIMESTAMP), F.col(CONFLICTS))


def _refusal(kind: str, version: Column) -> Column:
    message = F.concat(F.lit(f"{MARK} {kind} "), version.cast("string"))
    return F.raise_error(message).cast("boolean")


def first_unpaired_image(changes: DataFrame, key: Sequence[str] = ()) -> int | None:
    """The first version in which a preimage of an update has no postimage under the same key, or the reverse.

    The feed does not say which images belong together, so this is the only sign of a changed key. Without a key: the first
    version with more of one kind than of the other, in which an image is missing.
    """
    images = changes.where(F.col(CHANGE_TYPE).isin(UPDATE_PREIMAGE, UPDATE_POSTIMAGE))
    before = F.sum(F.when(F.col(CHANGE_TYPE) == UPDATE_PREIMAGE, 1).otherwise(-1))
    by_key = images.groupBy(*(quoted(name) for name in key), COMMIT_VERSION).agg(before.alias("unpaired"))
    found = by_key.where(F.col("unpaired") != 0).agg(F.min(COMMIT_VERSION)).first()
    return None if found is None or found[0] is None else int(found[0])


def count_key_faults(rows: DataFrame, key: Sequence[str]) -> KeyFaults:
    keys = [quoted(name) for name in key]
    null_key = reduce(or_, (column.isNull() for column in keys))
    counted = rows.groupBy(*keys).count()
    found = counted.select(
        F.sum(F.when(null_key, F.col("count")).otherwise(0)).alias("nulls"),
        F.sum(F.when(~null_key & (F.col("count") > 1), 1).otherwise(0)).alias("duplicates"),
    ).first()
    assert found is not None
    return KeyFaults(int(found["nulls"] or 0), int(found["duplicates"] or 0))
