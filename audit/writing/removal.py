"""Removes values from a trail under a ledger record: the record is written first, then the payload rows are deleted.

The events stay, with their hashes: the record says which values were removed, by whom and why, and a missing value without a
record is a fault. A runner that dies between the two steps leaves a record whose values are still stored; the next runner
deletes them. VACUUM deletes the table's older files. The lowest and highest key of each of them (in a small window, a key
itself) stay in the table's log until the log is cleaned (``delta.logRetentionDuration``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from audit.encryption.decrypt import has_groups
from audit.trail.column_history import SEALED
from audit.trail.ledger import append_removal
from audit.trail.ledger_state import State, read_record_at
from audit.trail.record_kinds import EncryptionRecord, RemovalRecord, Run, ShreddingRecord
from audit.trail.redaction import shorten_text
from audit.trail.tables import EVENTS, PAYLOAD, TrailTables
from audit.writing.encrypted_folder import merge_folder
from cdf.errors import ConfigError, VerificationError
from cdf.session import require_classic

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame

    from audit.signing.signer import Signer

__all__ = ["REASONS", "find_encrypted_groups", "finish_removal", "remove_encrypted", "remove_values"]

REASONS = ("ticket", "purpose", "approver", "user", "job", "run")
"""What a record can say about why values were removed; each a text of up to 200 characters, which is kept forever."""


def remove_values(
    tables: TrailTables, state: State, places: DataFrame, reasons: Mapping[str, str], *, signer: Signer | None = None
) -> State:
    """Remove the values of the events at ``places`` (``version``, ``index``, both long); → the new state.

    Places without an event, or whose values are removed already, are ignored; if there are no others, nothing is recorded.
    Only for the runner that holds the trail, and while no events are pending. Raises ConfigError for a reason that is not
    one of ``REASONS``, and Fenced.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    _require_classic(tables)
    if unknown := sorted(reasons.keys() - set(REASONS)):
        raise ConfigError(
            f"a removal record has no field {', '.join(unknown)}", hint=f"give some of {', '.join(REASONS)}"
        )
    doomed = _with_values(tables, places.select("version", "index"))
    run = F.col("index") - F.row_number().over(Window.partitionBy("version").orderBy("index"))
    runs = doomed.select("version", "index", run.alias("run")).groupBy("version", "run")
    ranges = runs.agg(F.min("index").alias("first"), F.max("index").alias("last")).orderBy("version", "first").collect()
    if not ranges:
        return state
    removed: dict[str, list[list[int]]] = {}
    for row in ranges:
        removed.setdefault(str(row["version"]), []).append([row["first"], row["last"]])
    values = sum(row["last"] - row["first"] + 1 for row in ranges)
    fields = {**_reason_fields(reasons), "removed": removed, "values": values}
    state = append_removal(tables, state, fields, signer=signer)
    finish_removal(tables, state)
    return state


def remove_encrypted(
    tables: TrailTables,
    state: State,
    keys: Collection[bytes],
    reasons: Mapping[str, str],
    *,
    signer: Signer | None = None,
) -> State:
    """Remove the values that these keys encrypted; the rows stay. The rules are those of ``remove_values``. ``keys``:
    ids."""
    _require_classic(tables)
    found = find_encrypted_groups(tables, keys).groupBy("key_id").count().collect()
    if not found:
        return state
    fields = {
        **_reason_fields(reasons),
        "keys": sorted(bytes(row["key_id"]).hex() for row in found),
        "values": sum(row["count"] for row in found),
    }
    state = append_removal(tables, state, fields, kind="shredding", signer=signer)
    finish_removal(tables, state)
    return state


def _require_classic(tables: TrailTables) -> None:
    """Before a record says that values were removed."""
    require_classic(tables.spark, f"removing values of the trail at {tables.path}")


def _reason_fields(reasons: Mapping[str, str]) -> dict[str, Any]:
    return {name: shorten_text(reasons[name]) for name in REASONS if name in reasons}


