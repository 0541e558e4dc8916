"""A person taken out of a trail: values removed under a record, then their files; what is left looked for.

The events stay with their hashes, so the trail verifies before and after. Of the commit that erased, the payload has the key
alone (``audit.rows.Payload.withheld``), which goes here together with the rows of former versions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from audit.erasure.places import Purged, Scanned
from audit.tables import EVENTS, LEDGER, PAYLOAD, TrailTables, about_of
from cdf.errors import WindowOutOfOrder
from cdf.sink import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from audit.erasure.needles import Needles
    from audit.erasure.places import Erasing
    from connectors.delta_audit.sink import DeltaAuditSink

__all__ = ["forget", "purge", "scan"]


def forget(sink: DeltaAuditSink, erasing: Erasing) -> Mapping[str, int]:
    """Remove the values that the subjects' rows had up to the erasing commits. Again, it finds none and records nothing."""
    with _opened(sink, erasing) as (spark, position):
        if erasing.versions and (position is None or position < max(erasing.versions)):
            raise WindowOutOfOrder(
                f"the trail at {sink.path} stands at {position}, and {erasing.table} was erased at {max(erasing.versions)}",
                hint="let its pipeline run first: `deltarelay run`",
                position=position,
            )
        tables = TrailTables(spark, sink.path)
        places = _places(sink, tables, erasing)
        count = places.count()
        if count:
            ticket = ", ".join(erasing.requests)
            sink.remove(places, {"ticket": ticket, "purpose": "erasure", "run": erasing.run})
    return {"values removed": count}


def _places(sink: DeltaAuditSink, tables: TrailTables, erasing: Erasing) -> DataFrame:
    """``version`` and ``index`` of the events whose values are there and are the subjects'."""
    from pyspark.sql import functions as F

    live = [column for column in sink.trail.columns() if column.live]
    values = [F.col("row").getField(column.stored).alias(column.name) for column in live]
    rows = tables.now(PAYLOAD).select(F.col("id").alias("__id"), F.col("version").alias("__version"), *values)
    if erasing.versions:  # what came later is of somebody who came back
        rows = rows.where(F.col("__version") <= max(erasing.versions))
    keys = erasing.keys()
    same = reduce(
        lambda one, other: one & other, (rows[_sql(name)].eqNullSafe(keys[_sql(name)]) for name in erasing.key)
    )
    caught = erasing.catch(rows).select("__id").unionByName(rows.join(keys, same, "left_semi").select("__id"))
    events = tables.now(EVENTS).select("version", "index", "id")
    return events.join(caught.distinct(), F.col("id") == F.col("__id"), "left_semi").select("version", "index")


def _sql(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


@contextmanager
def _opened(sink: DeltaAuditSink, erasing: Erasing) -> Iterator[tuple[SparkSession, int | None]]:
    """The sink under its lease, and where it stands."""
    from cdf.source import ChangeFeed

    spark = sink.trail.tables.spark
    metadata = ChangeFeed(spark, erasing.table).log.metadata()
    try:
        position = sink.open(
            Source(
                table=erasing.table,
                table_id=metadata.table_id,
                schema=metadata.schema,
                key=erasing.key,
                pipeline=erasing.run,
            )
        )
        yield spark, position.version
    finally:
        sink.close()


def purge(sink: DeltaAuditSink, erasing: Erasing, *, now: dt.datetime) -> Purged:
    """The files of the payload that had the values. Nobody reads those any more, so only its retention counts."""
    from audit.erasure.purge import purge_table

    with _opened(sink, erasing) as (spark, _):
        tables = TrailTables(spark, sink.path)
        log = tables.log(PAYLOAD)
        first, latest = log.listing().earliest, log.latest()
        removals = [one.version for one in log.commits(first, latest) if "removal" in about_of(one)]
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


def scan(path: str, needles: Needles) -> Scanned:
    from audit.erasure.delta_files import scan_table

    now = dt.datetime.now(dt.UTC)
    found = (scan_table(f"{path}/{name}", needles, now=now) for name in (PAYLOAD, EVENTS, LEDGER))
    return reduce(lambda one, other: one + other, found)
