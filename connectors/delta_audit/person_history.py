"""What a trail has of one person: the events of their rows, with what their own keys open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from audit.encryption.decrypt import decrypt_rows, has_groups, mask_rows
from audit.queries.column_eras import list_column_eras, list_column_eras_by_name
from audit.queries.commit_records import read_commit_records
from audit.queries.fields import UNREADABLE, collect_reasons
from audit.queries.view import add_missing_columns
from audit.trail.column_history import SEALED
from audit.trail.tables import EVENTS, PAYLOAD
from cdf.changes.columns import INSERT, UPDATE_POSTIMAGE, quoted
from connectors.delta_audit.erasure.erase import present_values, tokens_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from audit.audit_trail import Trail
    from audit.encryption.key_registry import States
    from audit.erasure.sink_contract import SealedFor

__all__ = ["past"]


def past(
    trail: Trail,
    catch: Callable[[DataFrame], DataFrame],
    sealed: SealedFor,
    states: Callable[[str], States] | None,
) -> DataFrame:
    """``audit.erasure.sink_contract.Historic`` says what."""
    from pyspark.sql import functions as F

    payload = add_missing_columns(trail, trail.require_tables().read_current(PAYLOAD))
    present = present_values(trail)
    values = [value.alias(name) for name, value in present.items()]
    ids = catch(payload.select(F.col("id").alias("__id"), *values)).select("__id")
    groups = has_groups(payload)
    if groups:
        ids = ids.unionByName(_of(trail, payload, sealed))
    rows = payload.join(ids.distinct(), payload["id"] == ids["__id"], "left_semi")
    if groups:
        rows = rows.select("id", "version", "salt", "row_hash", "row", "sealed")
        rows = (
            mask_rows(rows)
            if states is None
            else decrypt_rows(rows, list_column_eras(trail), states(trail.path), sealed.tokens)
        )
    why = _why(trail, list(present)) if groups else F.lit(None).cast("map<string, string>")
    version = F.col("version").alias("_commit_version")  # names of its own: the source may have any others
    found = rows.select(F.col("id").alias("__id"), version, why.alias("_unreadable"), *values)
    told = read_commit_records(trail).select(version, F.col("operation").alias("_operation"))
    own = {"id": "__id", "index": "__index", "committed_at": "_commit_timestamp", "change_type": "_change_type"}
    events = trail.tables.read_current(EVENTS).select(*(F.col(name).alias(alias) for name, alias in own.items()))
    found = found.join(events, "__id").join(F.broadcast(told), "_commit_version", "left")
    facts = ("_commit_version", "_commit_timestamp", "_change_type", "_operation", "_unreadable")
    names = [quoted(name) for name in present]
    after = F.col("_change_type").isin(INSERT, UPDATE_POSTIMAGE)  # the image before comes first
    return found.orderBy("_commit_version", after, "__index").select(*facts, *names)


def _of(trail: Trail, payload: DataFrame, sealed: SealedFor) -> DataFrame:
    """The rows with something that is sealed for these."""
    from pyspark.sql import functions as F

    spark, tokens = payload.sparkSession, sorted(sealed.tokens)
    asked = spark.createDataFrame(spark.sparkContext.parallelize([(one,) for one in tokens], 1), "token binary")
    theirs = F.explode(tokens_in(trail, F.col("row").getField(SEALED), sealed)).alias("token")
    groups = payload.select(F.col("id").alias("__id"), theirs)
    return groups.join(F.broadcast(asked), "token", "left_semi").select("__id")


def _why(trail: Trail, names: Sequence[str]) -> Column:
    """``unreadable``, which has the names of its time, by those that the columns have now."""
    from pyspark.sql import functions as F

    past, found = list_column_eras_by_name(trail), {}
    for name in names:
        why, before = F.lit(None).cast("string"), None
        for since, places in past:
            then = places[name].name if name in places else None
            if then != before:
                of_then = F.lit(None).cast("string") if then is None else F.col(UNREADABLE).getItem(then)
                why, before = F.when(F.col("version") >= since, of_then).otherwise(why), then
        found[name] = why
    return collect_reasons(found)
