"""The events of one person's rows in a trail, for the access report, decrypted with the keys of that person alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from audit.encryption.decrypt import decrypt_rows, has_groups, mask_rows
from audit.queries.view import UNREADABLE, completed, eras, eras_by_name, reasons, records
from audit.trail.column_history import SEALED
from audit.trail.tables import EVENTS, PAYLOAD
from cdf.changes.columns import INSERT, UPDATE_POSTIMAGE, quoted
from connectors.delta_audit.erasure.erase import present_values, tokens_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from audit.audit_trail import Trail
    from audit.encryption.key_registry import States
    from audit.erasure.sink_contract import SealedFor

__all__ = ["read_person_history"]


def read_person_history(
    trail: Trail,
    catch: Callable[[DataFrame], DataFrame],
    sealed: SealedFor,
    states: Callable[[str], States] | None,
) -> DataFrame:
    """Return the events as ``audit.erasure.sink_contract.Historic`` defines them."""
    from pyspark.sql import functions as F

    payload = completed(trail, trail.require_tables().read_current(PAYLOAD))
    present = present_values(trail)
    values = [value.alias(name) for name, value in present.items()]
    ids = catch(payload.select(F.col("id").alias("__id"), *values)).select("__id")
    is_encrypted = has_groups(payload)
    if is_encrypted:
        ids = ids.unionByName(_find_encrypted_rows(trail, payload, sealed))
    rows = payload.join(ids.distinct(), payload["id"] == ids["__id"], "left_semi")
    if is_encrypted:
        rows = rows.select("id", "version", "salt", "row_hash", "row", "sealed")
        rows = mask_rows(rows) if states is None else decrypt_rows(rows, eras(trail), states(trail.path), sealed.tokens)
    unreadable = _build_unreadable(trail, list(present)) if is_encrypted else F.lit(None).cast("map<string, string>")
    # Names with an underscore, because the source may have columns of any other name
    version = F.col("version").alias("_commit_version")
    found = rows.select(F.col("id").alias("__id"), version, unreadable.alias("_unreadable"), *values)
    operations = records(trail).select(version, F.col("operation").alias("_operation"))
    event_columns = {
        "id": "__id",
        "index": "__index",
        "committed_at": "_commit_timestamp",
        "change_type": "_change_type",
    }
    events = trail.tables.read_current(EVENTS).select(
        *(F.col(name).alias(alias) for name, alias in event_columns.items())
    )
    found = found.join(events, "__id").join(F.broadcast(operations), "_commit_version", "left")
    event_fields = ("_commit_version", "_commit_timestamp", "_change_type", "_operation", "_unreadable")
    names = [quoted(name) for name in present]
    after = F.col("_change_type").isin(INSERT, UPDATE_POSTIMAGE)  # the preimage comes first
    return found.orderBy("_commit_version", after, "__index").select(*event_fields, *names)


def _find_encrypted_rows(trail: Trail, payload: DataFrame, sealed: SealedFor) -> DataFrame:
    """Return the ids of the rows in which something is encrypted for this person."""
    from pyspark.sql import functions as F

    spark, tokens = payload.sparkSession, sorted(sealed.tokens)
    wanted = spark.createDataFrame(spark.sparkContext.parallelize([(token,) for token in tokens], 1), "token binary")
    row_tokens = F.explode(tokens_in(trail, F.col("row").getField(SEALED), sealed)).alias("token")
    groups = payload.select(F.col("id").alias("__id"), row_tokens)
    return groups.join(F.broadcast(wanted), "token", "left_semi").select("__id")


def _build_unreadable(trail: Trail, names: Sequence[str]) -> Column:
    """Return ``unreadable`` with the present names of the columns; it is stored with those that they had at the time."""
    from pyspark.sql import functions as F

    eras_of_trail, found = eras_by_name(trail), {}
    for name in names:
        reason, former = F.lit(None).cast("string"), None
        for since, places in eras_of_trail:
            name_then = places[name].name if name in places else None
            if name_then != former:
                value = F.lit(None).cast("string") if name_then is None else F.col(UNREADABLE).getItem(name_then)
                reason, former = F.when(F.col("version") >= since, value).otherwise(reason), name_then
        found[name] = reason
    return reasons(found)
