"""A person taken out of a trail: values removed under a record, then their files; what is left looked for.

The events stay with their hashes, so the trail verifies before and after. Of the commit that erased, the payload has
the key alone (``audit.writing.payload.PayloadRows.withheld``), which goes here together with the rows of former
versions. Where encrypted rows of that key stay, without what their keys opened, the row of the delete stays too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, NumericType, StructType

from audit.encryption.decrypt import decrypt_rows, has_groups
from audit.erasure.sink_contract import Purged, Reached, Scanned, not_seen
from audit.queries.column_eras import list_column_eras, list_column_eras_by_name
from audit.queries.view import add_missing_columns
from audit.trail.column_history import GROUPS, SEALED
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, TrailTables, read_commit_info
from audit.writing.removal import find_encrypted_groups
from cdf.changes.columns import DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from cdf.errors import VerificationError, WindowOutOfOrder
from cdf.result import plain
from cdf.sink.contract import Source, at_version

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from audit.audit_trail import Trail
    from audit.encryption.key_registry import Registry
    from audit.erasure.scan.files import Files
    from audit.erasure.scan.search_terms import Needles
    from audit.erasure.sink_contract import Erasing, SealedFor
    from audit.trail.column_history import Column
    from connectors.delta_audit.sink import DeltaAuditSink

__all__ = ["forget", "held_open", "kept_values", "note", "present_values", "purge", "scan", "tokens_in"]


def forget(sink: DeltaAuditSink, erasing: Erasing) -> Mapping[str, int]:
    """Remove the values that the subjects' rows had up to the erasing commits. Again, it finds none and records nothing."""
    with held_open(sink, erasing.table, erasing.key, erasing.run) as (spark, position):
        if erasing.versions and (position is None or position < max(erasing.versions)):
            raise WindowOutOfOrder(
                f"the trail at {sink.path} {at_version(position)}, and {erasing.table} was erased at "
                f"{max(erasing.versions)}",
                hint="let its pipeline run first: `deltarelay run`",
                position=position,
            )
        tables = TrailTables(spark, sink.path)
        _check_keys(sink, tables, erasing)
        reasons = {"ticket": ", ".join(erasing.requests), "purpose": "erasure", "run": erasing.run}
        places = _places(sink, tables, erasing)
        count = places.count()
        if count:
            sink.remove(places, reasons)
        if not erasing.shredded:
            return {"values removed": count}
        sealed = find_encrypted_groups(tables, erasing.shredded).count()
        if sealed:
            sink.clear(erasing.shredded, reasons)
    return {"values removed": count, "sealed values removed": sealed}


def _check_keys(sink: DeltaAuditSink, tables: TrailTables, erasing: Erasing) -> None:
    """Raises VerificationError where something is sealed for them under a key that the registry does not have as theirs. Put
    back, or moved back to them, that key would open what they are certified to be rid of."""
    from pyspark.sql import functions as F

    rows = tables.read_current(PAYLOAD)
    if not erasing.sealed.tokens or not has_groups(rows):
        return
    groups = F.col("row").getField(SEALED)
    pairs = F.arrays_zip(
        groups["token"].alias("token"), groups["key_id"].alias("key_id"), F.col("sealed").alias("text")
    )
    sealed = rows.select(F.explode(pairs).alias("one")).where("one.text is not null").select("one.token", "one.key_id")
    theirs = sealed.join(_as_rows(rows.sparkSession, erasing.sealed.tokens), "token", "left_semi")
    found = {bytes(row["key_id"] or b"") for row in theirs.select("key_id").distinct().collect()}
    if lost := sorted(one.hex() for one in found - erasing.registered):
        raise VerificationError(
            f"the trail at {sink.path} has values of theirs under the key {lost[0]}, and the key registry does not have it "
            "as a key of theirs: whether it is destroyed is not known",
            hint="rows of the key registry were removed or moved by hand: restore a backup that `deltarelay keys "
            "restore-check` approves",
            keys=lost[:20],
        )


def _as_rows(spark: SparkSession, tokens: Collection[bytes]) -> DataFrame:
    return spark.createDataFrame(spark.sparkContext.parallelize([(one,) for one in sorted(tokens)]), "token binary")


def kept_values(
    sink: DeltaAuditSink, columns: Collection[str], registry: Callable[[], Registry] | None
) -> Iterator[DataFrame]:
    """Every value that the payload has: of rows that are gone, and of former versions of those that are not. With a
    ``registry`` also what is sealed of these columns."""
    from pyspark.sql import functions as F

    values = [value.alias(name) for name, value in present_values(sink.trail).items() if name in columns]
    rows = add_missing_columns(sink.trail, TrailTables(sink.trail.tables.spark, sink.path).read_current(PAYLOAD))
    if registry is not None and has_groups(rows):
        then = {
            places[name].name.lower()
            for _, places in list_column_eras_by_name(sink.trail)
            for name in columns
            if name in places
        }
        sealed = F.flatten(F.col("row").getField(SEALED)["columns"])
        asked = F.coalesce(F.exists(sealed, lambda name: F.lower(name).isin(*then)), F.lit(False))
        yield decrypt_rows(rows.where(asked), list_column_eras(sink.trail), registry().read_states).select(*values)
        rows = rows.where(~asked)
    yield rows.select(*values)


