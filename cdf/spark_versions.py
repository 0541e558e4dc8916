"""What differs between the supported releases of Spark and Delta: functions that older releases lack, and signatures.

The rest of the code calls these functions and never asks for a version. ``infra.spark_pairs`` names the supported pairs.
"""

# The types of PySpark are those of its newest release, and declare what is for the others to be wrong.
# mypy: disable-error-code="attr-defined,no-any-return,operator,union-attr,unreachable,call-overload"

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from cdf.errors import FeatureNotSupported
from cdf.session import is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "arrow_schema",
    "arrow_type",
    "arrow_udf",
    "can_create_session",
    "collect_arrow",
    "create_from_arrow",
    "create_session",
    "has_collation",
    "is_valid_utf8",
    "is_variant",
    "iterate_rows",
    "make_valid_utf8",
    "metadata_column",
    "parse_variant",
    "query_logger",
    "repartition_by_number",
    "takes_catalog_table",
    "to_clock_time",
    "try_cast",
]

_DAY_MICROS = 86_400_000_000
_CHOSEN_BY = "_chosen_by"


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_variant(kind: DataType) -> bool:
    """Spark 3.5 has no variant: its Delta refuses the tables by the name of their feature."""
    return kind.typeName() == "variant"


def has_collation(kind: DataType) -> bool:
    """Whether texts that differ can be equal. Spark 3.5 has no collations."""
    is_binary = getattr(kind, "isUTF8BinaryCollation", None)
    return is_binary is not None and not is_binary()


def arrow_type(kind: DataType) -> pa.DataType:
    """The type of the column's values in ``collect_arrow``."""
    from pyspark.sql.pandas.types import to_arrow_type

    if "timezone" in signature(to_arrow_type).parameters:
        return to_arrow_type(kind, timezone="UTC")
    return to_arrow_type(kind)  # up to Spark 4.1 this is UTC as well


def arrow_schema(schema: StructType) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(one.name, arrow_type(one.dataType), one.nullable) for one in schema.fields])


# ── session ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def query_logger(name: str) -> logging.Logger:
    """A logger of PySpark. Up to Spark 3.5 there is none of that name."""
    try:
        from pyspark.logger import PySparkLogger
    except ModuleNotFoundError:
        return logging.getLogger(name)
    return PySparkLogger.getLogger(name)


def create_session(spark: SparkSession) -> SparkSession:
    """A session of the same application with settings of its own. Over Spark Connect it is a copy, since Spark 4.1."""
    if not is_connect(spark):
        return spark.newSession()
    if can_create_session(spark):
        return spark.cloneSession()
    raise FeatureNotSupported(
        "a session of Spark Connect cannot be copied before Spark 4.1",
        hint="run once with a classic session, or use Spark 4.1 or newer",
    )


def can_create_session(spark: SparkSession) -> bool:
    """Over Spark Connect the client and the server, whose version ``spark.version`` is, need Spark 4.1."""
    if not is_connect(spark):
        return True
    major, minor = spark.version.split(".")[:2]
    return hasattr(spark, "cloneSession") and (int(major), int(minor)) >= (4, 1)


# ── functions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_valid_utf8(text: Column) -> Column:
    from pyspark.sql import functions as F

    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(text)
    return make_valid_utf8(text).cast("binary") == text.cast("binary")


def make_valid_utf8(text: Column) -> Column:
    """The text with U+FFFD in place of bytes that are not UTF-8."""
    from pyspark.sql import functions as F

    if hasattr(F, "make_valid_utf8"):
        return F.make_valid_utf8(text)
    return F.decode(text.cast("binary"), "UTF-8")  # up to Spark 3.5 Java decodes, and replaces what is invalid


def parse_variant(json: Column) -> Column:
    from pyspark.sql import functions as F

    if hasattr(F, "parse_json"):
        return F.parse_json(json)
    raise FeatureNotSupported("this release of Spark has no variant", hint="use Spark 4.0 or newer")


def to_clock_time(micros: Column) -> Column:
    """Microseconds since 1970-01-01T00:00:00 as ``timestamp_ntz``."""
    from pyspark.sql import functions as F

    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    if hasattr(F, "timestamp_add"):
        return F.timestamp_add("MICROSECOND", micros, epoch)
    rest = micros % _DAY_MICROS
    days = F.round((micros - rest) / _DAY_MICROS).cast("int")
    seconds = (rest.cast("decimal(20,0)") / 1_000_000).cast("decimal(18,6)")
    return epoch + F.make_dt_interval(days, F.lit(0), F.lit(0), seconds)


def try_cast(value: Column, kind: DataType) -> Column:
    """The value in the type; null if it cannot be converted."""
    if hasattr(type(value), "try_cast"):  # a column has every attribute
        return value.try_cast(kind)
    from pyspark.sql import Column, SparkSession

    spark: Any = SparkSession.getActiveSession()
    java = spark._jvm.org.apache.spark.sql
    expressions = java.catalyst.expressions
    target = spark._jsparkSession.parseDataType(kind.json())
    cast = expressions.Cast(value._jc.expr(), target, spark._jvm.scala.Option.empty(), expressions.EvalMode.TRY())
    return Column(java.Column(cast))


