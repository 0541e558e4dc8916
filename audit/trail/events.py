"""Events of a trail: built from payload rows, numbered within their commit, hashed; and the Merkle roots over them.

    build_event_rows      rows of ``payload``  → rows of ``events``, with index and leaf hash   (Spark)
    compute_commit_roots  rows of ``events``   → per commit, the roots over its leaves          (Spark)
    build_events, compute_roots                  the same on the driver, for few rows

Each Spark step reads what the step before has made durable. The events of a commit are ordered by their random ids, so the
order says nothing about keys that may have to be erased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audit.trail.tables import EVENT, STORED_EVENT
from cdf.changes.columns import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from audit.hashing.recorded_types import Numbers

__all__ = [
    "CHUNK_EVENTS",
    "CommitRoots",
    "build_event_rows",
    "build_events",
    "chunk_number",
    "compute_commit_roots",
    "compute_roots",
]

CHUNK_EVENTS = 4096
"""Number of leaves under one root in the ledger: a fault is narrowed down to such a chunk, not only to its commit."""
_CHUNK_BITS = 12
_UNDIVIDED_ROWS = 50_000
"""Maximum number of rows of a commit that one task numbers."""
_CHANGE_TYPES = (INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE)


@dataclass(frozen=True, slots=True)
class CommitRoots:
    """Number of events of one commit by change type, and the roots over their leaves, one per ``CHUNK_EVENTS``."""

    counts: Mapping[str, int]
    chunk_roots: tuple[bytes, ...]

    @property
    def events(self) -> int:
        return sum(self.counts.values())


# ── on the driver ────────────────────────────────────────────────────────────────────────────────────────────────────


def build_events(payload: pa.Table, table_id: str) -> pa.Table:
    """``build_event_rows`` on the driver, for few rows."""
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
    return pa.Table.from_batches(_add_leaves(events.to_batches()))


def compute_roots(events: pa.Table) -> Mapping[int, CommitRoots]:
    """``compute_commit_roots`` on the driver. ``events``: from ``build_events``."""
    from audit.hashing.merkle import merkle_root

    found: dict[int, tuple[Counter[str], list[bytes]]] = {}
    columns = (events.column(name).to_pylist() for name in ("version", "change_type", "leaf"))
    for version, change_type, leaf in zip(*columns, strict=True):
        counts, leaves = found.setdefault(version, (Counter(), []))
        counts[change_type] += 1
        leaves.append(leaf)
    return {
        version: CommitRoots(
            counts,
            tuple(merkle_root(leaves[at : at + CHUNK_EVENTS]) for at in range(0, len(leaves), CHUNK_EVENTS)),
        )
        for version, (counts, leaves) in found.items()
    }


# ── in Spark ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def build_event_rows(payload: DataFrame, table_id: str) -> DataFrame:
    """Build the events of payload rows. ``payload``: all rows of whole commits. → rows of ``STORED_EVENT``."""
    from pyspark.sql import functions as F

    # The ids are evenly distributed. The rows of a large commit are divided by the first digit of their ids, and each part
    # is numbered by itself, starting after the rows of the parts before it
    part = F.coalesce(F.ascii(F.hex(F.substring("id", 1, 1))), F.lit(-1)).alias("part")
    rows = payload.select(*_COPIED, part)
    counts = rows.groupBy("version", "part").count().collect()
    starts: dict[tuple[int, int], int] = {}
    events: Counter[int] = Counter()
    for version, part_number, count in sorted(map(tuple, counts)):
        starts[version, part_number] = events[version]
        events[version] += count
    if max(events.values(), default=0) <= _UNDIVIDED_ROWS:
        rows, starts = rows.withColumn("part", F.lit(0)), {(version, 0): 0 for version in events}
    # Sorted by version as well, so that few files have the events of a commit. Where all are of one commit, the ids alone
    # are sorted faster, because Spark compares rows by the first bytes of the first column
    order = ["version", "id"] if len(events) > 1 else ["id"]
    rows = rows.repartition("version", "part").sortWithinPartitions(*order)
    return rows.mapInArrow(_EventBuilder(table_id, starts).build, STORED_EVENT)


_COPIED = tuple(name for name in EVENT.names if name not in ("table_id", "index"))


@dataclass(frozen=True, slots=True)
class _EventBuilder:
    """Builds events from the rows of whole parts of commits, sorted by id. It is serialised and sent to the tasks."""

    table_id: str
    starts: Mapping[tuple[int, int], int]
    """By version and part, the index of the first event."""

    def build(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        following = dict(self.starts)
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns["index"] = pa.array(_number_rows(batch, following), pa.int64())
            columns["table_id"] = pa.repeat(self.table_id, batch.num_rows)
            yield from _add_leaves(
                [pa.RecordBatch.from_arrays([columns[name] for name in EVENT.names], names=EVENT.names)]
            )


def _number_rows(rows: pa.RecordBatch, following: dict[tuple[int, int], int]) -> Numbers:
    """The index of each row. ``following``: by version and part, the index of the next row; is updated."""
    import numpy as np

    version, part = (rows.column(name).to_numpy() for name in ("version", "part"))
    index = np.empty(len(version), np.int64)
    order = np.lexsort((part, version))  # keeps the order of the rows of a part
    is_next = (np.diff(version[order]) != 0) | (np.diff(part[order]) != 0)
    for places in np.split(order, 1 + np.flatnonzero(is_next)) if len(order) else ():
        of = int(version[places[0]]), int(part[places[0]])
        index[places] = np.arange(following[of], following[of] + len(places))
        following[of] += len(places)
    return index


def _add_leaves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from audit.hashing.row_encoding import hash_leaves

    for batch in batches:
        leaves = pa.array(hash_leaves(batch, EVENT), pa.binary())
        yield pa.RecordBatch.from_arrays([*batch.columns, leaves], names=[*batch.schema.names, "leaf"])


def compute_commit_roots(events: DataFrame) -> Mapping[int, CommitRoots]:
    """Compute the roots by version, for the commits that have events. Raises ValueError where an index is missing or
    doubled."""
    rows = events.select("version", "index", "leaf", "change_type")
    by_chunk = rows.repartition("version", chunk_number()).sortWithinPartitions("version", "index")
    found: dict[int, list[Any]] = {}
    for row in by_chunk.mapInArrow(_hash_chunks, _HASHED_CHUNK).collect():
        found.setdefault(row["version"], []).append(row)
    return {
        version: _join_chunks(version, sorted(rows, key=lambda row: row["chunk"])) for version, rows in found.items()
    }


def chunk_number() -> Column:
    """The number of the chunk of an event."""
    from pyspark.sql import functions as F

    return F.shiftright("index", _CHUNK_BITS)


_HASHED_CHUNK = "version long, chunk long, size long, root binary, " + ", ".join(
    f"{change_type} long" for change_type in _CHANGE_TYPES
)


def _hash_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``batches``: whole chunks, sorted by version and index."""
    import numpy as np
    import pyarrow as pa

    rest: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        rows = rows if rest is None else pa.concat_tables([rest, rows])
        if not rows.num_rows:
            continue
        version, chunk = rows.column("version").to_numpy(), rows.column("index").to_numpy() >> _CHUNK_BITS
        starts = np.flatnonzero((np.diff(version, prepend=version[:1] - 1) != 0) | (np.diff(chunk, prepend=-1) != 0))
        last = int(starts[-1])  # the last chunk may continue in the next batch
        if last:
            yield _hash_rows_of_chunks(rows.slice(0, last), starts[:-1])
        rest = rows.slice(last)
    if rest is not None and rest.num_rows:
        yield _hash_rows_of_chunks(rest, np.zeros(1, np.int64))


