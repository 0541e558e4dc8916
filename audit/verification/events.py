"""Verifies the events: recomputes the leaf of each event, and compares the roots over the leaves with the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from audit.hashing.row_encoding import encode_by_halves, hash_leaves
from audit.proof import leaf_hash
from audit.trail.events import CHUNK_EVENTS, chunk_number
from audit.trail.tables import EVENT, EVENTS
from audit.verification.ledger import Commit, LedgerScan
from audit.verification.results import Findings, Kind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["FAULT_TEXTS", "verify_events"]

FAULT_TEXTS = {
    "altered": "changed after writing",
    "missing": "missing",
    "doubled": "stored more than once",
    "added": "added later",
}
_VERIFIED_CHUNK = (
    "version long, chunk long, size long, last long, root binary, "
    "altered array<long>, gaps array<long>, doubled array<long>"
)
_NAMED = 20
"""Maximum number of events of a kind that are named in one chunk."""


def verify_events(events: DataFrame, scan: LedgerScan, findings: Findings) -> int:
    """→ the number of events read. ``events``: those up to the last record."""
    from pyspark.sql import functions as F

    placed = F.coalesce(F.col("version").isNotNull() & (F.col("index") >= 0) & F.col("id").isNotNull(), F.lit(False))
    lost = events.where(~placed).groupBy("version").count().collect()
    for row in sorted(lost, key=lambda row: (row["version"] is not None, row["version"])):
        message = f"{row['count']} events without a valid version, index or id"
        findings.add("added", EVENTS, message, version=row["version"])
    total: int = sum(row["count"] for row in lost)
    found: dict[int, dict[int, Any]] = {}
    own = events.where(placed).mapInArrow(
        _recompute_leaves, "version long, index long, leaf binary, agrees boolean, at long"
    )
    leaves = F.sort_array(F.collect_list(F.struct("index", "leaf", "agrees"))).alias("leaves")
    by_chunk = own.groupBy("version", chunk_number().alias("chunk"))
    chunks = by_chunk.agg(leaves, F.min("at").alias("least"), F.max("at").alias("most"))
    for chunk in chunks.mapInArrow(_verify_chunks, f"{_VERIFIED_CHUNK}, least long, most long").collect():
        found.setdefault(chunk["version"], {})[chunk["chunk"]] = chunk
        total += chunk["size"]
    for version in sorted(found.keys() - scan.commits.keys()):
        count = sum(chunk["size"] for chunk in found[version].values())
        message = f"{count} events of version {version}, which the ledger does not have"
        findings.add("added", EVENTS, message, version=version)
    for version, commit in sorted(scan.commits.items()):
        _verify_commit(version, commit, found.get(version, {}), findings)
    return total


def _verify_commit(version: int, commit: Commit, chunks: Mapping[int, Any], findings: Findings) -> None:
    def add(kind: Kind, first: int, last: int, text: str) -> None:
        place = f"event {first}" if first == last else f"events {first} to {last}"
        findings.add(kind, EVENTS, f"{place} of version {version}: {text}", version=version, rows=(first, last))

    for number, root in enumerate(commit.chunk_roots):
        start = number * CHUNK_EVENTS
        # If a record has more roots than its number of rows needs, the surplus chunks still have at least one event
        end = max(start, min(start + CHUNK_EVENTS, commit.rows)) - 1
        chunk = chunks.get(number)
        if chunk is None:
            add("missing", start, end, FAULT_TEXTS["missing"])
        elif bytes(chunk["root"]) != root or chunk["altered"]:
            empty = frozenset(chunk["gaps"])
            missing = [*sorted(place for place in empty if place <= end), *range(chunk["last"] + 1, end + 1)]
            added = [place for place in range(end + 1, chunk["last"] + 1) if place not in empty]
            places: dict[Kind, Sequence[int]] = {
                "altered": chunk["altered"],
                "missing": missing,
                "doubled": chunk["doubled"],
                "added": added,
            }
            for kind, found in places.items():
                for place in found[:_NAMED]:
                    add(kind, place, place, FAULT_TEXTS[kind])
            if not any(places.values()):
                add("altered", start, end, "at least one was altered together with its stored hash")
        elif not chunk["least"] == chunk["most"] == commit.committed_micros:
            add("altered", start, end, "their commit time differs from the ledger record")
    for number in sorted(chunks.keys() - set(range(len(commit.chunk_roots)))):
        add("added", number * CHUNK_EVENTS, chunks[number]["last"], FAULT_TEXTS["added"])


def _recompute_leaves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The recomputed leaf of each event, and whether the stored leaf agrees."""
    import pyarrow as pa

    for batch in batches:
        leaves = _hash_events(batch.select(EVENT.names))
        agrees = [leaf == stored for leaf, stored in zip(leaves, batch.column("leaf").to_pylist(), strict=True)]
        yield pa.RecordBatch.from_pydict(
            {
                "version": batch.column("version"),
                "index": batch.column("index"),
                "leaf": pa.array(leaves, pa.binary()),
                "agrees": pa.array(agrees, pa.bool_()),
                "at": batch.column("committed_at").cast(pa.int64()),
            }
        )


def _hash_events(events: pa.RecordBatch) -> list[bytes]:
    """The leaf of each event; of an event that cannot be encoded, a hash that is no event's."""

    def hash_slice(first: int, count: int) -> Sequence[bytes]:
        return hash_leaves(events.slice(first, count), EVENT)

    return [leaf or leaf_hash(b"") for leaf in encode_by_halves(hash_slice, events.num_rows)]


def _verify_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    from audit.hashing.merkle import merkle_root

    for batch in batches:
        leaves, out = batch.column("leaves"), []
        kept = [batch.column(name).to_pylist() for name in ("version", "chunk", "least", "most")]
        for version, number, least, most, inside in zip(*kept, leaves, strict=True):
            index = inside.values.field("index").to_numpy()
            agrees = inside.values.field("agrees").to_numpy(zero_copy_only=False)
            start, last = number * CHUNK_EVENTS, int(index[-1])
            out.append(
                {
                    "version": version,
                    "chunk": number,
                    "size": len(index),
                    "last": last,
                    "root": merkle_root(inside.values.field("leaf").to_pylist()),
                    "altered": index[~agrees][:_NAMED].tolist(),
                    "gaps": np.setdiff1d(np.arange(start, last), index).tolist(),
                    "doubled": np.unique(index[1:][index[1:] == index[:-1]])[:_NAMED].tolist(),
                    "least": least,
                    "most": most,
                }
            )
        yield pa.RecordBatch.from_pylist(out, schema=_verified_chunk_schema())


def _verified_chunk_schema() -> pa.Schema:
    import pyarrow as pa

    long, longs = pa.int64(), pa.list_(pa.int64())
    types = {"version": long, "chunk": long, "size": long, "last": long, "root": pa.binary()}
    return pa.schema({**types, "altered": longs, "gaps": longs, "doubled": longs, "least": long, "most": long})
