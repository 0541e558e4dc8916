"""Events of a window and the roots of their commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audit.trail.tables import EVENT, STORED_EVENT
from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = [
    "CHUNK_EVENTS",
    "CommitRoots",
    "group_by_chunk",
    "compute_commit_roots",
    "build_event_rows",
    "build_events",
    "compute_roots",
]

CHUNK_EVENTS = 4096
"""So many leaves have a root of their own in the ledger: a fault is found within them, and not only within the commit."""
_CHUNK_BITS = 12
_ROWS_PER_BUCKET = 200_000


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def build_events(payload: pa.Table, table_id: str) -> pa.Table:
    """The same by the driver, for few rows."""
    import numpy as np
    import pyarrow as pa

    payload = payload.sort_by([("version", "ascending"), ("id", "ascending")])
    versions = payload.column("version").to_numpy()
    index = np.arange(len(versions)) - np.searchsorted(versions, versions)
    columns = {
        "table_id": pa.array([table_id] * len(versions)),
        **{name: payload.column(name) for name in payload.column_names},
        "index": pa.array(index, pa.int64()),
    }
    events = pa.table({name: columns[name] for name in EVENT.names}).combine_chunks()
    return pa.Table.from_batches(_with_leaves(events.to_batches()))


def compute_roots(events: pa.Table) -> Mapping[int, CommitRoots]:
    """``commit_roots`` by the driver, of what ``events_of`` gave."""
    from audit.hashing.merkle import merkle_root

    found: dict[int, tuple[Counter[str], list[bytes]]] = {}
    columns = (events.column(name).to_pylist() for name in ("version", "change_type", "leaf"))
    for version, kind, leaf in zip(*columns, strict=True):
        counts, leaves = found.setdefault(version, (Counter(), []))
        counts[kind] += 1
        leaves.append(leaf)
    return {
        version: CommitRoots(
            counts, tuple(merkle_root(leaves[at : at + CHUNK_EVENTS]) for at in range(0, len(leaves), CHUNK_EVENTS))
        )
        for version, (counts, leaves) in found.items()
    }


def build_event_rows(payload: DataFrame, table_id: str) -> DataFrame:
    """``payload``: the rows of whole commits. Their place in the commit is that of their random id among the others."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    rows = payload.select("id", "version", "committed_at", "change_type", "baseline", "changed_columns", "row_hash")
    most = max((row["count"] for row in rows.groupBy("version").count().collect()), default=0)
    bits = max(0, -(-most // _ROWS_PER_BUCKET) - 1).bit_length()
    if bits == 0:
        index = F.row_number().over(Window.partitionBy("version").orderBy("id")) - 1
    else:
        # The ids are evenly spread: each bucket is numbered by itself, after what the buckets before it hold
        first_bytes = F.conv(F.hex(F.substring("id", 1, 2)), 16, 10).cast("int")
        rows = rows.withColumn("bucket", F.shiftright(first_bytes, 16 - bits))
        before = Window.partitionBy("version").orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
        sizes = rows.groupBy("version", "bucket").agg(F.count("*").alias("size"))
        sizes = sizes.select("version", "bucket", F.coalesce(F.sum("size").over(before), F.lit(0)).alias("start"))
        rows = rows.join(F.broadcast(sizes), ["version", "bucket"])
        index = F.col("start") + F.row_number().over(Window.partitionBy("version", "bucket").orderBy("id")) - 1
    numbered = rows.select(
        F.lit(table_id).alias("table_id"),
        "version",
        index.cast("long").alias("index"),
        *(name for name in EVENT.names if name not in ("table_id", "version", "index")),
    )
    return numbered.mapInArrow(_with_leaves, STORED_EVENT)


def _with_leaves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_rows
    from audit.proof import leaf_hash

    for batch in batches:
        leaves = pa.array([leaf_hash(encoded) for encoded in encode_rows(batch, EVENT)], pa.binary())
        yield pa.RecordBatch.from_arrays([*batch.columns, leaves], names=[*batch.schema.names, "leaf"])


# ── roots ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class CommitRoots:
    """Of one commit: its events, by change type, and the roots over their leaves, in pieces of ``CHUNK``."""

    counts: Mapping[str, int]
    chunk_roots: tuple[bytes, ...]

    @property
    def events(self) -> int:
        return sum(self.counts.values())


def compute_commit_roots(events: DataFrame) -> Mapping[int, CommitRoots]:
    """By version, of the commits that have events. Raises ValueError where places are missing or taken twice."""
    from pyspark.sql import functions as F

    counts = (F.count_if(F.col("change_type") == kind).alias(kind) for kind in _KINDS)
    chunks = group_by_chunk(events, counts=counts)
    found: dict[int, list[Any]] = {}
    for row in chunks.mapInArrow(_folded, _FOLDED).collect():
        found.setdefault(row["version"], []).append(row)
    return {version: _commit(version, sorted(rows, key=lambda row: row["chunk"])) for version, rows in found.items()}


def group_by_chunk(events: DataFrame, *more: str, counts: Iterable[Any] = ()) -> DataFrame:
    """The leaves of each chunk in order of their places: ``version``, ``chunk``, ``leaves``, and what is counted."""
    from pyspark.sql import functions as F

    leaves = F.sort_array(F.collect_list(F.struct("index", "leaf", *more)))
    by_chunk = events.groupBy("version", F.shiftright("index", _CHUNK_BITS).alias("chunk"))
    return by_chunk.agg(leaves.alias("leaves"), *counts)


_KINDS = (INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE)
_FOLDED = "version long, chunk long, size long, root binary, " + ", ".join(f"{kind} long" for kind in _KINDS)


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from audit.hashing.merkle import merkle_root

    for batch in batches:
        sizes, roots = [], []
        for chunk, leaves in zip(batch.column("chunk").to_pylist(), batch.column("leaves").to_pylist(), strict=True):
            if [leaf["index"] for leaf in leaves] != list(
                range(chunk * CHUNK_EVENTS, chunk * CHUNK_EVENTS + len(leaves))
            ):
                raise ValueError("the places of events are not without gaps and doubles")
            sizes.append(len(leaves))
            roots.append(merkle_root([leaf["leaf"] for leaf in leaves]))
        counts = {kind: batch.column(kind) for kind in _KINDS}
        yield pa.RecordBatch.from_pydict(
            {
                "version": batch.column("version"),
                "chunk": batch.column("chunk"),
                "size": pa.array(sizes, pa.int64()),
                "root": pa.array(roots, pa.binary()),
                **counts,
            }
        )


def _commit(version: int, chunks: Sequence[Any]) -> CommitRoots:
    whole = all(row["size"] == CHUNK_EVENTS for row in chunks[:-1])
    if [row["chunk"] for row in chunks] != list(range(len(chunks))) or not whole:
        raise ValueError(f"events of version {version} are missing")
    counts = {kind: sum(row[kind] for row in chunks) for kind in _KINDS}
    return CommitRoots(
        {kind: count for kind, count in counts.items() if count}, tuple(bytes(row["root"]) for row in chunks)
    )
