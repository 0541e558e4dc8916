"""Values that are taken out of a trail by a recorded event: the record first, then the rows of the payload.

The events stay, with their hashes: what was removed can be told, and by whom and why, and nothing else be taken for it. A
runner that dies between the two steps leaves a record whose values are still there; whoever takes the trail over next
finishes it. What the table's older files hold goes with VACUUM; the least and the greatest key of each of them, which of a
small window is a key itself, stay in the table's log until that is cleaned (``delta.logRetentionDuration``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from audit.encryption.decrypt import has_groups
from audit.trail.column_history import SEALED
from audit.trail.ledger import State, append_removal, read_record_at
from audit.trail.record_kinds import named_runs
from audit.trail.redaction import shorten_text
from audit.trail.tables import EVENTS, PAYLOAD, TrailTables
from audit.writing.encrypted_folder import merge_folder
from cdf.errors import ConfigError, VerificationError

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame

    from audit.signing.signer import Signer

__all__ = ["REASONS", "remove_encrypted", "finish_removal", "remove_values", "find_encrypted_groups"]

REASONS = ("ticket", "purpose", "approver", "user", "job", "run")
"""What a record can tell of why values went; each a text of up to 200 characters, which stays for good."""


def remove_values(
    tables: TrailTables, state: State, places: DataFrame, reasons: Mapping[str, str], *, signer: Signer | None = None
) -> State:
    """Remove the values of the events at ``places`` (``version``, ``index``, both long); → where the trail stands then.

    Places without an event or whose values are gone are passed over; if that is all of them, nothing is recorded. Only by
    who holds the trail, and while nothing is pending. Raises ConfigError for a reason that is none of ``REASONS``, Fenced.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    if unknown := sorted(reasons.keys() - set(REASONS)):
        raise ConfigError(f"{', '.join(unknown)} cannot stand in a record", hint=f"give some of {', '.join(REASONS)}")
    doomed = _there(tables, places.select("version", "index"))
    run = F.col("index") - F.row_number().over(Window.partitionBy("version").orderBy("index"))
    runs = doomed.select("version", "index", run.alias("run")).groupBy("version", "run")
    ranges = runs.agg(F.min("index").alias("first"), F.max("index").alias("last")).orderBy("version", "first").collect()
    if not ranges:
        return state
    removed: dict[str, list[list[int]]] = {}
    for row in ranges:
        removed.setdefault(str(row["version"]), []).append([row["first"], row["last"]])
    told: dict[str, Any] = {name: shorten_text(reasons[name]) for name in REASONS if name in reasons}
    values = sum(row["last"] - row["first"] + 1 for row in ranges)
    state = append_removal(tables, state, {**told, "removed": removed, "values": values}, signer=signer)
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
    """Remove what these keys have sealed, beside rows that stay; ``remove`` has the rules. ``keys``: their ids."""
    found = find_encrypted_groups(tables, keys).groupBy("key_id").count().collect()
    if not found:
        return state
    told: dict[str, Any] = {name: shorten_text(reasons[name]) for name in REASONS if name in reasons}
    told |= {"keys": sorted(bytes(row["key_id"]).hex() for row in found), "values": sum(row["count"] for row in found)}
    state = append_removal(tables, state, told, kind="shredding", signer=signer)
    finish_removal(tables, state)
    return state


def find_encrypted_groups(tables: TrailTables, keys: Collection[bytes]) -> DataFrame:
    """``id``, ``place`` and ``key_id`` of the groups of these keys whose sealed bytes are there."""
    from pyspark.sql import functions as F

    payload = tables.now(PAYLOAD)
    if not has_groups(payload):
        return tables.spark.createDataFrame([], "id binary, place int, key_id binary")
    data = tables.spark.sparkContext.parallelize([(one,) for one in sorted(keys)], max(1, len(keys) // 50_000))
    asked = tables.spark.createDataFrame(data, "key_id binary")
    pairs = F.arrays_zip(F.col("row").getField(SEALED)["key_id"].alias("key_id"), F.col("sealed").alias("text"))
    groups = payload.select("id", F.posexplode(pairs).alias("place", "group"))
    there = groups.where(F.col("group.text").isNotNull()).select("id", "place", F.col("group.key_id").alias("key_id"))
    return there.join(asked, "key_id", "left_semi")


def _finish_shredding(tables: TrailTables, keys: Collection[bytes]) -> None:
    from pyspark.sql import functions as F

    doomed = find_encrypted_groups(tables, keys).groupBy("id").agg(F.collect_set("place").alias("places"))
    if doomed.isEmpty():
        return

    def clear(payload: DeltaTable) -> None:
        left = "transform(held.sealed, (one, at) -> if(array_contains(doomed.places, at), null, one))"
        merge = payload.alias("held").merge(doomed.alias("doomed"), "held.id = doomed.id")
        merge.whenMatchedUpdate(set={"sealed": left}).execute()

    tables.change(PAYLOAD, clear, about={"removal": "shredding"})


def finish_removal(tables: TrailTables, state: State) -> None:
    """Make true what the last record says, if values go by it; nothing happens where it is true already."""
    from pyspark.sql import functions as F

    if not state.removal:
        return
    try:
        record = read_record_at(tables, state.sequence - 1)
    except (LookupError, ValueError) as error:
        raise VerificationError(
            f"the last record of the trail at {tables.path} is none that a runner writes: no value is removed by it",
            hint="`deltarelay audit verify` reports what is altered",
        ) from error
    if record["kind"] == "sealing":
        merge_folder(tables, record["made_in"])
        return
    if record["kind"] == "shredding":
        _finish_shredding(tables, [bytes.fromhex(one) for one in record["keys"]])
        return
    if record["kind"] != "removal":
        return
    told = tables.spark.createDataFrame(list(named_runs(record)), "version long, first long, last long").alias("told")
    # By a range join: how much a record names never counts for more than the events that are there
    events, place = tables.now(EVENTS).alias("event"), F.col("event.index")
    named = (F.col("event.version") == F.col("told.version")) & place.between(F.col("told.first"), F.col("told.last"))
    places = events.join(F.broadcast(told), named, "left_semi").select("version", "index")
    doomed = _there(tables, places).select("id")
    if doomed.isEmpty():
        return

    def delete(payload: DeltaTable) -> None:
        # By a join: the predicate of a DELETE is written into the table's log
        payload.alias("held").merge(doomed.alias("doomed"), "held.id = doomed.id").whenMatchedDelete().execute()

    tables.change(PAYLOAD, delete, about={"removal": state.sequence - 1})


def _there(tables: TrailTables, places: DataFrame) -> DataFrame:
    """Those of the places that have an event, with its ``id``, and whose values are there."""
    events = tables.now(EVENTS).select("version", "index", "id").join(places, ["version", "index"], "left_semi")
    return events.join(tables.now(PAYLOAD).select("id"), "id", "left_semi")
