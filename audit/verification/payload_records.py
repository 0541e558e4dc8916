"""Which values the ledger's records name as removed or encrypted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from audit.proof import leaf_hash
from audit.trail.record_kinds import REMOVAL, SEALING, SHREDDING, are_hashes, named_runs, parse_record

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["read_cleared_keys", "read_removed_places", "read_reencrypted_hashes"]


def read_removed_places(ledger: DataFrame, size: int, distrusted: Collection[bytes] = ()) -> DataFrame:
    """``version`` and ``removed``: places from ``first`` to ``last`` whose values records name.

    ``late``: by a record after the first ``size``, by which somebody removes at this moment: its values may still be there.
    ``distrusted``: the hashes of records that are not believed (``Walk.distrusted``).
    """
    from pyspark.sql import functions as F

    runs = _of_kind(ledger, REMOVAL).mapInArrow(
        partial(_removed, distrusted), "sequence long, version long, first long, last long"
    )
    place = F.struct("first", "last", (F.col("sequence") >= size).alias("late"))
    return runs.groupBy("version").agg(F.collect_set(place).alias("removed"))


def read_reencrypted_hashes(
    ledger: DataFrame, size: int | None = None, distrusted: Collection[bytes] = ()
) -> DataFrame | None:
    """``event_version``, ``index``, and ``sealed_hash``: the hash that a record tells of a row sealed later; None where none
    does. ``late`` and ``distrusted``: as ``removed_by`` has it, and ``hash_before``: what it was until then, where a record
    tells."""
    from pyspark.sql import functions as F

    records = _of_kind(ledger, SEALING)
    if records.isEmpty():
        return None
    rows = records.mapInArrow(
        partial(_resealed, distrusted), "sequence long, event_version long, index long, hash binary"
    )
    late = F.lit(False) if size is None else F.col("sequence") >= size
    return rows.groupBy("event_version", "index").agg(
        F.max_by("hash", "sequence").alias("sealed_hash"),
        F.max_by("hash", F.when(~late, F.col("sequence"))).alias("hash_before"),
        F.max(late).alias("late"),
    )


def read_cleared_keys(ledger: DataFrame, distrusted: Collection[bytes] = ()) -> frozenset[bytes]:
    """The ids of the keys whose sealed bytes records name as removed."""
    rows = _of_kind(ledger, SHREDDING).collect()
    told = (record for row in rows if (record := _believed(row["record"], SHREDDING, distrusted)) is not None)
    return frozenset(bytes.fromhex(one) for record in told for one in record["keys"])


def _of_kind(ledger: DataFrame, kind: str) -> DataFrame:
    from pyspark.sql import functions as F

    own = ledger.where((F.col("kind") == kind) & (F.col("sequence") >= 0))
    # What is no UTF-8 is no record, and fails nowhere
    return own.select("sequence", F.col("record").cast("binary").alias("record"), "chunk_roots")


def _believed(said: bytes | None, kind: str, distrusted: Collection[bytes]) -> dict[str, Any] | None:
    """None: what is no such record, or one that is distrusted. The ledger's own faults report it."""
    text = bytes(said or b"")
    record = parse_record(text)
    if record is None or record["kind"] != kind or leaf_hash(text) in distrusted:
        return None
    return record


def _removed(distrusted: Collection[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        places = [
            {"sequence": row["sequence"], "version": version, "first": first, "last": last}
            for row in batch.to_pylist()
            if (record := _believed(row["record"], REMOVAL, distrusted)) is not None
            for version, first, last in named_runs(record)
        ]
        schema = pa.schema([(name, pa.int64()) for name in ("sequence", "version", "first", "last")])
        yield pa.RecordBatch.from_pylist(places, schema=schema)


def _resealed(distrusted: Collection[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    for batch in batches:
        for row in batch.to_pylist():
            record, hashes = _believed(row["record"], SEALING, distrusted), row["chunk_roots"] or b""
            if record is None or not record["values"] or not are_hashes(record, hashes):
                continue
            # There is a hash for each place: what is made out of the ranges is no larger than what was read
            runs = list(named_runs(record))
            index = np.concatenate([np.arange(first, last + 1, dtype=np.int64) for _, first, last in runs])
            sizes = [last - first + 1 for _, first, last in runs]
            versions = np.repeat(np.array([version for version, _, _ in runs], dtype=np.int64), sizes)
            count = len(index)
            offsets = np.arange(0, 32 * count + 1, 32, dtype=np.int32)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(np.full(count, row["sequence"], dtype=np.int64)),
                    pa.array(versions),
                    pa.array(index),
                    pa.BinaryArray.from_buffers(
                        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(hashes)]
                    ),
                ],
                names=["sequence", "event_version", "index", "hash"],
            )
