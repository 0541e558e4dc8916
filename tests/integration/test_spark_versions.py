"""Where an older Spark lacks a function, its replacement gives the same values. ``make compat`` runs this on every pair."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession, types
from pyspark.sql import functions as F

from cdf import spark_versions as versions
from cdf.session import setting

TEXTS = [b"", b"a\xc3\xa4", b"\xef\xbf\xbd", b"a\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", None]
VALID = [True, True, True, False, False, False, False, None]
MICROS = [0, 1, -1, 1234567890123456, -62135596800000000, 253402300799999999]


@pytest.fixture(params=["as in this Spark", "as in Spark 3.5"])
def spark_release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacements that every release can run: here the functions of newer releases are hidden."""
    if request.param == "as in Spark 3.5":
        for name in ("timestamp_add", "arrow_udf"):
            monkeypatch.delattr(F, name, raising=False)


@pytest.mark.usefixtures("spark_release")
def test_functions_of_a_column(spark: SparkSession) -> None:
    texts = spark.createDataFrame([(at, text) for at, text in enumerate(TEXTS)], "at int, raw binary")
    text = F.expr("cast(raw as string)")
    found = texts.select("at", versions.is_valid_utf8(text), versions.make_valid_utf8(text)).sort("at").collect()
    assert [row[1] for row in found] == VALID
    decoded = [None if text is None else text.decode(errors="replace") for text in TEXTS]
    assert [row[2] for row in found][:5] == decoded[:5]
    times = spark.createDataFrame([(micros,) for micros in MICROS], "micros long").orderBy("micros")
    clock = times.select(versions.to_clock_time(F.col("micros")).cast("string")).collect()
    epoch = dt.datetime(1970, 1, 1)
    wanted = [str(epoch + dt.timedelta(microseconds=micros)) for micros in sorted(MICROS)]
    assert [row[0].rstrip("0") if "." in row[0] else row[0] for row in clock] == [
        one.rstrip("0") if "." in one else one for one in wanted
    ]


@pytest.mark.usefixtures("spark_release")
def test_a_python_function_gets_and_returns_exact_values(spark: SparkSession) -> None:
    bits = versions.arrow_udf(_bits, "bigint")
    rows = spark.sql("select * from values (1, 0.1d), (2, -0.0d), (3, double('Infinity')) as t(at, value)").sort("at")
    assert [row[0] for row in rows.select(bits(F.col("value"))).collect()] == [
        4591870180066957722,
        -(2**63),
        9218868437227405312,
    ]


def _bits(values: pa.Array) -> pa.Array:
    return values.view(pa.int64())


def test_a_cast_that_fails_gives_null(spark: SparkSession) -> None:
    rows = spark.sql("select * from values ('12'), ('x'), ('99999999999'), ('1.5') as t(value)")
    found = rows.select(versions.try_cast(F.col("value"), types.IntegerType())).collect()
    assert [row[0] for row in found] == [12, None, None, None]


def test_rows_as_arrow_and_back(spark: SparkSession) -> None:
    rows = spark.sql("select 1 as id, timestamp'2024-01-01 00:00:00Z' as at, array(1, null) as several")
    table = versions.collect_arrow(rows)
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert versions.collect_arrow(rows.limit(0)).schema.types == table.schema.types
    assert versions.create_from_arrow(spark, table, rows.schema).collect() == rows.collect()


def hide_repartition_by_id(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to Spark 4.0 a DataFrame has no such method."""
    for kind in type(spark.range(1)).__mro__:
        if "repartitionById" in vars(kind):
            monkeypatch.delattr(kind, "repartitionById")


@pytest.mark.parametrize("own", [True, False], ids=["Spark's", "by hash"])
def test_each_number_has_its_partition_and_keeps_it_when_sorted(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    rows = spark.range(50).select("id", (F.col("id") % 7).cast("int").alias("lane"))
    if not own:
        hide_repartition_by_id(spark, monkeypatch)
    placed = versions.repartition_by_number(rows, 7, "lane")
    found = placed.sortWithinPartitions("id").select("id", "lane", F.spark_partition_id().alias("partition")).collect()
    assert all(row.partition == row.lane for row in found)
    assert [row.id for row in found] == sorted(range(50), key=lambda id: (id % 7, id))


def test_rows_that_were_iterated_are_not_retained(spark: SparkSession) -> None:
    rows = spark.range(0, 100, 1, 4).select("id", F.struct(F.lit(None).cast("int").alias("none"), "id").alias("pair"))
    before = _retained_queries(spark)
    for prefetch in (False, True):
        found = list(versions.iterate_rows(rows.repartition(3).orderBy("id"), prefetch=prefetch))
        assert found == rows.collect()
    some = versions.iterate_rows(rows)
    assert next(some).id == 0
    del some  # a reader that stops
    assert _retained_queries(spark) <= before


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_tasks_of_iterated_rows_have_the_settings_of_the_session(spark: SparkSession, adaptive: str) -> None:
    name = "spark.sql.legacy.timeParserPolicy"

    @F.udf("string")
    def policy(_: int) -> str | None:
        context = TaskContext.get()
        return None if context is None else context.getLocalProperty(name)

    with setting(spark, "spark.sql.adaptive.enabled", adaptive), setting(spark, name, "EXCEPTION"):
        before_shuffle = spark.range(0, 2, 1, 2).select("id", policy("id").alias("before")).repartition(2, "id")
        rows = before_shuffle.select("before", policy("id").alias("after"))
        assert [tuple(row) for row in versions.iterate_rows(rows)] == [("EXCEPTION", "EXCEPTION")] * 2
        assert spark.sparkContext.getLocalProperty(name) is None  # of what this thread starts afterwards


def test_spark_retains_the_rows_of_an_iterated_frame(spark: SparkSession) -> None:
    """Why ``iterate_rows`` takes the way through an RDD. Once this fails, Spark has been repaired."""
    if not _counts_queries(spark):
        pytest.skip("this release of Spark does not keep the jobs of a query")
    before = _retained_queries(spark)
    assert len(list(spark.range(0, 100, 1, 4).toLocalIterator())) == 100
    assert _retained_queries(spark) == before + 1


def _counts_queries(spark: SparkSession) -> bool:
    """Whether the scheduler shows what it retains. The present release does, or these tests would show nothing."""
    shows = "activeQueryToJobs" in dir(_scheduler(spark))
    assert shows or spark.version.startswith(("3.5.", "4.0.", "4.1."))
    return shows


def _retained_queries(spark: SparkSession) -> int:
    """Queries whose jobs, and the results of these, Spark's scheduler retains."""
    return int(_scheduler(spark).activeQueryToJobs().size()) if _counts_queries(spark) else 0


def _scheduler(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc().dagScheduler()
