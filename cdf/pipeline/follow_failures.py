"""Describes what ended following: each exception as an error of ``cdf.errors``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, SourceError
from cdf.interrupt import JVM_GONE
from cdf.read_errors import translate
from cdf.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["describe_failure"]


def describe_failure(error: BaseException, spark: SparkSession, table: str, position: int) -> CdfError:
    """``position``: the version after which following ended."""
    # If Java has ended, reading the log fails with an error that blames the log
    if isinstance(error, CdfError) and (type(error) is not SourceError or _is_alive(spark)):
        return error
    failure: CdfError
    if not _is_alive(spark):
        failure = SourceError(
            f"following {table} ended: Spark's Java process has ended",
            hint="the position is intact: start the pipeline again",
            condition=JVM_GONE,
        )
    else:
        exception = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
        failure = translate(exception, table=table, first=position, last=position)
    failure.__cause__ = error
    return failure


def _is_alive(spark: SparkSession) -> bool:
    if is_connect(spark):
        return True
    with suppress(Exception):
        jvm: Any = spark._jvm
        return bool(jvm.java.lang.System.nanoTime())
    return False