def _hash_rows_of_chunks(rows: pa.Table, starts: Numbers) -> pa.RecordBatch:
    """``starts``: the places at which the chunks start."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from audit.hashing.merkle import merkle_root

    version, index = (rows.column(name).to_numpy() for name in ("version", "index"))
    leaves, types = rows.column("leaf").to_pylist(), rows.column("change_type")
    sizes, chunk = np.diff(starts, append=len(index)), index[starts] >> _CHUNK_BITS
    if np.any(index != np.repeat((chunk << _CHUNK_BITS) - starts, sizes) + np.arange(len(index))):
        raise ValueError("an index of an event is missing or doubled")
    roots = [merkle_root(leaves[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    return pa.RecordBatch.from_pydict(
        {
            "version": version[starts],
            "chunk": chunk,
            "size": sizes,
            "root": pa.array(roots, pa.binary()),
            **{
                kind: np.add.reduceat(pc.equal(types, kind).to_numpy().astype(np.int64), starts)
                for kind in _CHANGE_TYPES
            },
        }
    )


def _join_chunks(version: int, chunks: Sequence[Any]) -> CommitRoots:
    are_full = all(row["size"] == CHUNK_EVENTS for row in chunks[:-1])
    if [row["chunk"] for row in chunks] != list(range(len(chunks))) or not are_full:
        raise ValueError(f"events of version {version} are missing")
    counts = {change_type: sum(row[change_type] for row in chunks) for change_type in _CHANGE_TYPES}
    return CommitRoots(
        {change_type: count for change_type, count in counts.items() if count},
        tuple(bytes(row["root"]) for row in chunks),
    )
