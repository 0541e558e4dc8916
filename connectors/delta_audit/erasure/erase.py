"""Removes a person's values from a trail, under a record in its ledger.

The events stay with their hashes, so the trail verifies before and after. The payload of an erasing commit holds the key
alone (``audit.writing.payload.PayloadRows.withheld``); that key is removed together with the rows of former versions. Where
encrypted rows of the key stay, without the values whose keys are destroyed, the row of the delete stays as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from audit.encryption.decrypt import has_groups
from audit.queries.view import add_missing_columns
from audit.trail.column_history import GROUPS, SEALED
from audit.trail.tables import EVENTS, PAYLOAD, TrailTables
from audit.writing.removal import find_encrypted_groups
from cdf.changes.columns import DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, quote_name, quoted
from cdf.errors import VerificationError, WindowOutOfOrder
from cdf.sink import at_version
from connectors.delta_audit.erasure.stored_values import present_values, token_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from audit.audit_trail import Trail
    from audit.erasure.sink_contract import ErasureTask
    from connectors.delta_audit.erasure.writable_trail import WritableTrail

__all__ = ["erase"]


def erase(sink: WritableTrail, task: ErasureTask) -> Mapping[str, int]:
    """Remove the values that the data subjects' rows had up to the erasing commits. A repeated call finds none and records
    nothing."""
    with sink.open_for(task.table, task.key, task.run) as position:
        if task.versions and (position.version is None or position.version < max(task.versions)):
            raise WindowOutOfOrder(
                f"the trail at {sink.path} {at_version(position.version)}, and rows of {task.table} were erased at "
                f"{max(task.versions)}",
                hint="run its pipeline first: `deltarelay run`",
                position=position.version,
            )
        tables = sink.trail.tables
        _check_keys(sink.path, tables, task)
        reasons = {"ticket": ", ".join(task.requests), "purpose": "erasure", "run": task.run}
        places = _find_events(sink.trail, tables, task)
        count = places.count()
        if count:
            sink.remove(places, reasons)
        if not task.destroyed_keys:
            return {"values removed": count}
        encrypted = find_encrypted_groups(tables, task.destroyed_keys).count()
        if encrypted:
            sink.remove_encrypted(task.destroyed_keys, reasons)
    return {"values removed": count, "sealed values removed": encrypted}


def _check_keys(path: str, tables: TrailTables, task: ErasureTask) -> None:
    """Raises VerificationError where values of the data subjects are encrypted under a key that the registry does not have
    as theirs. If that key were restored, or assigned to them again, it would decrypt what the certificate says is gone."""
    from pyspark.sql import functions as F

    rows = tables.read_current(PAYLOAD)
    if not task.encrypted.tokens or not has_groups(rows):
        return
    groups = F.col("row").getField(SEALED)
    pairs = F.arrays_zip(
        groups["token"].alias("token"), groups["key_id"].alias("key_id"), F.col("sealed").alias("text")
    )
    encrypted = (
        rows.select(F.explode(pairs).alias("one")).where("one.text is not null").select("one.token", "one.key_id")
    )
    theirs = encrypted.join(_token_rows(rows.sparkSession, task.encrypted.tokens), "token", "left_semi")
    found = {bytes(row["key_id"] or b"") for row in theirs.select("key_id").distinct().collect()}
    if unknown := sorted(key.hex() for key in found - task.registered_keys):
        raise VerificationError(
            f"the trail at {path} has values of the data subjects that are encrypted under the key {unknown[0]}, and the "
            "key registry does not assign this key to them: it is unknown whether the key is destroyed",
            hint="rows of the key registry were removed or moved by hand: restore a backup that `deltarelay keys "
            "restore-check` approves",
            keys=unknown[:20],
        )


def _token_rows(spark: SparkSession, tokens: Collection[bytes]) -> DataFrame:
    return spark.createDataFrame(spark.sparkContext.parallelize([(token,) for token in sorted(tokens)]), "token binary")


def _find_events(trail: Trail, tables: TrailTables, task: ErasureTask) -> DataFrame:
    """Return ``version`` and ``index`` of the events of the data subjects whose values are still stored."""
    from pyspark.sql import functions as F

    values = [value.alias(name) for name, value in present_values(trail).items()]
    rows = add_missing_columns(trail, tables.read_current(PAYLOAD))
    if task.versions:  # later rows are of a person who came back
        rows = rows.where(F.col("version") <= max(task.versions))
    facts = (F.col("id").alias("__id"), F.col("version").alias("__version"), F.col("change_type").alias("__kind"))
    groups = F.col("row").getField(SEALED) if has_groups(rows) else F.lit(None).cast(GROUPS)
    tokens = F.coalesce(token_array(trail, groups, task.encrypted), F.array().cast("array<binary>"))
    rows = rows.select(*facts, tokens.alias("__tokens"), groups.isNotNull().alias("__sealed"), *values)
    caught = task.catch(rows).select("__id", "__version", "__kind")
    if task.encrypted.tokens:
        caught = caught.unionByName(_with_plain_values(rows, task))
    if task.versions:
        # The token of an encrypted row says whose row it is
        ended = _rows_under_erased_keys(rows.where(~F.col("__sealed")), task)
        caught = caught.unionByName(ended.join(_deletes_to_keep(rows, caught, task), "__id", "left_anti"))
        # The postimage of an emptied row is current and stays
        caught = caught.where(~F.col("__version").isin(*task.versions) | (F.col("__kind") != UPDATE_POSTIMAGE))
    events = tables.read_current(EVENTS).select("version", "index", "id")
    return events.join(caught.distinct(), F.col("id") == F.col("__id"), "left_semi").select("version", "index")


def _deletes_to_keep(rows: DataFrame, caught: DataFrame, task: ErasureTask) -> DataFrame:
    """Return ``__id`` of the erasing deletes whose record keeps encrypted rows. Without its delete such a record would look
    as if it still existed. The row of the delete holds the key alone, which those rows hold in plain text as well."""
    from pyspark.sql import functions as F

    staying = rows.where("__sealed").join(caught, "__id", "left_anti").alias("staying")
    deletes = rows.where(~rows["__sealed"] & (rows["__kind"] == DELETE) & rows["__version"].isin(*task.versions)).alias(
        "deletes"
    )
    same = [f"staying.{quote_name(name)} = deletes.{quote_name(name)}" for name in task.key]
    earlier = " and ".join([*same, "staying.__version < deletes.__version"])
    return deletes.join(staying, F.expr(earlier), "left_semi").select("__id")


def _with_plain_values(rows: DataFrame, task: ErasureTask) -> DataFrame:
    """Return the rows with encrypted values of the data subjects that also have personal values in plain text."""
    from pyspark.sql import functions as F

    tokens = _token_rows(rows.sparkSession, task.encrypted.tokens)
    personal = {name.lower() for name in (*task.personal, *([task.link] if task.link else []))}
    has_value = [quoted(name).isNotNull() for name in rows.columns if name.lower() in personal]
    plain = rows.where(reduce(or_, has_value, F.lit(False)))
    return plain.join(tokens, F.array_contains("__tokens", F.col("token")), "left_semi").select(
        "__id", "__version", "__kind"
    )


def _rows_under_erased_keys(rows: DataFrame, task: ErasureTask) -> DataFrame:
    """Return the rows under an erased key, back to where the key last belonged to another record.

    A commit ends the life of a key where it removes the key and does not insert it again; a commit that rewrites a row as
    delete and insert does not end it. Linked rows may change owners within a life, so those that name a person are not
    returned. Where rows name several people, a row that names only others is not returned, unless it holds personal values
    of the erased person.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys, names = task.keys(), [quote_name(name) for name in task.key]
    same = reduce(lambda one, other: one & other, (rows[name].eqNullSafe(keys[name]) for name in names))
    rows = rows.join(keys, same, "left_semi")
    removes = F.col("__kind").isin(DELETE, UPDATE_PREIMAGE)
    commit = Window.partitionBy(*names, "__version")
    earlier = Window.partitionBy(*names).orderBy("__version").rangeBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("__ends", F.every(removes).over(commit).cast("int"))
    rows = rows.withColumn("__life", F.coalesce(F.sum("__ends").over(earlier), F.lit(0)))
    erased = F.when(removes & F.col("__version").isin(*task.versions), F.col("__version"))
    rows = rows.withColumn("__until", F.max(erased).over(Window.partitionBy(*names, "__life")))
    rows = rows.where(F.col("__version") <= F.col("__until"))
    if task.link is not None:
        names_others, has_personal = (
            [quoted(name).isNotNull() for name in rows.columns if name.lower() in {one.lower() for one in columns}]
            for columns in (task.others, task.personal)
        )
        is_theirs = reduce(or_, has_personal, F.lit(False)) | ~reduce(or_, names_others, F.lit(False))
        rows = rows.where(quoted(task.link).isNull() & is_theirs)
    return rows.select("__id", "__version", "__kind")
