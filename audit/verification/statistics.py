"""Verifies the file statistics, by which readers skip files, against the rows in the files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from audit.trail.tables import TABLES, TrailTables
from audit.verification.results import Findings

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["verify_statistics"]

_SLACK = "interval 1 minute"
"""Delta keeps times in milliseconds, and times before standard time zones were introduced in minutes."""


def verify_statistics(tables: TrailTables, findings: Findings) -> None:
    """A query for a key or a version reads only the files whose statistics match. ``tables``: of a session that reads all
    files."""
    forged = reduce(DataFrame.union, (_find_forged(tables, name) for name in TABLES)).groupBy("table").count().collect()
    for row in sorted(forged):
        message = (
            f"the statistics of {row['count']} of its files do not match the rows in them: a query for a key or a version "
            "can miss rows"
        )
        findings.add("altered", row["table"], message)


def _find_forged(tables: TrailTables, name: str) -> DataFrame:
    """One row with ``table`` for each file whose statistics hide a row in it."""
    from pyspark.sql import functions as F

    jvm: Any = tables.spark._jvm
    java, location = tables.spark._jsparkSession, tables.location(name)
    snapshot = jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(java, location)._2()
    files = DataFrame(snapshot.withStats(), tables.spark)
    stats: Any = files.schema["stats"].dataType
    bounded = list(_leaves(stats["minValues"].dataType)) if "minValues" in stats.names else []
    files = files.select(
        F.substring_index("path", "/", -1).alias("file"),
        F.col("stats.numRecords").alias("written"),
        (F.col("stats.numRecords") - F.coalesce("deletionVector.cardinality", F.lit(0))).alias("rows"),
        *(
            F.col(f"stats.{bound}.{path}").alias(f"{bound}{at}")
            for at, (path, _) in enumerate(bounded)
            for bound in ("minValues", "maxValues", "nullCount")
        ),
    )
    rows = tables.spark.read.format("delta").option("versionAsOf", snapshot.version()).load(location)
    values = [F.col(path).alias(f"value{at}") for at, (path, _) in enumerate(bounded)]
    found = rows.select(F.col("_metadata.file_name").alias("file"), *values).groupBy("file")
    actual = found.agg(
        F.count("*").alias("held"),
        *(
            aggregate(F.col(f"value{at}")).alias(f"{aggregate.__name__}{at}")
            for at in range(len(bounded))
            for aggregate in (F.min, F.max, F.count)
        ),
    ).withColumn("there", F.lit(True))
    wrong = [F.coalesce("held", F.lit(0)) != F.col("rows")]
    for at, (_, is_time) in enumerate(bounded):
        slack = F.expr(_SLACK) if is_time else None
        least, most = F.col(f"minValues{at}"), F.col(f"maxValues{at}")
        wrong += [
            F.col(f"min{at}") < (least if slack is None else least - slack),
            F.col(f"max{at}") > (most if slack is None else most + slack),
            # A file with only NULLs is skipped as well. Rows behind a deletion vector are in both counts
            F.col(f"count{at}") > F.col("written") - F.col(f"nullCount{at}"),
        ]
    unknown = F.col("there").isNotNull() & F.col("listed").isNull()
    joined = files.withColumn("listed", F.lit(True)).join(actual, "file", "full_outer")
    return joined.where(reduce(_or, wrong, unknown)).select(F.lit(name).alias("table"))


def _or(one: Column, other: Column) -> Column:
    from pyspark.sql import functions as F

    return one | F.coalesce(other, F.lit(False))


def _leaves(type: StructType, parent: str = "") -> Iterator[tuple[str, bool]]:
    """Path of each column, and whether it is a timestamp."""
    for field in type.fields:
        path = f"{parent}`{field.name.replace('`', '``')}`"
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, f"{path}.")
        else:
            yield path, isinstance(field.dataType, TimestampType | TimestampNTZType)
