"""Settings of the caller's Spark session: changed temporarily, or refused."""

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
    """Refuse settings with which Spark silently returns fewer rows if a file is gone: a delete would be lost."""
    on = [name for name in _IGNORE if (spark.conf.get(name, "false") or "").lower() == "true"]
    if on:
        raise ConfigError(
            f"the session has {' and '.join(on)} = true: missing files or columns would be skipped silently",
            hint="set it to false for the session that reads the change feed",
        )
