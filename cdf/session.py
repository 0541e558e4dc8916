"""Settings of the caller's Spark session: changed temporarily, or refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cancel_jobs", "check_session", "has_delta_classes", "is_connect", "setting"]

_SETTING = threading.RLock()
_IGNORE = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
)
_ANSI = "spark.sql.ansi.enabled"


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session within a block. One block at a time: following pipelines share the session."""
    with _SETTING:
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before)


def check_session(spark: SparkSession) -> None:
    """Refuse settings with which Spark silently returns fewer rows if a file is gone, or other values."""
    on = [name for name in _IGNORE if (spark.conf.get(name, "false") or "").lower() == "true"]
    if on:
        raise ConfigError(
            f"the session has {' and '.join(on)} = true: missing files or columns would be skipped silently",
            hint="set it to false for the session that reads the change feed",
        )
    if is_connect(spark) and (spark.conf.get(_ANSI, "true") or "").lower() != "true":
        # The server analyses each query again when it runs: a setting cannot be changed for a part of it
        raise ConfigError(
            f"the session has {_ANSI} = false: over Spark Connect small decimals would be written as 1E-38",
            hint="set it to true for the session that reads the change feed",
        )


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server, which has no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def has_delta_classes(spark: SparkSession) -> bool:
    """Whether the session reaches Delta's own classes in its JVM. Not over Spark Connect, nor on Databricks."""
    if not callable(getattr(spark, "sql", None)):
        raise ConfigError(
            f"a SparkSession is needed, not {type(spark).__name__}",
            hint="pass a running session: deltarelay.session(), SparkSession.builder.getOrCreate(), or one of Spark Connect",
        )
    jvm: Any = None if is_connect(spark) else getattr(spark, "_jvm", None)
    # py4j answers a name that it does not know with a package
    return jvm is not None and type(jvm.org.apache.spark.sql.delta.DeltaLog).__name__ == "JavaClass"


def cancel_jobs(spark: SparkSession) -> None:
    """Cancel what the session is running; over Spark Connect also what other threads have asked for."""
    if is_connect(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()
