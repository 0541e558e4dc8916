"""Settings of the caller's Spark session: changed temporarily, or refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError, SourceUnavailable, condition_of
from cdf.interrupt import SERVER_GONE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "IGNORING",
    "cancel_jobs",
    "cancel_tagged_jobs",
    "check_session",
    "find_session",
    "has_delta_classes",
    "is_connect",
    "lacks_delta",
    "require_classic",
    "setting",
    "tag_jobs",
    "translate_lost_server",
]

_SETTING = threading.RLock()
IGNORING = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
)
"""Settings with which Spark skips what it cannot read: ``check_session`` refuses them."""
_ANSI = "spark.sql.ansi.enabled"
_LOST = ("StatusCode.UNAVAILABLE", "RETRIES_EXCEEDED", "INVALID_HANDLE.SESSION_")
"""In the text of an error: the Spark Connect server does not answer, or no longer has the session."""
_PROBE = "describe detail delta.`/deltarelay/no-table`"


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
    try:
        on = [name for name in IGNORING if (spark.conf.get(name, "false") or "").lower() == "true"]
        has_ansi = (spark.conf.get(_ANSI, "true") or "").lower() == "true"
    except Exception as error:
        if (lost := translate_lost_server(error, "the settings of the session cannot be read")) is not None:
            raise lost from error
        raise
    if on:
        raise ConfigError(
            f"the session has {' and '.join(on)} = true: missing files or columns would be skipped silently",
            hint="set it to false for the session that reads the change feed",
        )
    if is_connect(spark) and not has_ansi:
        # The server analyses each query again when it runs: a setting cannot be changed for a part of it
        raise ConfigError(
            f"the session has {_ANSI} = false: over Spark Connect small decimals would be written as 1E-38",
            hint="set it to true for the session that reads the change feed",
        )


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server, which has no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def find_session() -> SparkSession | None:
    """The session of this process, whichever thread asks; None: there is none."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        with suppress(Exception):  # there is none
            return SparkSession.active()
        return None
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        return None
    # The active session of another thread works as well: both use the same Spark context
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


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


def lacks_delta(spark: SparkSession) -> bool:
    """Whether the session cannot run Delta's SQL, shown by a statement about a folder that has no table.

    No setting shows it: on Databricks Delta is built in, and ``spark.sql.extensions`` names other classes.
    """
    try:
        spark.sql(_PROBE).first()
    except Exception as error:
        text, condition = str(error), condition_of(error) or ""
        # Without the extension Spark reads DESCRIBE TABLE detail, or its column; without the jars it has no catalog
        return (
            (condition == "TABLE_OR_VIEW_NOT_FOUND" and "`detail`" in text)
            or condition in ("COLUMN_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG")
            or "catalog plugin class" in text
        )
    return False


def require_classic(spark: SparkSession, what: str) -> None:
    """Refuse, over Spark Connect, what uses Spark's JVM. ``what``: the subject of the sentence."""
    if is_connect(spark):
        raise ConfigError(
            f"{what} needs a classic Spark session, and this one is of Spark Connect",
            hint="use a session with a JVM: local, spark-submit, or on the cluster's driver",
        )


def cancel_jobs(spark: SparkSession) -> None:
    """Cancel what the session is running; over Spark Connect also what other threads have asked for."""
    if is_connect(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


def tag_jobs(spark: SparkSession, tag: str, description: str) -> None:
    """Name the jobs that this thread will start, for ``cancel_tagged_jobs``."""
    if is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.setJobGroup(tag, description, True)


def cancel_tagged_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel the jobs of a thread that has called ``tag_jobs``."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobGroup(tag)


def translate_lost_server(error: BaseException, failure: str) -> SourceUnavailable | None:
    """Our error, if this one or one of its causes says that the Spark Connect server is gone, and the session with it."""
    cause: BaseException | None = error
    while cause is not None and not any(word in str(cause) for word in _LOST):
        cause = cause.__cause__
    if cause is None:
        return None
    return SourceUnavailable(
        f"{failure}: the Spark Connect server does not answer, or has ended this session",
        hint="nothing is lost: run again when the server is back",
        condition=SERVER_GONE,
    )
