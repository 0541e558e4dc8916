"""Which tables of a schema in Spark's catalog ``tables: SCHEMA.PATTERN`` means."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdf.errors import ConfigError
from infra.catalog_tables import list_catalog_tables


def test_delta_tables_of_the_schema_and_neither_views_nor_other_formats(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("create schema listed")
    try:
        for name in ("orders", "order_lines", "visits"):
            spark.sql(f"create table listed.{name} (id bigint) using delta location '{tmp_path}/{name}'")
        spark.sql(f"create table listed.order_files (id bigint) using parquet location '{tmp_path}/files'")
        spark.sql("create view listed.order_view as select * from listed.orders")
        spark.sql("select 1 as id").createOrReplaceTempView("order_temporary")

        assert list_catalog_tables(spark, "listed.*") == ["listed.order_lines", "listed.orders", "listed.visits"]
        assert list_catalog_tables(spark, "spark_catalog.listed.order*") == [
            "spark_catalog.listed.order_lines",
            "spark_catalog.listed.orders",
        ]
        assert list_catalog_tables(spark, "listed.no_such_*") == []

        # Left out, its changes would be lost silently; listed, its pipeline fails and names it
        shutil.rmtree(tmp_path / "visits" / "_delta_log")
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        assert list_catalog_tables(spark, "listed.v*") == ["listed.visits"]
    finally:
        spark.catalog.dropTempView("order_temporary")
        spark.sql("drop schema listed cascade")


def test_an_unknown_schema_is_named(spark: SparkSession) -> None:
    with pytest.raises(
        ConfigError, match=r"of the catalog schema no_such cannot be listed \(SCHEMA_NOT_FOUND\)"
    ) as caught:
        list_catalog_tables(spark, "no_such.*")
    assert "`spark.conf`" in str(caught.value.hint)
