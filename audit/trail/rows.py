"""From the rows of the feed to payload, events and roots: what is computed on the cluster.

    Payload        rows of the feed          → rows of ``payload``, each with a random id, a salt and its hash
    event_rows     rows of ``payload``       → rows of ``events``, numbered and with their leaves
    commit_roots   rows of ``events``        → per commit, the root over its leaves

Each step reads what the one before has made durable; few rows pass through the driver instead (``events_of``, ``roots_of``).
The order of the events of a commit is that of their random ids: it says nothing about keys that may have to be forgotten.
"""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import CharType, StringType, StructField, StructType, VarcharType

from audit.encryption.column_groups import SealedPerson, held_in, keys_of, seal_rows
from audit.trail.column_history import GROUPS, SEALED, Column, row_type
from audit.trail.tables import EVENT, STORED_EVENT, payload_of
from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)
from cdf.changes.few_rows import few_rows
from cdf.changes.keys import MARK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["CHUNK", "CommitRoots", "chunked", "Payload", "commit_roots", "event_rows", "events_of", "roots_of"]

CHUNK = 4096
"""So many leaves have a root of their own in the ledger: a fault is found within them, and not only within the commit."""
_CHUNK_BITS = 12
_ID_BYTES = _SALT_BYTES = 16
_ROWS_PER_BUCKET = 200_000


