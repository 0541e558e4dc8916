"""Each row of the payload held against its event: the hash of its values, and the copies of the event beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from audit.encryption.column_groups import is_whole
from audit.proof import leaf_hash
from audit.trail.column_history import LATER, SEALED, is_readable_as, plain_type, row_type
from audit.trail.column_history import Column as StoredColumn
from audit.trail.record_kinds import REMOVAL, SEALING, SHREDDING, are_hashes, named_runs, parse_record
from audit.trail.tables import EVENTS, PAYLOAD
from audit.verification.events import WORDS, encoded
from audit.verification.ledger import Walk
from audit.verification.results import MOST_FINDINGS, Findings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["Values", "cleared_by", "hashes", "removed_by", "resealed_by", "verify_values", "whole"]

_COPIES = ("committed_at", "change_type", "baseline", "changed_columns")
"""What a payload row repeats of its event, besides its hash."""
_WORDS = {
    **WORDS,
    "missing": "gone, and no record tells of it",
    "returned": "there, although a record tells that they were removed",
}


@dataclass(frozen=True, slots=True)
class Values:
    """How many events were found to have what."""

    present: int
    """Rows of the payload."""
    removed: int
    """None any more, because of a record."""
    resealed: int
    """A row that was sealed later, because of a record."""
    unfinished: int
    """Still what a late record tells that they have no more."""


def verify_values(
    payload: DataFrame,
    events: DataFrame,
    removed: DataFrame,
    resealed: DataFrame | None,
    cleared: frozenset[bytes],
    walk: Walk,
    findings: Findings,
) -> Values:
    """Both sides by id, in one shuffle each. Only ids, hashes and places travel. ``removed``: of ``removed_by``, …"""
    from pyspark.sql import functions as F

    copies = F.struct(*_COPIES).alias("copies")
    own = F.col("row_hash").alias("kept_hash")
    by_id = (
        _hashed(payload.select("id", "version", "salt", "row", *_sealed(payload), copies, own), walk, cleared)
        .groupBy("id")
        .agg(
            F.count("*").alias("count"),
            F.first("version").alias("version"),
            F.first("hash").alias("hash"),
            F.first("kept_hash").alias("kept_hash"),
            F.first("copies").alias("copies"),
        )
    )
    place = (F.col("version").alias("event_version"), "index")
    of_events = _expecting(events.select("id", *place, copies.alias("event_copies"), "row_hash"), resealed)
    gone = F.col("count").isNull()
    before = F.col("hash").eqNullSafe(F.col("before")) & F.col("before").isNotNull()
    right = (F.col("hash").eqNullSafe(F.col("expected")) | before) & F.col("kept_hash").eqNullSafe(F.col("hash"))
    fault = (
        F.when(F.col("event_version").isNull(), "added")
        .when(gone & F.col("removed"), "removed")
        .when(gone, "missing")
        .when(F.col("removed_before"), "returned")
        .when(F.col("count") > 1, "doubled")
        .when(~F.col("version").eqNullSafe(F.col("event_version")), "moved")
        .when(~right, "altered")
        .when(~F.col("copies").eqNullSafe(F.col("event_copies")), "altered")
    )
    joined = _marked(of_events, removed).join(by_id, "id", "full_outer").withColumn("fault", fault)
    late = F.count_if((F.col("removed") & ~gone) | (before & ~F.col("hash").eqNullSafe(F.col("expected"))))
    counts = (
        F.count("*").alias("events"),
        F.sum("count").alias("values"),
        F.count_if(F.col("resealed") & ~gone).alias("resealed"),
        late.alias("late"),
    )
    groups = joined.groupBy("fault").agg(*counts).collect()
    told = {row["fault"]: row for row in groups}
    for kind in sorted(told.keys() - {None, "removed"}):
        places = joined.where(F.col("fault") == kind).select("event_version", "index", "version", "fault")
        for row in places.orderBy("event_version", "index").limit(MOST_FINDINGS + 1).collect():
            _add(row, findings)
    removed_now = told["removed"]["events"] if "removed" in told else 0
    return Values(
        present=sum(row["values"] or 0 for row in groups),
        removed=removed_now,
        resealed=sum(row["resealed"] for row in groups),
        unfinished=sum(row["late"] for kind, row in told.items() if kind != "returned"),
    )


def _expecting(of_events: DataFrame, resealed: DataFrame | None) -> DataFrame:
    """With ``expected``, the hash that the event's row has to have; ``before``: the one that it may still have; and
    ``resealed``."""
    from pyspark.sql import functions as F

    if resealed is None:
        told = {"expected": F.col("row_hash"), "before": F.lit(None).cast("binary"), "resealed": F.lit(False)}
        return of_events.withColumns(told).drop("row_hash")
    joined = of_events.join(resealed, ["event_version", "index"], "left")
    told = {
        "expected": F.coalesce("sealed_hash", "row_hash"),
        "before": F.when(F.col("late"), F.coalesce("hash_before", "row_hash")),
        "resealed": F.col("sealed_hash").isNotNull(),
    }
    return joined.withColumns(told).drop("row_hash", "sealed_hash", "hash_before", "late")


def removed_by(ledger: DataFrame, size: int, distrusted: Collection[bytes] = ()) -> DataFrame:
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


def resealed_by(ledger: DataFrame, size: int | None = None, distrusted: Collection[bytes] = ()) -> DataFrame | None:
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


def cleared_by(ledger: DataFrame, distrusted: Collection[bytes] = ()) -> frozenset[bytes]:
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


def _marked(of_events: DataFrame, removed: DataFrame) -> DataFrame:
    """With ``removed``: whether a record names the event; ``removed_before``: one that is no late one."""
    from pyspark.sql import functions as F

    def named(place: Column) -> Column:
        return F.col("index").between(place["first"], place["last"])

    marked = of_events.join(removed.withColumnRenamed("version", "event_version"), "event_version", "left")
    before = F.exists("removed", lambda place: named(place) & ~place["late"])
    marked = marked.withColumn("removed_before", F.coalesce(before, F.lit(False)))
    return marked.withColumn("removed", F.coalesce(F.exists("removed", named), F.lit(False)))


def _sealed(payload: DataFrame) -> list[str]:
    return ["sealed"] if "sealed" in payload.columns else []


def _hashed(payload: DataFrame, walk: Walk, gone: frozenset[bytes]) -> DataFrame:
    """``id``, ``version``, ``hash`` of the values as they are now, ``copies``, ``kept_hash``. A row of no commit has no
    hash."""
    copies = payload.schema["copies"].dataType.simpleString()
    starts: list[int] = []
    columns_at: list[int] = []
    for version, commit in sorted(walk.commits.items()):
        if not columns_at or commit.columns_at != columns_at[-1]:
            starts.append(version)
            columns_at.append(commit.columns_at)
    row = payload.schema["row"].dataType
    held = {field.name: plain_type(field.dataType) for field in getattr(row, "fields", ())}
    hasher = _hasher(starts, [_fitting(walk.columns[at], held) for at in columns_at], gone)
    return payload.mapInArrow(hasher, f"id binary, version long, hash binary, copies {copies}, kept_hash binary")


def _fitting(columns: Sequence[StoredColumn], held: Mapping[str, DataType]) -> Sequence[StoredColumn] | None:
    """None: a record tells of other types than the payload has, so that nothing was written with these columns."""
    live = (column for column in columns if column.live)
    return columns if all(is_readable_as(held.get(one.stored, one.type), one.type) for one in live) else None


def _hasher(
    starts: Sequence[int], columns: Sequence[Sequence[StoredColumn] | None], gone: frozenset[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """``columns``: from each of the versions ``starts`` on; None: none of its rows can be what was written. ``gone``: of
    ``cleared_by``."""

    def hashed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            versions = batch.column("version").fill_null(-1).to_numpy()
            era = np.searchsorted(starts, versions, side="right") - 1
            found = np.full(batch.num_rows, None, dtype=object)
            for one in np.unique(era[era >= 0]):
                if (its := columns[one]) is None:
                    continue
                places = np.flatnonzero(era == one)
                rows = batch if len(places) == batch.num_rows else batch.take(pa.array(places))
                right = whole(rows, gone)
                found[places] = [hash if right[at] else None for at, hash in enumerate(hashes(rows, its))]
            kept = [batch.column(name) for name in ("id", "version", "copies", "kept_hash")]
            yield pa.RecordBatch.from_arrays(
                [*kept[:2], pa.array(found, pa.binary()), *kept[2:]],
                names=["id", "version", "hash", "copies", "kept_hash"],
            )

    return hashed


def hashes(rows: pa.RecordBatch, columns: Sequence[StoredColumn]) -> Sequence[bytes | None]:
    """Of payload rows that were written with these columns, and may have been sealed since; None for what cannot have
    been."""
    import pyarrow as pa
    import pyarrow.compute as pc

    live = [column for column in columns if column.live]
    row = rows.column("row")
    if any(column.name == SEALED for column in live) or row.type.get_field_index(SEALED) < 0:
        return _hashes(rows, live)
    since = pc.is_valid(pc.struct_field(row, SEALED)).to_pylist()
    found: list[bytes | None] = [None] * rows.num_rows
    for sealed, its in ((False, live), (True, [*live, LATER])):
        places = [at for at, one in enumerate(since) if one is sealed]
        if places:
            taken = rows if len(places) == rows.num_rows else rows.take(pa.array(places))
            for at, hash in zip(places, _hashes(taken, its), strict=True):
                found[at] = hash
    return found


def _hashes(rows: pa.RecordBatch, live: Sequence[StoredColumn]) -> Sequence[bytes | None]:
    import pyarrow as pa

    from audit.hashing.row_encoding import row_hash

    schema, stored = row_type(live, stored=False), {column.stored for column in live}
    row = rows.column("row")
    places = {field.name: values for field, values in zip(row.type, row.flatten(), strict=True)}
    if stored - places.keys():  # a column was taken out of the table: none of these rows is what it was
        return [None] * rows.num_rows
    own = [places[column.stored] for column in live]
    written = encoded(pa.RecordBatch.from_arrays(own, names=schema.names), schema)
    foreign = _any_valid([values for name, values in places.items() if name not in stored], rows.num_rows)
    return [
        None if one is None or salt is None or len(salt) != 16 or planted else row_hash(salt, one)
        for salt, one, planted in zip(rows.column("salt").to_pylist(), written, foreign, strict=True)
    ]


def whole(rows: pa.RecordBatch, gone: Collection[bytes] = ()) -> list[bool]:
    """Of each payload row: whether the sealed bytes beside it are those that it tells of (``is_whole``)."""
    import pyarrow.compute as pc

    row = rows.column("row")
    if row.type.get_field_index(SEALED) < 0:
        return [True] * rows.num_rows
    groups = pc.struct_field(row, SEALED).to_pylist()
    texts = rows.column("sealed").to_pylist() if "sealed" in rows.schema.names else [None] * rows.num_rows
    return [is_whole(*both, gone) for both in zip(groups, texts, strict=True)]


def _any_valid(arrays: Sequence[pa.Array], count: int) -> list[bool]:
    """Of each row: whether there is a value where its commit had no column."""
    import numpy as np

    found = np.zeros(count, dtype=bool)
    for values in arrays:
        if values.null_count < count:
            found |= values.is_valid().to_numpy(zero_copy_only=False)
    return [bool(one) for one in found]


def _add(fault: Any, findings: Findings) -> None:
    """What the events have told already is not told again for their values."""
    version, index, kind = fault["event_version"], fault["index"], fault["fault"]
    told = findings.of(EVENTS)
    if kind == "moved":
        for finding in told:
            same = finding.first == index and finding.version in (version, fault["version"])
            if same and finding.kind != "moved":  # of two that took each other's place both are named
                findings.kept.remove(finding)
        text = f"event {index} of version {version} has the values of one of version {fault['version']}"
        findings.add("moved", EVENTS, text, version=version, rows=(index, index))
    elif kind == "added":
        if not any(finding.kind == "missing" and finding.version == fault["version"] for finding in told):
            text = f"values of version {fault['version']} belong to no event"
            findings.add("added", PAYLOAD, text, version=fault["version"])
    elif index is not None and not any(finding.version == version and finding.first == index for finding in told):
        text = f"the values of event {index} of version {version}: {_WORDS[kind]}"
        findings.add(kind, PAYLOAD, text, version=version, rows=(index, index))
