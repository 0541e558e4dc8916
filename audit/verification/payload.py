"""Each row of the payload held against its event: the hash of its values, and the copies of the event beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audit.encryption.stored_groups import match_groups
from audit.trail.column_history import Column as StoredColumn
from audit.trail.column_history import is_readable_as, plain_type
from audit.trail.row_hashes import hash_rows
from audit.trail.tables import EVENTS, PAYLOAD
from audit.verification.events import FAULT_TEXTS
from audit.verification.ledger import LedgerScan
from audit.verification.results import MOST_FINDINGS, Findings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["Values", "verify_values"]

_COPIES = ("committed_at", "change_type", "baseline", "changed_columns")
"""What a payload row repeats of its event, besides its hash."""
_WORDS = {
    **FAULT_TEXTS,
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
    walk: LedgerScan,
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


def _hashed(payload: DataFrame, walk: LedgerScan, gone: frozenset[bytes]) -> DataFrame:
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
                right = match_groups(rows, gone)
                found[places] = [hash if right[at] else None for at, hash in enumerate(hash_rows(rows, its))]
            kept = [batch.column(name) for name in ("id", "version", "copies", "kept_hash")]
            yield pa.RecordBatch.from_arrays(
                [*kept[:2], pa.array(found, pa.binary()), *kept[2:]],
                names=["id", "version", "hash", "copies", "kept_hash"],
            )

    return hashed


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