def arrow_udf(function: Callable[[pa.Array], pa.Array], returns: str) -> Callable[[Column], Column]:
    """A Python function of one Arrow array as a function of a column. Up to Spark 4.0 it receives null for NaN."""
    from pyspark.sql import functions as F

    if hasattr(F, "arrow_udf"):
        return F.arrow_udf(function, returns)
    import pandas as pd
    import pyarrow as pa

    def convert(values: pd.Series) -> pd.Series:
        # As Python objects: pandas would turn integers beside a null into floats
        return pd.Series(function(pa.Array.from_pandas(values)).to_pylist(), dtype=object)

    convert.__annotations__ = {"values": pd.Series, "return": pd.Series}
    return F.pandas_udf(convert, returns)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def collect_arrow(rows: DataFrame) -> pa.Table:
    if hasattr(type(rows), "toArrow"):
        return rows.toArrow()
    import pyarrow as pa

    schema, batches = arrow_schema(rows.schema), rows._collect_as_arrow()
    return pa.Table.from_batches(batches, batches[0].schema).cast(schema) if batches else schema.empty_table()


def iterate_rows(rows: DataFrame, *, prefetch: bool = False) -> Iterator[Row]:
    """Return an iterator over the rows, in order. It holds the rows of one partition, of two with ``prefetch``."""
    spark = rows.sparkSession
    if is_connect(spark) or not hasattr(type(spark.conf), "getAll"):  # Spark 3.5 releases what it has returned
        return rows.toLocalIterator(prefetchPartitions=prefetch)
    # Spark 4.2 never releases the results of DataFrame.toLocalIterator: its jobs start after the query has ended, and Spark
    # keeps them for that query. Those of an RDD belong to no query (test_spark_versions.py)
    with _settings_in_tasks(spark):
        return rows.rdd.toLocalIterator(prefetchPartitions=prefetch)


@contextmanager
def _settings_in_tasks(spark: SparkSession) -> Iterator[None]:
    """Let the jobs that are started in the block have the session's SQL settings. Spark passes them only with a query."""
    context = spark.sparkContext._jsc.sc()
    before = context.getLocalProperties().clone()
    try:
        for name, value in spark.conf.getAll.items():
            if name.startswith("spark.sql."):
                context.setLocalProperty(name, value)
        yield
    finally:
        context.setLocalProperties(before)


def create_from_arrow(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    from pyspark.sql import DataFrame

    if hasattr(DataFrame, "toArrow"):
        return spark.createDataFrame(table, schema)
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    utils: Any = spark._jvm.PythonSQLUtils
    batches = table.cast(arrow_schema(schema)).to_batches()
    java = spark.sparkContext._serialize_to_jvm(
        batches,
        ArrowStreamSerializer(),
        lambda file: utils.readArrowStreamFromFile(file),
        lambda: spark._jvm.ArrowIteratorServer(),
    )
    return DataFrame(utils.toDataFrame(java, schema.json(), spark._jsparkSession), spark)


def metadata_column(rows: DataFrame) -> Column:
    """Spark's column ``_metadata`` of a table that is read; up to Spark 3.5 the table must have no column of that name."""
    from pyspark.sql import functions as F

    return rows.metadataColumn("_metadata") if hasattr(type(rows), "metadataColumn") else F.col("_metadata")


def repartition_by_number(rows: DataFrame, count: int, number: str) -> DataFrame:
    """Each row in the partition whose number, below ``count``, is in this column.

    Do not use window functions over these rows: up to Spark 4.0, Spark would move them to other partitions.
    """
    from pyspark.sql import functions as F

    if hasattr(type(rows), "repartitionById"):
        return rows.repartitionById(count, number)
    # Up to Spark 4.0 a partition is chosen by a hash only: by one of a value that has the wanted one
    values, chosen = _values_by_hash(count), f"{number}{_CHOSEN_BY}"
    by_value = rows.withColumn(chosen, F.element_at(F.array(*map(F.lit, values)), F.col(number) + 1))
    return by_value.repartition(count, chosen)


@cache
def _values_by_hash(count: int) -> tuple[int, ...]:
    """For each number below ``count`` an integer whose hash leaves it as remainder."""
    found: dict[int, int] = {}
    value = 0
    while len(found) < count:
        found.setdefault(_hash_integer(value) % count, value)
        value += 1
    return tuple(found[number] for number in range(count))


def _hash_integer(value: int) -> int:
    """Murmur3 of an integer, with Spark's seed, as a signed number."""
    bits = 0xFFFFFFFF

    def rotate(number: int, by: int) -> int:
        return (number << by | number >> (32 - by)) & bits

    mixed = rotate(value * 0xCC9E2D51 & bits, 15) * 0x1B873593 & bits
    hashed = (rotate(42 ^ mixed, 13) * 5 + 0xE6546B64) & bits
    hashed ^= 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & bits
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & bits
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


# ── Delta's own classes ──────────────────────────────────────────────────────────────────────────────────────────────


def takes_catalog_table(spark: SparkSession) -> bool:
    """Whether Delta's functions for the log have a parameter for the table in the catalog: since Delta 4.1."""
    jvm: Any = spark._jvm
    found = re.match(r"(\d+)\.(\d+)", str(jvm.io.delta.package.VERSION()))
    assert found is not None
    return (int(found[1]), int(found[2])) >= (4, 1)
