"""What a trail has of one person: the events of their rows, with what their own keys open."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from audit.columns import SEALED
from audit.keys.opening import has_groups, opened, shut
from audit.tables import EVENTS, PAYLOAD
from audit.view import UNREADABLE, eras, records
from cdf.change import INSERT, UPDATE_POSTIMAGE
from cdf.net import quoted
from connectors.delta_audit.forget import present_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.keys.registry import States
    from audit.trail import Trail

__all__ = ["past"]


def past(
    trail: Trail,
    catch: Callable[[DataFrame], DataFrame],
    tokens: frozenset[bytes],
    states: Callable[[str], States] | None,
) -> DataFrame:
    """``audit.erasure.places.Historic`` says what."""
    from pyspark.sql import functions as F

    payload = trail.there().now(PAYLOAD)
    present = present_values(trail)
    values = [value.alias(name) for name, value in present.items()]
    ids = catch(payload.select(F.col("id").alias("__id"), *values)).select("__id")
    sealed = has_groups(payload)
    if sealed:
        ids = ids.unionByName(_of(payload, tokens))
    rows = payload.join(ids.distinct(), payload["id"] == ids["__id"], "left_semi")
    if sealed:
        rows = rows.select("id", "version", "salt", "row_hash", "row", "sealed")
        rows = shut(rows) if states is None else opened(rows, eras(trail), states(trail.path), tokens)
    why = F.col(UNREADABLE) if sealed else F.lit(None).cast("map<string, string>")
    version = F.col("version").alias("_commit_version")  # names of its own: the source may have any others
    found = rows.select(F.col("id").alias("__id"), version, why.alias("_unreadable"), *values)
    told = records(trail).select(version, F.col("operation").alias("_operation"), F.col("actor").alias("_actor"))
    own = {"id": "__id", "index": "__index", "committed_at": "_commit_timestamp", "change_type": "_change_type"}
    events = trail.tables.now(EVENTS).select(*(F.col(name).alias(alias) for name, alias in own.items()))
    found = found.join(events, "__id").join(F.broadcast(told), "_commit_version", "left")
    facts = ("_commit_version", "_commit_timestamp", "_change_type", "_operation", "_actor", "_unreadable")
    names = [quoted(name) for name in present]
    after = F.col("_change_type").isin(INSERT, UPDATE_POSTIMAGE)  # the image before comes first
    return found.orderBy("_commit_version", after, "__index").select(*facts, *names)


def _of(payload: DataFrame, tokens: frozenset[bytes]) -> DataFrame:
    """The rows with something that is sealed for these."""
    from pyspark.sql import functions as F

    spark = payload.sparkSession
    asked = spark.createDataFrame(spark.sparkContext.parallelize([(one,) for one in sorted(tokens)], 1), "token binary")
    groups = payload.select(F.col("id").alias("__id"), F.explode(F.col("row").getField(SEALED)["token"]).alias("token"))
    return groups.join(F.broadcast(asked), "token", "left_semi").select("__id")