# ── payload ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Payload:
    """What becomes the payload of a window. ``times``: of each commit, as its record has it. ``paired``: there may be both
    images of updates."""

    feed: DataFrame
    """The columns that are live, change type and version."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    times: Mapping[int, dt.datetime | None]
    paired: bool
    baseline: bool
    withheld: frozenset[int] = frozenset()
    """Versions that erased somebody: of their rows before the change only the key is kept, for the feed has them whole."""
    people: tuple[SealedPerson, ...] = ()
    """Whose columns are sealed: the feed has a column with the keys of each besides (``audit.encryption.encrypt``)."""

    def rows(self, partitions: int) -> DataFrame:
        """By the tasks."""
        work = self._work()
        return self._placed(partitions).mapInArrow(work.run, payload_of(row_type(self.columns, stored=True)))

    def table(self) -> pa.Table | None:
        """By the driver; None if the rows are not few."""
        import pyarrow as pa

        rows = few_rows(self._placed(1))
        if rows is None:
            return None
        batches = list(self._work().run(rows.to_batches()))
        # In one piece: of slices PySpark cannot make a DataFrame where lists of structs have NULLs
        return pa.Table.from_batches(batches).combine_chunks() if batches else rows.slice(0, 0)

    def _placed(self, partitions: int) -> DataFrame:
        from pyspark.sql import functions as F

        from cdf.changes.columns import quoted

        # By place: PySpark itself cannot name a column with a dot or a backtick
        names = [column.name for column in self._of_the_source()]
        values = {name: quoted(name).alias(f"value_{at}") for at, name in enumerate(names)}
        # Delta's statistics of files are text: a search by a key that is no text would miss its rows, as if they were forged
        for at, column in enumerate(self._of_the_source()):
            if column.name in self.key and isinstance(column.type, (StringType, CharType, VarcharType)):
                key = quoted(column.name)
                refusal = F.raise_error(F.concat(F.lit(f"{MARK} not_utf8 "), F.col(COMMIT_VERSION).cast("string")))
                values[column.name] = (
                    F.when(F.is_valid_utf8(key) | key.isNull(), key).otherwise(refusal).alias(f"value_{at}")
                )
        keys = [keys_of(at) for at in range(len(self.people))]
        rows = self.feed.select(*values.values(), CHANGE_TYPE, COMMIT_VERSION, *keys)
        if not self.paired and partitions == 1:
            return rows
        placed = [F.col(COMMIT_VERSION), *(F.col(f"value_{names.index(name)}") for name in self.key)]
        rows = rows.coalesce(1) if partitions == 1 else rows.repartition(partitions, *placed)
        # The image before comes first: of the two names it is the later one
        return rows.sortWithinPartitions(*placed, F.col(CHANGE_TYPE).desc())

    def _of_the_source(self) -> list[Column]:
        return [column for column in self.columns if column.live and column.name != SEALED]

    def _work(self) -> _PayloadWork:
        schema = row_type(self._of_the_source(), stored=False)
        return _PayloadWork(
            self.columns, schema, self.key, self.times, self.paired, self.baseline, self.withheld, self.people
        )


@dataclass(frozen=True, slots=True)
class _PayloadWork:
    """What a task does; it is sent there."""

    columns: tuple[Column, ...]
    schema: StructType
    key: tuple[str, ...]
    times: Mapping[int, dt.datetime | None]
    paired: bool
    baseline: bool
    withheld: frozenset[int]
    people: tuple[SealedPerson, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = [keys_of(at) for at in range(len(self.people))]
        named = (batch.rename_columns([*self.schema.names, CHANGE_TYPE, COMMIT_VERSION, *keys]) for batch in batches)
        if self.paired:
            yield from self._in_groups(named)
            return
        for batch in named:
            if batch.num_rows:
                yield self._out(batch, [None] * batch.num_rows)

    def _in_groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        kept: pa.Table | None = None
        for batch in batches:
            rows = (
                pa.Table.from_batches([batch])
                if kept is None
                else pa.concat_tables([kept, pa.Table.from_batches([batch])])
            )
            if rows.num_rows == 0:
                continue
            groups = self._groups(rows)
            last = groups[-1][0]  # it may go on in the next batch
            if last:
                yield from self._matched(rows.slice(0, last), groups[:-1])
            kept = rows.slice(last)
        if kept is not None and kept.num_rows:
            yield from self._matched(kept, self._groups(kept))

    def _groups(self, rows: pa.Table) -> list[tuple[int, int]]:
        """The rows of one key and version stand together: from, to."""
        from pyspark.sql.types import StructType

        from audit.hashing.row_encoding import encode_rows

        keys = encode_rows(rows, StructType([field for field in self.schema.fields if field.name in self.key]))
        versions = rows.column(len(self.schema) + 1).to_pylist()
        starts = [
            at for at in range(len(keys)) if at == 0 or keys[at] != keys[at - 1] or versions[at] != versions[at - 1]
        ]
        return list(zip(starts, [*starts[1:], len(keys)], strict=True))

    def _matched(self, rows: pa.Table, groups: Sequence[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        from audit.hashing.row_encoding import encode_columns

        types = rows.column(len(self.schema)).to_pylist()
        values = encode_columns(rows, self.schema)
        changed: list[list[str] | None] = [None] * rows.num_rows
        for start, end in groups:
            before = [at for at in range(start, end) if types[at] == UPDATE_PREIMAGE]
            after = [at for at in range(start, end) if types[at] == UPDATE_POSTIMAGE]
            if len(before) == len(after) == 1:  # else nobody can tell which belongs to which
                one, other = before[0], after[0]
                names = [
                    name for name, column in zip(self.schema.names, values, strict=True) if column[one] != column[other]
                ]
                changed[one] = changed[other] = names
        for batch in rows.combine_chunks().to_batches():
            yield self._out(batch, changed)

    def _out(self, batch: pa.RecordBatch, changed: Sequence[Sequence[str] | None]) -> pa.RecordBatch:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        from audit.hashing.row_encoding import encode_rows, row_hash

        count, width = batch.num_rows, len(self.schema)
        gone = self._withheld(batch) if self.withheld else []
        if gone:
            batch = self._without_images(batch, gone)
        ids, salts = os.urandom(_ID_BYTES * count), os.urandom(_SALT_BYTES * count)
        rows, schema, texts = batch.select(range(width)), self.schema, pa.nulls(count, pa.list_(pa.binary()))
        if any(column.live and (column.name, column.type) == (SEALED, GROUPS) for column in self.columns):
            held = [held_in(batch.column(width + 2 + at)) for at in range(len(self.people))]
            each = [ids[at * _ID_BYTES : (at + 1) * _ID_BYTES] for at in range(count)]
            rows, groups, texts = seal_rows(rows, schema, self.people, held, each, gone)
            rows = rows.append_column(SEALED, groups)
            schema = StructType([*schema.fields, StructField(SEALED, GROUPS)])
        encoded = encode_rows(rows, schema)
        hashes = [row_hash(salts[at * _SALT_BYTES : (at + 1) * _SALT_BYTES], encoded[at]) for at in range(count)]
        versions = batch.column(width + 1)
        values = dict(zip(schema.names, rows.columns, strict=True))
        # In the plain type: what is not nullable in the source is no other type here, nor is the session's time zone
        types = [to_arrow_type(column.type, timezone="UTC") for column in self.columns]
        arrays = [
            values[column.name].cast(type) if column.live else pa.nulls(count, type)
            for column, type in zip(self.columns, types, strict=True)
        ]
        fields = [pa.field(column.stored, type) for column, type in zip(self.columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(
            [
                _fixed(ids, _ID_BYTES),
                versions,
                pa.array([self.times[version] for version in versions.to_pylist()], pa.timestamp("us", tz="UTC")),
                batch.column(width),
                pa.array([self.baseline] * count),
                pa.array(changed, pa.list_(pa.string())),
                pa.array(hashes, pa.binary()),
                _fixed(salts, _SALT_BYTES),
                pa.StructArray.from_arrays(arrays, fields=fields),
                *([texts] if any(column.name == SEALED for column in self.columns) else []),
            ],
            names=payload_of(row_type(self.columns, stored=True)).names,
        )

    def _withheld(self, batch: pa.RecordBatch) -> list[int]:
        """The places of rows before a change that erased somebody."""
        width = len(self.schema)
        told = zip(batch.column(width).to_pylist(), batch.column(width + 1).to_pylist(), strict=True)
        return [
            at
            for at, (kind, version) in enumerate(told)
            if kind in (DELETE, UPDATE_PREIMAGE) and version in self.withheld
        ]

    def _without_images(self, batch: pa.RecordBatch, gone: Collection[int]) -> pa.RecordBatch:
        import pyarrow as pa

        width, left_out = len(self.schema), set(gone)
        # Taken from nowhere a value is null, whatever its type
        kept = pa.array([None if at in left_out else at for at in range(batch.num_rows)], pa.int64())
        columns = [
            column if at >= width or self.schema.names[at] in self.key else column.take(kept)
            for at, column in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _fixed(joined: bytes, width: int) -> pa.Array:
    """Binary values of one width, out of one piece."""
    import numpy as np
    import pyarrow as pa

    count = len(joined) // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(joined)])


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def events_of(payload: pa.Table, table_id: str) -> pa.Table:
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


def roots_of(events: pa.Table) -> Mapping[int, CommitRoots]:
    """``commit_roots`` by the driver, of what ``events_of`` gave."""
    from audit.hashing.merkle import root_of

    found: dict[int, tuple[Counter[str], list[bytes]]] = {}
    columns = (events.column(name).to_pylist() for name in ("version", "change_type", "leaf"))
    for version, kind, leaf in zip(*columns, strict=True):
        counts, leaves = found.setdefault(version, (Counter(), []))
        counts[kind] += 1
        leaves.append(leaf)
    return {
        version: CommitRoots(counts, tuple(root_of(leaves[at : at + CHUNK]) for at in range(0, len(leaves), CHUNK)))
        for version, (counts, leaves) in found.items()
    }


def event_rows(payload: DataFrame, table_id: str) -> DataFrame:
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


def commit_roots(events: DataFrame) -> Mapping[int, CommitRoots]:
    """By version, of the commits that have events. Raises ValueError where places are missing or taken twice."""
    from pyspark.sql import functions as F

    counts = (F.count_if(F.col("change_type") == kind).alias(kind) for kind in _KINDS)
    chunks = chunked(events, counts=counts)
    found: dict[int, list[Any]] = {}
    for row in chunks.mapInArrow(_folded, _FOLDED).collect():
        found.setdefault(row["version"], []).append(row)
    return {version: _commit(version, sorted(rows, key=lambda row: row["chunk"])) for version, rows in found.items()}


def chunked(events: DataFrame, *more: str, counts: Iterable[Any] = ()) -> DataFrame:
    """The leaves of each chunk in order of their places: ``version``, ``chunk``, ``leaves``, and what is counted."""
    from pyspark.sql import functions as F

    leaves = F.sort_array(F.collect_list(F.struct("index", "leaf", *more)))
    by_chunk = events.groupBy("version", F.shiftright("index", _CHUNK_BITS).alias("chunk"))
    return by_chunk.agg(leaves.alias("leaves"), *counts)


_KINDS = (INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE)
_FOLDED = "version long, chunk long, size long, root binary, " + ", ".join(f"{kind} long" for kind in _KINDS)


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from audit.hashing.merkle import root_of

    for batch in batches:
        sizes, roots = [], []
        for chunk, leaves in zip(batch.column("chunk").to_pylist(), batch.column("leaves").to_pylist(), strict=True):
            if [leaf["index"] for leaf in leaves] != list(range(chunk * CHUNK, chunk * CHUNK + len(leaves))):
                raise ValueError("the places of events are not without gaps and doubles")
            sizes.append(len(leaves))
            roots.append(root_of([leaf["leaf"] for leaf in leaves]))
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
    whole = all(row["size"] == CHUNK for row in chunks[:-1])
    if [row["chunk"] for row in chunks] != list(range(len(chunks))) or not whole:
        raise ValueError(f"events of version {version} are missing")
    counts = {kind: sum(row[kind] for row in chunks) for kind in _KINDS}
    return CommitRoots(
        {kind: count for kind, count in counts.items() if count}, tuple(bytes(row["root"]) for row in chunks)
    )