def _places(sink: DeltaAuditSink, tables: TrailTables, erasing: Erasing) -> DataFrame:
    """``version`` and ``index`` of the events whose values are there and are the subjects'."""
    from pyspark.sql import functions as F

    values = [value.alias(name) for name, value in present_values(sink.trail).items()]
    rows = add_missing_columns(sink.trail, tables.read_current(PAYLOAD))
    if erasing.versions:  # what came later is of somebody who came back
        rows = rows.where(F.col("version") <= max(erasing.versions))
    told = (F.col("id").alias("__id"), F.col("version").alias("__version"), F.col("change_type").alias("__kind"))
    groups = F.col("row").getField(SEALED) if has_groups(rows) else F.lit(None).cast(GROUPS)
    tokens = F.coalesce(tokens_in(sink.trail, groups, erasing.sealed), F.array().cast("array<binary>"))
    rows = rows.select(*told, tokens.alias("__tokens"), groups.isNotNull().alias("__sealed"), *values)
    caught = erasing.catch(rows).select("__id", "__version", "__kind")
    if erasing.sealed.tokens:
        caught = caught.unionByName(_readable_beside(rows, erasing))
    if erasing.versions:
        # Of a row with something sealed its token tells whose it is
        ended = _of_erased_lives(rows.where(~F.col("__sealed")), erasing)
        caught = caught.unionByName(ended.join(_deletes_to_keep(rows, caught, erasing), "__id", "left_anti"))
        # An emptied row stays as it is now
        caught = caught.where(~F.col("__version").isin(*erasing.versions) | (F.col("__kind") != UPDATE_POSTIMAGE))
    events = tables.read_current(EVENTS).select("version", "index", "id")
    return events.join(caught.distinct(), F.col("id") == F.col("__id"), "left_semi").select("version", "index")


def _deletes_to_keep(rows: DataFrame, caught: DataFrame, erasing: Erasing) -> DataFrame:
    """Return ``__id`` of the erasing deletes whose record keeps encrypted rows. Without its delete such a record would look
    as if it still existed. The row of the delete holds the key alone, which those rows hold in plain text as well."""
    from pyspark.sql import functions as F

    staying = rows.where("__sealed").join(caught, "__id", "left_anti").alias("staying")
    deletes = rows.where(
        ~rows["__sealed"] & (rows["__kind"] == DELETE) & rows["__version"].isin(*erasing.versions)
    ).alias("deletes")
    same = [f"staying.{_sql(name)} = deletes.{_sql(name)}" for name in erasing.key]
    earlier = " and ".join([*same, "staying.__version < deletes.__version"])
    return deletes.join(staying, F.expr(earlier), "left_semi").select("__id")


def tokens_in(trail: Trail, groups: SparkColumn, sealed: SealedFor) -> SparkColumn:
    """For whom the groups of a row are sealed that say something of the person at this place of it."""
    from pyspark.sql import functions as F

    then = {
        place.name.lower(): name.lower()
        for _, places in list_column_eras_by_name(trail)
        for name, place in places.items()
    }  # a column may have had other names

    def names(columns: Collection[str]) -> SparkColumn:
        every = {*columns, *(before for before, now in then.items() if now in columns)}
        return F.array(*(F.lit(name) for name in sorted(every))).cast("array<string>")

    def theirs(group: SparkColumn) -> SparkColumn:
        told = F.transform(group["columns"], F.lower)
        # What is in no class any more is not said to be somebody else's
        return F.arrays_overlap(told, names(sealed.columns)) | ~F.arrays_overlap(told, names(sealed.others))

    return F.filter(groups, theirs)["token"]


def _readable_beside(rows: DataFrame, erasing: Erasing) -> DataFrame:
    """The rows with something sealed of the subjects that have something personal of theirs in plain text."""
    from pyspark.sql import functions as F

    tokens = _as_rows(rows.sparkSession, erasing.sealed.tokens)
    personal = {one.lower() for one in (*erasing.personal, *([erasing.link] if erasing.link else []))}
    there = [F.col(_sql(name)).isNotNull() for name in rows.columns if name.lower() in personal]
    plain = rows.where(reduce(or_, there, F.lit(False)))
    return plain.join(tokens, F.array_contains("__tokens", F.col("token")), "left_semi").select(
        "__id", "__version", "__kind"
    )


