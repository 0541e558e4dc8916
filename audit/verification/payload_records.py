"""Which payload values the ledger's records name as removed or encrypted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from audit.proof import leaf_hash
from audit.trail.record_kinds import (
    ENCRYPTION,
    REMOVAL,
    SHREDDING,
    EncryptionRecord,
    Record,
    RemovalRecord,
    ShreddingRecord,
    parse_record,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["read_cleared_keys", "read_reencrypted_hashes", "read_removed_places"]


def read_removed_places(ledger: DataFrame, size: int, distrusted: Collection[bytes] = ()) -> DataFrame:
    """Read ``version`` and ``removed``: the runs of events (``first``, ``last``, ``late``) whose values records name as
    removed.

    ``late``: the record comes after the first ``size``; its runner may be removing the values now, so they may still be
    stored. ``distrusted``: hashes of records that are ignored (``LedgerScan.distrusted``).
    """
    from pyspark.sql import functions as F

    runs = _of_kind(ledger, REMOVAL).mapInArrow(
        partial(_expand_removals, distrusted), "sequence long, version long, first long, last long"
    )
    place = F.struct("first", "last", (F.col("sequence") >= size).alias("late"))
    return runs.groupBy("version").agg(F.collect_set(place).alias("removed"))


def read_reencrypted_hashes(
    ledger: DataFrame, size: int | None = None, distrusted: Collection[bytes] = ()
) -> DataFrame | None:
    """Read ``event_version``, ``index`` and ``sealed_hash``: the recorded hashes of rows that were encrypted later; None
    where no record has any.

    ``late`` and ``distrusted``: as in ``read_removed_places``. ``hash_before``: the hash before the late record, if a
    record has it.
    """
    from pyspark.sql import functions as F

    records = _of_kind(ledger, ENCRYPTION)
    if records.isEmpty():
        return None
    rows = records.mapInArrow(
        partial(_expand_encryptions, distrusted), "sequence long, event_version long, index long, hash binary"
    )
    late = F.lit(False) if size is None else F.col("sequence") >= size
    return rows.groupBy("event_version", "index").agg(
        F.max_by("hash", "sequence").alias("sealed_hash"),
        F.max_by("hash", F.when(~late, F.col("sequence"))).alias("hash_before"),
        F.max(late).alias("late"),
    )


def read_cleared_keys(ledger: DataFrame, distrusted: Collection[bytes] = ()) -> frozenset[bytes]:
    """Read the ids of the keys whose encrypted bytes records name as removed."""
    records = (_parse_trusted(row["record"], distrusted) for row in _of_kind(ledger, SHREDDING).collect())
    return frozenset(key for record in records if isinstance(record, ShreddingRecord) for key in record.keys)


def _of_kind(ledger: DataFrame, kind: str) -> DataFrame:
    from pyspark.sql import functions as F

    rows = ledger.where((F.col("kind") == kind) & (F.col("sequence") >= 0))
    # As binary: text that is not valid UTF-8 is not a record, and must not fail the query
    return rows.select("sequence", F.col("record").cast("binary").alias("record"), "chunk_roots")


def _parse_trusted(data: bytes | None, distrusted: Collection[bytes]) -> Record | None:
    """None: not a record, or a distrusted one. The verification of the ledger reports both."""
    text = bytes(data or b"")
    record = parse_record(text)
    return None if record is None or leaf_hash(text) in distrusted else record


def _expand_removals(distrusted: Collection[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        places = [
            {"sequence": row["sequence"], "version": version, "first": first, "last": last}
            for row in batch.to_pylist()
            if isinstance(record := _parse_trusted(row["record"], distrusted), RemovalRecord)
            for version, first, last in record.runs
        ]
        schema = pa.schema([(name, pa.int64()) for name in ("sequence", "version", "first", "last")])
        yield pa.RecordBatch.from_pylist(places, schema=schema)


def _expand_encryptions(distrusted: Collection[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    for batch in batches:
        for row in batch.to_pylist():
            record, hashes = _parse_trusted(row["record"], distrusted), row["chunk_roots"] or b""
            if not isinstance(record, EncryptionRecord) or not record.values or not record.matches_hashes(hashes):
                continue
            # There is one hash per event: the expanded runs are no larger than what was read
            index = np.concatenate([np.arange(first, last + 1, dtype=np.int64) for _, first, last in record.runs])
            sizes = [last - first + 1 for _, first, last in record.runs]
            versions = np.repeat(np.array([version for version, _, _ in record.runs], dtype=np.int64), sizes)
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
