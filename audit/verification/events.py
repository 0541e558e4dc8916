"""Every event's leaf computed anew, and the roots over them held against the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from audit.hashing.row_encoding import encode_or_none
from audit.proof import leaf_hash
from audit.trail.events import CHUNK_EVENTS, group_by_chunk
from audit.trail.tables import EVENT, EVENTS
from audit.verification.ledger import Commit, LedgerScan
from audit.verification.results import Findings, Kind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["FAULT_TEXTS", "verify_events"]

FAULT_TEXTS = {
    "altered": "not what was written",
    "missing": "gone",
    "doubled": "there more than once",
    "added": "added later",
}
_FOLDED = (
    "version long, chunk long, size long, last long, root binary, "
    "altered array<long>, gaps array<long>, doubled array<long>"
)
_NAMED = 20
"""So many places of a kind are named of one chunk."""


def verify_events(events: DataFrame, walk: LedgerScan, findings: Findings) -> int:
    """→ how many were looked at. ``events``: those up to the last record."""
    from pyspark.sql import functions as F

    placed = F.coalesce(F.col("version").isNotNull() & (F.col("index") >= 0) & F.col("id").isNotNull(), F.lit(False))
    lost = events.where(~placed).groupBy("version").count().collect()
    for row in sorted(lost, key=lambda row: (row["version"] is not None, row["version"])):
        words = f"{row['count']} events without a place among those of their commit"
        findings.add("added", EVENTS, words, version=row["version"])
    total: int = sum(row["count"] for row in lost)
    found: dict[int, dict[int, Any]] = {}
    own = events.where(placed).mapInArrow(
        _with_own_leaves, "version long, index long, leaf binary, agrees boolean, at long"
    )
    chunks = group_by_chunk(own, "agrees", counts=[F.min("at").alias("least"), F.max("at").alias("most")])
    for chunk in chunks.mapInArrow(_folded, f"{_FOLDED}, least long, most long").collect():
        found.setdefault(chunk["version"], {})[chunk["chunk"]] = chunk
        total += chunk["size"]
    for version in sorted(found.keys() - walk.commits.keys()):
        count = sum(chunk["size"] for chunk in found[version].values())
        words = f"{count} events of version {version}, which the ledger does not have"
        findings.add("added", EVENTS, words, version=version)
    for version, commit in sorted(walk.commits.items()):
        _verify_commit(version, commit, found.get(version, {}), findings)
    return total


def _verify_commit(version: int, commit: Commit, chunks: Mapping[int, Any], findings: Findings) -> None:
    def add(kind: Kind, first: int, last: int, text: str) -> None:
        place = f"event {first}" if first == last else f"events {first} to {last}"
        findings.add(kind, EVENTS, f"{place} of version {version}: {text}", version=version, rows=(first, last))

    for number, root in enumerate(commit.chunk_roots):
        start = number * CHUNK_EVENTS
        # A record that tells of fewer rows than its roots are of makes no chunk longer than one is
        end = max(start, min(start + CHUNK_EVENTS, commit.rows)) - 1
        chunk = chunks.get(number)
        if chunk is None:
            add("missing", start, end, "gone")
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
            for kind, there in places.items():
                for place in there[:_NAMED]:
                    add(kind, place, place, FAULT_TEXTS[kind])
            if not any(places.values()):
                add("altered", start, end, "at least one is not what was written, together with its hash")
        elif not chunk["least"] == chunk["most"] == commit.committed_micros:
            add("altered", start, end, "their time is not that of the record of their commit")
    for number in sorted(chunks.keys() - set(range(len(commit.chunk_roots)))):
        add("added", number * CHUNK_EVENTS, chunks[number]["last"], FAULT_TEXTS["added"])


def _with_own_leaves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each event's leaf, computed anew; and whether the one that is kept beside it agrees."""
    import pyarrow as pa

    for batch in batches:
        leaves = [leaf_hash(event or b"") for event in encode_or_none(batch.select(EVENT.names), EVENT)]
        agrees = [leaf == kept for leaf, kept in zip(leaves, batch.column("leaf").to_pylist(), strict=True)]
        yield pa.RecordBatch.from_pydict(
            {
                "version": batch.column("version"),
                "index": batch.column("index"),
                "leaf": pa.array(leaves, pa.binary()),
                "agrees": pa.array(agrees, pa.bool_()),
                "at": batch.column("committed_at").cast(pa.int64()),
            }
        )


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        yield pa.RecordBatch.from_pylist(out, schema=_folded_schema())


def _folded_schema() -> pa.Schema:
    import pyarrow as pa

    long, longs = pa.int64(), pa.list_(pa.int64())
    types = {"version": long, "chunk": long, "size": long, "last": long, "root": pa.binary()}
    return pa.schema({**types, "altered": longs, "gaps": longs, "doubled": longs, "least": long, "most": long})
