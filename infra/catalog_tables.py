"""The Delta tables of a schema in Spark's catalog, for ``tables: sales.*``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.changes.columns import quote_name
from cdf.errors import ConfigError, condition_of
from infra.config.table_patterns import matches_pattern, split_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["list_catalog_tables"]


def list_catalog_tables(spark: SparkSession, pattern: str) -> list[str]:
    """The Delta tables that SCHEMA.PATTERN matches, as SCHEMA.TABLE, sorted. Views and other formats are left out."""
    schema, last = split_address(pattern)
    quoted = ".".join(quote_name(part) for part in schema.split("."))
    try:
        rows = spark.sql(f"SHOW TABLES IN {quoted}").collect()
    except Exception as error:
        raise ConfigError(
            f"the tables of the catalog schema {schema} cannot be listed ({condition_of(error) or type(error).__name__})",
            hint="correct the name, or set the catalog of the session under `spark.conf`",
        ) from error
    names = sorted(row["tableName"] for row in rows if not row["isTemporary"])
    return [
        f"{schema}.{name}"
        for name in names
        if matches_pattern(name, last) and _is_delta(spark, f"{quoted}.{quote_name(name)}")
    ]


def _is_delta(spark: SparkSession, table: str) -> bool:
    try:
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except Exception as error:
        # A table that cannot be described is not left out: its own pipeline fails and names it, and the others run
        return condition_of(error) != "TABLE_OR_VIEW_NOT_FOUND"  # dropped a moment ago
    return any(row["col_name"] == "Provider" and str(row["data_type"]).lower() == "delta" for row in described)
