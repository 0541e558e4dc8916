"""Settings of the caller's Spark session: changed for a moment, or refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_session", "setting"]

_SETTING = threading.RLock()
_IGNORE = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of the session while something is made with it, put back afterwards. One at a time: pipelines that follow
    share the session."""
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
    """These settings make Spark answer with fewer rows where a file is gone: a lost delete, without a word."""
    on = [name for name in _IGNORE if (spark.conf.get(name, "false") or "").lower() == "true"]
    if on:
        raise ConfigError(
            f"the session has {' and '.join(on)} = true: files or columns that are gone would be left out silently",
            hint="set it to false for the session that reads the change feed",
        )
