"""Who may write to a table on S3.

Delta's default log store for S3 keeps writers of one JVM apart and nobody else: the commits of a second cluster vanish
without an error, and the versions stay contiguous (``tests/acceptance/test_s3_writers.py`` shows it). Nothing is written
there before somebody has said what keeps writers apart. Reading needs none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["COMMITS_SETTING", "require_writer"]

COMMITS_SETTING = "spark.deltarelay.commits"
"""``single_writer``: somebody has promised that this is the only writer."""
_DEFAULT_STORE = "io.delta.storage.S3SingleDriverLogStore"
_ON_DATABRICKS = "spark.databricks.clusterUsageTags.clusterId"


def require_writer(spark: SparkSession, location: str) -> None:
    """Raises ConfigError where ``location`` is on S3 and nothing keeps this session's commits apart from those of others."""
    scheme = location.partition("://")[0].lower()
    if scheme not in ("s3", "s3a", "s3n"):
        return
    store = spark.conf.get(f"spark.delta.logStore.{scheme}.impl", _DEFAULT_STORE)
    if (
        store != _DEFAULT_STORE
        or spark.conf.get(COMMITS_SETTING, None) == "single_writer"
        or spark.conf.get(_ON_DATABRICKS, None) is not None  # which has a commit service of its own
    ):
        return
    raise ConfigError(
        f"nothing is written to {location}: on S3 the commits of two clusters overwrite each other without an error, and "
        "nothing in this session keeps them apart",
        hint="set storage.commits: {kind: dynamodb, table: delta_log} and make the table by `deltarelay storage lock "
        "create`; or promise that there is one writer: {kind: single_writer}",
    )
