"""What lets a reader pass files over, held against the rows that are in them."""

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
"""Delta keeps times to the millisecond, and those from before time zones had names to the minute."""


def verify_statistics(tables: TrailTables, findings: Findings) -> None:
    """Whoever asks for a key or a version reads only the files whose statistics tell of it. By a session that reads all."""
    forged = reduce(DataFrame.union, (_forged(tables, name) for name in TABLES)).groupBy("table").count().collect()
    for row in sorted(forged):
        words = (
            f"the statistics of {row['count']} of its files do not fit the rows in them: who asks for a key or a version "
            "does not get to see all"
        )
        findings.add("altered", row["table"], words)


def _forged(tables: TrailTables, name: str) -> DataFrame:
    """``table``, for each file whose statistics would keep somebody from a row in it."""
    from pyspark.sql import functions as F

    jvm: Any = tables.spark._jvm
    java, location = tables.spark._jsparkSession, tables.location(name)
    snapshot = jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(java, location)._2()
    told = DataFrame(snapshot.withStats(), tables.spark)
    kinds: Any = told.schema["stats"].dataType
    bounded = list(_leaves(kinds["minValues"].dataType)) if "minValues" in kinds.names else []
    told = told.select(
        F.substring_index("path", "/", -1).alias("file"),
        F.col("stats.numRecords").alias("written"),
        (F.col("stats.numRecords") - F.coalesce("deletionVector.cardinality", F.lit(0))).alias("rows"),
        *(
            F.col(f"stats.{said}.{path}").alias(f"{said}{at}")
            for at, (path, _) in enumerate(bounded)
            for said in ("minValues", "maxValues", "nullCount")
        ),
    )
    rows = tables.spark.read.format("delta").option("versionAsOf", snapshot.version()).load(location)
    values = [F.col(path).alias(f"value{at}") for at, (path, _) in enumerate(bounded)]
    found = rows.select(F.col("_metadata.file_name").alias("file"), *values).groupBy("file")
    held = found.agg(
        F.count("*").alias("held"),
        *(
            of(F.col(f"value{at}")).alias(f"{of.__name__}{at}")
            for at in range(len(bounded))
            for of in (F.min, F.max, F.count)
        ),
    ).withColumn("there", F.lit(True))
    wrong = [F.coalesce("held", F.lit(0)) != F.col("rows")]
    for at, (_, timed) in enumerate(bounded):
        slack = F.expr(_SLACK) if timed else None
        least, most = F.col(f"minValues{at}"), F.col(f"maxValues{at}")
        wrong += [
            F.col(f"min{at}") < (least if slack is None else least - slack),
            F.col(f"max{at}") > (most if slack is None else most + slack),
            # A file of nothing but NULLs is passed over as well. What a deletion vector hides is in both counts
            F.col(f"count{at}") > F.col("written") - F.col(f"nullCount{at}"),
        ]
    unknown = F.col("there").isNotNull() & F.col("said").isNull()
    joined = told.withColumn("said", F.lit(True)).join(held, "file", "full_outer")
    return joined.where(reduce(_either, wrong, unknown)).select(F.lit(name).alias("table"))


def _either(one: Column, other: Column) -> Column:
    from pyspark.sql import functions as F

    return one | F.coalesce(other, F.lit(False))


def _leaves(type: StructType, within: str = "") -> Iterator[tuple[str, bool]]:
    """Path of each column, and whether it is a time."""
    for field in type.fields:
        path = f"{within}`{field.name.replace('`', '``')}`"
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, f"{path}.")
        else:
            yield path, isinstance(field.dataType, TimestampType | TimestampNTZType)