def find_encrypted_groups(tables: TrailTables, keys: Collection[bytes]) -> DataFrame:
    """``id``, ``place`` and ``key_id`` of the column groups that these keys encrypted and whose encrypted bytes are
    stored."""
    from pyspark.sql import functions as F

    payload = tables.read_current(PAYLOAD)
    if not has_groups(payload):
        return tables.spark.createDataFrame([], "id binary, place int, key_id binary")
    _require_classic(tables)
    data = tables.spark.sparkContext.parallelize([(key,) for key in sorted(keys)], max(1, len(keys) // 50_000))
    wanted = tables.spark.createDataFrame(data, "key_id binary")
    pairs = F.arrays_zip(F.col("row").getField(SEALED)["key_id"].alias("key_id"), F.col("sealed").alias("text"))
    groups = payload.select("id", F.posexplode(pairs).alias("place", "group"))
    stored = groups.where(F.col("group.text").isNotNull()).select("id", "place", F.col("group.key_id").alias("key_id"))
    return stored.join(wanted, "key_id", "left_semi")


def finish_removal(tables: TrailTables, state: State) -> None:
    """Change the payload as the last record says, if it is a record of that kind. Does nothing where that is done
    already."""
    if not state.removal:
        return
    try:
        record = read_record_at(tables, state.sequence - 1)
    except (LookupError, ValueError) as error:
        raise VerificationError(
            f"the last record of the trail at {tables.path} is not one that a runner writes: no value is removed by it",
            hint="`deltarelay audit verify` reports what is altered",
        ) from error
    match record:
        case EncryptionRecord():
            merge_folder(tables, record.made_in)
        case ShreddingRecord():
            _finish_shredding(tables, record.keys)
        case RemovalRecord():
            _delete_values(tables, record.runs, sequence=state.sequence - 1)


def _finish_shredding(tables: TrailTables, keys: Collection[bytes]) -> None:
    from pyspark.sql import functions as F

    doomed = find_encrypted_groups(tables, keys).groupBy("id").agg(F.collect_set("place").alias("places"))
    if doomed.isEmpty():
        return

    def set_null(payload: DeltaTable) -> None:
        left = "transform(held.sealed, (text, at) -> if(array_contains(doomed.places, at), null, text))"
        merge = payload.alias("held").merge(doomed.alias("doomed"), "held.id = doomed.id")
        merge.whenMatchedUpdate(set={"sealed": left}).execute()

    tables.change(PAYLOAD, set_null, about={"removal": "shredding"})


def _delete_values(tables: TrailTables, runs: Iterable[Run], *, sequence: int) -> None:
    from pyspark.sql import functions as F

    named = tables.spark.createDataFrame(list(runs), "version long, first long, last long").alias("named")
    # A range join: a record that names too much costs no more than the events that exist
    events, index = tables.read_current(EVENTS).alias("event"), F.col("event.index")
    within = (F.col("event.version") == F.col("named.version")) & index.between(
        F.col("named.first"), F.col("named.last")
    )
    places = events.join(F.broadcast(named), within, "left_semi").select("version", "index")
    doomed = _with_values(tables, places).select("id")
    if doomed.isEmpty():
        return

    def delete(payload: DeltaTable) -> None:
        # A join: the predicate of a DELETE would be written into the table's log
        payload.alias("held").merge(doomed.alias("doomed"), "held.id = doomed.id").whenMatchedDelete().execute()

    tables.change(PAYLOAD, delete, about={"removal": sequence})


def _with_values(tables: TrailTables, places: DataFrame) -> DataFrame:
    """Those of the places that have an event, with its ``id``, and whose values are stored."""
    events = (
        tables.read_current(EVENTS).select("version", "index", "id").join(places, ["version", "index"], "left_semi")
    )
    return events.join(tables.read_current(PAYLOAD).select("id"), "id", "left_semi")
