"""Rows on the driver as a frame whose plan shows none of their values.

Plans are written to event logs and shown in Spark's user interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.session import setting
from cdf.spark_versions import create_from_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["create_hidden_rows"]

_LOCAL_RELATION_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"


def create_hidden_rows(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    # With the default setting the rows would be written into the plan
    with setting(spark, _LOCAL_RELATION_THRESHOLD, "0"):
        return create_from_arrow(spark, rows, schema).coalesce(1)
