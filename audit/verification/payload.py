"""Verifies the payload: the hash of each row's values, and the row's copies of its event, against the event."""

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
_TEXTS = {
    **FAULT_TEXTS,
    "missing": "missing, but no record states that they were removed",
    "returned": "stored, although a record states that they were removed",
}


@dataclass(frozen=True, slots=True)
class Values:
    """Numbers of events, by what the payload has for them."""

    present: int
    """Payload rows."""
    removed: int
    """No row, according to a record."""
    resealed: int
    """A row that was encrypted later, according to a record."""
    unfinished: int
    """A row that the last record is removing or encrypting."""


def verify_values(
    payload: DataFrame,
    events: DataFrame,
    removed: DataFrame,
    reencrypted: DataFrame | None,
    cleared_keys: frozenset[bytes],
    scan: LedgerScan,
    findings: Findings,
) -> Values:
    """Join rows and events by id, in one shuffle each; only ids, hashes and indexes are shuffled.

    ``removed``, ``reencrypted``, ``cleared_keys``: from ``audit.verification.payload_records``.
    """
    from pyspark.sql import functions as F

    copies = F.struct(*_COPIES).alias("copies")
    own = F.col("row_hash").alias("kept_hash")
    encrypted = ["sealed"] if "sealed" in payload.columns else []
    by_id = (
        _hash_payload(payload.select("id", "version", "salt", "row", *encrypted, copies, own), scan, cleared_keys)
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
    expected = _add_expected_hashes(events.select("id", *place, copies.alias("event_copies"), "row_hash"), reencrypted)
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
    joined = _mark_removed(expected, removed).join(by_id, "id", "full_outer").withColumn("fault", fault)
    late = F.count_if((F.col("removed") & ~gone) | (before & ~F.col("hash").eqNullSafe(F.col("expected"))))
    counts = (
        F.count("*").alias("events"),
        F.sum("count").alias("values"),
        F.count_if(F.col("resealed") & ~gone).alias("resealed"),
        late.alias("late"),
    )
    groups = joined.groupBy("fault").agg(*counts).collect()
    by_fault = {row["fault"]: row for row in groups}
    for kind in sorted(by_fault.keys() - {None, "removed"}):
        places = joined.where(F.col("fault") == kind).select("event_version", "index", "version", "fault")
        for row in places.orderBy("event_version", "index").limit(MOST_FINDINGS + 1).collect():
            _add_finding(row, findings)
    return Values(
        present=sum(row["values"] or 0 for row in groups),
        removed=by_fault["removed"]["events"] if "removed" in by_fault else 0,
        resealed=sum(row["resealed"] for row in groups),
        unfinished=sum(row["late"] for kind, row in by_fault.items() if kind != "returned"),
    )


def _add_expected_hashes(events: DataFrame, reencrypted: DataFrame | None) -> DataFrame:
    """Add ``expected``, the hash that the event's row must have; ``before``, a former hash that it may still have;
    ``resealed``, whether the row was encrypted later."""
    from pyspark.sql import functions as F

    if reencrypted is None:
        columns = {"expected": F.col("row_hash"), "before": F.lit(None).cast("binary"), "resealed": F.lit(False)}
        return events.withColumns(columns).drop("row_hash")
    joined = events.join(reencrypted, ["event_version", "index"], "left")
    columns = {
        "expected": F.coalesce("sealed_hash", "row_hash"),
        "before": F.when(F.col("late"), F.coalesce("hash_before", "row_hash")),
        "resealed": F.col("sealed_hash").isNotNull(),
    }
    return joined.withColumns(columns).drop("row_hash", "sealed_hash", "hash_before", "late")


def _mark_removed(events: DataFrame, removed: DataFrame) -> DataFrame:
    """Add ``removed``: a record names the event; and ``removed_before``: a record that is not late names it."""
    from pyspark.sql import functions as F

    def names(run: Column) -> Column:
        return F.col("index").between(run["first"], run["last"])

    marked = events.join(removed.withColumnRenamed("version", "event_version"), "event_version", "left")
    before = F.exists("removed", lambda run: names(run) & ~run["late"])
    marked = marked.withColumn("removed_before", F.coalesce(before, F.lit(False)))
    return marked.withColumn("removed", F.coalesce(F.exists("removed", names), F.lit(False)))


# ── hashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _hash_payload(payload: DataFrame, scan: LedgerScan, cleared_keys: frozenset[bytes]) -> DataFrame:
    """``id``, ``version``, ``hash`` of the present values, ``copies``, ``kept_hash``. A row of an unknown version has no
    hash."""
    copies = payload.schema["copies"].dataType.simpleString()
    starts: list[int] = []
    columns_at: list[int] = []
    for version, commit in sorted(scan.commits.items()):
        if not columns_at or commit.columns_at != columns_at[-1]:
            starts.append(version)
            columns_at.append(commit.columns_at)
    row = payload.schema["row"].dataType
    stored = {field.name: plain_type(field.dataType) for field in getattr(row, "fields", ())}
    hasher = _make_hasher(starts, [_check_types(scan.columns[at], stored) for at in columns_at], cleared_keys)
    return payload.mapInArrow(hasher, f"id binary, version long, hash binary, copies {copies}, kept_hash binary")


def _check_types(columns: Sequence[StoredColumn], stored: Mapping[str, DataType]) -> Sequence[StoredColumn] | None:
    """None: the recorded types differ from those of the payload, so no row was written with these columns."""
    live = (column for column in columns if column.live)
    matches = all(is_readable_as(stored.get(column.stored, column.type), column.type) for column in live)
    return columns if matches else None


def _make_hasher(
    starts: Sequence[int], columns: Sequence[Sequence[StoredColumn] | None], cleared_keys: frozenset[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """``columns``: those from each version in ``starts`` on; None: no row of these versions has a hash."""

    def add_hashes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            versions = batch.column("version").fill_null(-1).to_numpy()
            period = np.searchsorted(starts, versions, side="right") - 1
            hashes = np.full(batch.num_rows, None, dtype=object)
            for at in np.unique(period[period >= 0]):
                if (of_period := columns[at]) is None:
                    continue
                places = np.flatnonzero(period == at)
                rows = batch if len(places) == batch.num_rows else batch.take(pa.array(places))
                matches = match_groups(rows, cleared_keys)
                hashes[places] = [
                    hash if matches[place] else None for place, hash in enumerate(hash_rows(rows, of_period))
                ]
            copied = [batch.column(name) for name in ("id", "version", "copies", "kept_hash")]
            yield pa.RecordBatch.from_arrays(
                [*copied[:2], pa.array(hashes, pa.binary()), *copied[2:]],
                names=["id", "version", "hash", "copies", "kept_hash"],
            )

    return add_hashes


# ── findings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _add_finding(fault: Any, findings: Findings) -> None:
    """A fault that the verification of the events has reported is not reported again for their values."""
    version, index, kind = fault["event_version"], fault["index"], fault["fault"]
    of_events = findings.of(EVENTS)
    if kind == "moved":
        for finding in of_events:
            same = finding.first == index and finding.version in (version, fault["version"])
            if same and finding.kind != "moved":  # if two events swapped values, both are reported
                findings.kept.remove(finding)
        text = f"event {index} of version {version} has the values of an event of version {fault['version']}"
        findings.add("moved", EVENTS, text, version=version, rows=(index, index))
    elif kind == "added":
        if not any(finding.kind == "missing" and finding.version == fault["version"] for finding in of_events):
            text = f"values of version {fault['version']} belong to no event"
            findings.add("added", PAYLOAD, text, version=fault["version"])
    elif index is not None and not any(finding.version == version and finding.first == index for finding in of_events):
        text = f"the values of event {index} of version {version}: {_TEXTS[kind]}"
        findings.add(kind, PAYLOAD, text, version=version, rows=(index, index))