def _of_erased_lives(rows: DataFrame, erasing: Erasing) -> DataFrame:
    """The rows under an erased key since it was last somebody else's.

    A commit ends a life of the key where it removes the key and does not put it back: one that rewrites a row as delete and
    insert goes on with it. Of linked rows a life says little, for they are passed on: those that name somebody stay. Where
    rows name several people, one that names others alone stays, unless something personal of the erased person is in it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys, names = erasing.keys(), [_sql(name) for name in erasing.key]
    same = reduce(lambda one, other: one & other, (rows[name].eqNullSafe(keys[name]) for name in names))
    rows = rows.join(keys, same, "left_semi")
    removes = F.col("__kind").isin(DELETE, UPDATE_PREIMAGE)
    commit = Window.partitionBy(*names, "__version")
    earlier = Window.partitionBy(*names).orderBy("__version").rangeBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("__ends", F.every(removes).over(commit).cast("int"))
    rows = rows.withColumn("__life", F.coalesce(F.sum("__ends").over(earlier), F.lit(0)))
    erased = F.when(removes & F.col("__version").isin(*erasing.versions), F.col("__version"))
    rows = rows.withColumn("__until", F.max(erased).over(Window.partitionBy(*names, "__life")))
    rows = rows.where(F.col("__version") <= F.col("__until"))
    if erasing.link is not None:
        named, personal = (
            [F.col(_sql(name)).isNotNull() for name in rows.columns if name.lower() in {one.lower() for one in those}]
            for those in (erasing.others, erasing.personal)
        )
        of_theirs = reduce(or_, personal, F.lit(False)) | ~reduce(or_, named, F.lit(False))
        rows = rows.where(F.col(_sql(erasing.link)).isNull() & of_theirs)
    return rows.select("__id", "__version", "__kind")


def present_values(trail: Trail) -> Mapping[str, SparkColumn]:
    """Each column that the source has now, out of a row of the ``completed`` payload: from where the row's own version has
    kept it, under whatever name and in whatever type. What cannot be in the present type is NULL."""
    from pyspark.sql import functions as F

    eras = list_column_eras_by_name(trail)
    found = {}
    for name, now in eras[-1][1].items():
        value: SparkColumn = F.lit(None).cast(now.type)
        before: Column | None = None
        for since, places in eras:
            place = places.get(name)
            if place != before:
                kept = F.lit(None).cast(now.type) if place is None else _as(place, now.type)
                value = F.when(F.col("version") >= since, kept).otherwise(value)
            before = place
        found[name] = value
    return found


def _as(place: Column, type: DataType) -> SparkColumn:
    from pyspark.sql import functions as F

    value = F.col("row").getField(place.stored)
    if place.type == type:
        return value
    if any(isinstance(one, ArrayType | MapType | StructType) for one in (place.type, type)):
        return F.lit(None).cast(type)  # nobody is found by such a column
    if isinstance(place.type, NumericType) and isinstance(type, NumericType):
        return value.try_cast(type)
    return value.cast("string").try_cast(type)


def _sql(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


@contextmanager
def held_open(
    sink: DeltaAuditSink, table: str, key: tuple[str, ...], run: str
) -> Iterator[tuple[SparkSession, int | None]]:
    """The sink under its lease, and where it stands."""
    from cdf.source.table import ChangeFeed

    spark = sink.trail.tables.spark
    metadata = ChangeFeed(spark, table).log.metadata()
    try:
        position = sink.open(
            Source(
                table=table,
                table_id=metadata.table_id,
                schema=metadata.schema,
                key=key,
                pipeline=run,
            )
        )
        yield spark, position.version
    finally:
        sink.close()


def note(sink: DeltaAuditSink, table: str, key: tuple[str, ...], run: str, steps: Sequence[Reached]) -> None:
    """Take the steps that the trail has not got yet into its ledger."""
    from audit.queries.questions import erasures

    known = {row["state"] for row in erasures(sink.trail).where(_run_is(run)).select("state").collect()}
    if missing := [step for step in steps if step.state not in known]:
        with held_open(sink, table, key, run):
            sink.note([{"run": run, **plain(step)} for step in missing])


def _run_is(run: str) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.col("run") == run


def purge(sink: DeltaAuditSink, erasing: Erasing, *, now: dt.datetime) -> Purged:
    """The files of the payload that had the values. Nobody reads those any more, so only its retention counts."""
    from audit.erasure.erase.purge import purge_table

    with held_open(sink, erasing.table, erasing.key, erasing.run) as (spark, _):
        tables = TrailTables(spark, sink.path)
        log = tables.log(PAYLOAD)
        first, latest = log.listing().earliest, log.latest()
        # Values that went, or were sealed
        removals = [one.version for one in log.commits(first, latest) if "removal" in read_commit_info(one)]
        if not removals:
            return Purged()
        return purge_table(
            spark,
            tables.location(PAYLOAD),
            versions=[max(removals)],
            positions={},
            now=now,
            immediately=erasing.immediately,
        )


def scan(path: str, files: Callable[[str], Files], needles: Needles) -> Scanned:
    from audit.erasure.scan.delta_scan import scan_table

    now, found = dt.datetime.now(dt.UTC), Scanned()
    for name in (PAYLOAD, EVENTS, LEDGER):
        try:
            found += scan_table(files(f"{path}/{name}"), needles, now=now).at(f"{path}/{name}")
        except OSError as error:
            found += Scanned(unseen=(not_seen(f"{path}/{name}", error),))
    return found
