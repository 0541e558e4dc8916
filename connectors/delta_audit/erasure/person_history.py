"""Reads the history of one person from a trail: the events of their rows, decrypted with their own keys."""

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
from connectors.delta_audit.erasure.stored_values import present_values, token_array

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from audit.audit_trail import Trail
    from audit.encryption.key_registry import States
    from audit.erasure.model import EncryptedColumns

__all__ = ["read_history"]


def read_history(
    trail: Trail,
    catch: Callable[[DataFrame], DataFrame],
    encrypted: EncryptedColumns,
    states: Callable[[str], States] | None,
) -> DataFrame:
    """Implements ``audit.erasure.sink_contract.TrailErasure.read_history``."""
    from pyspark.sql import functions as F

    payload = add_missing_columns(trail, trail.require_tables().read_current(PAYLOAD))
    present = present_values(trail)
    values = [value.alias(name) for name, value in present.items()]
    ids = catch(payload.select(F.col("id").alias("__id"), *values)).select("__id")
    encrypts = has_groups(payload)
    if encrypts:
        ids = ids.unionByName(_rows_with_tokens(trail, payload, encrypted))
    rows = payload.join(ids.distinct(), payload["id"] == ids["__id"], "left_semi")
    if encrypts:
        rows = rows.select("id", "version", "salt", "row_hash", "row", "sealed")
        rows = (
            mask_rows(rows)
            if states is None
            else decrypt_rows(rows, list_column_eras(trail), states(trail.path), encrypted.tokens)
        )
    reasons_by_column = _reasons(trail, list(present)) if encrypts else F.lit(None).cast("map<string, string>")
    version = F.col("version").alias("_commit_version")  # reserved names: the source may have columns of any other name
    found = rows.select(F.col("id").alias("__id"), version, reasons_by_column.alias("_unreadable"), *values)
    operations = read_commit_records(trail).select(version, F.col("operation").alias("_operation"))
    own = {"id": "__id", "index": "__index", "committed_at": "_commit_timestamp", "change_type": "_change_type"}
    events = trail.tables.read_current(EVENTS).select(*(F.col(name).alias(alias) for name, alias in own.items()))
    found = found.join(events, "__id").join(F.broadcast(operations), "_commit_version", "left")
    facts = ("_commit_version", "_commit_timestamp", "_change_type", "_operation", "_unreadable")
    names = [quoted(name) for name in present]
    after = F.col("_change_type").isin(INSERT, UPDATE_POSTIMAGE)  # the preimage comes first
    return found.orderBy("_commit_version", after, "__index").select(*facts, *names)


def _rows_with_tokens(trail: Trail, payload: DataFrame, encrypted: EncryptedColumns) -> DataFrame:
    """Return ``__id`` of the rows with values that are encrypted under keys of these tokens."""
    from pyspark.sql import functions as F

    spark, tokens = payload.sparkSession, sorted(encrypted.tokens)
    asked = spark.createDataFrame(spark.sparkContext.parallelize([(one,) for one in tokens], 1), "token binary")
    theirs = F.explode(token_array(trail, F.col("row").getField(SEALED), encrypted)).alias("token")
    groups = payload.select(F.col("id").alias("__id"), theirs)
    return groups.join(F.broadcast(asked), "token", "left_semi").select("__id")


def _reasons(trail: Trail, names: Sequence[str]) -> Column:
    """Map the column ``unreadable``, which has the column names of the row's version, to the present column names."""
    from pyspark.sql import functions as F

    former, found = list_column_eras_by_name(trail), {}
    for name in names:
        reason, previous_name = F.lit(None).cast("string"), None
        for since, columns in former:
            former_name = columns[name].name if name in columns else None
            if former_name != previous_name:
                value = F.lit(None).cast("string") if former_name is None else F.col(UNREADABLE).getItem(former_name)
                reason, previous_name = F.when(F.col("version") >= since, value).otherwise(reason), former_name
        found[name] = reason
    return collect_reasons(found)
