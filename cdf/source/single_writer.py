"""Refuses writes to a table on S3 unless concurrent writers exclude each other.

Delta's default log store for S3 excludes only writers in one JVM: the commits of a second cluster vanish without an error,
and the versions stay contiguous (``tests/acceptance/test_s3_writers.py`` shows it). So nothing is written to S3 before the
session states how concurrent writers exclude each other. Reading is always allowed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cdf.errors import ConfigError, SourceError
from cdf.session import setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdf.source.log import TableLog

__all__ = ["COMMITS_SETTING", "LOCK_STORE", "commit_alone", "require_writer"]

COMMITS_SETTING = "spark.deltarelay.commits"
"""How this session's commits are protected. ``single_writer``: the user promises that there is no other writer."""
_S3 = ("s3", "s3a", "s3n")
_DEFAULT_STORE = "io.delta.storage.S3SingleDriverLogStore"
LOCK_STORE = "io.delta.storage.S3DynamoDBLogStore"
_ANY_STORE = "spark.delta.logStore.class"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_ON_DATABRICKS = "spark.databricks.clusterUsageTags.clusterId"


def require_writer(spark: SparkSession, location: str) -> None:
    """Raise ConfigError if ``location`` is on S3 and nothing protects this session's commits from other writers.

    For a catalog name, the location of its database counts.
    """
    location = location if "/" in location else _home(spark, location)
    scheme = location.partition("://")[0].lower()
    if scheme not in _S3:
        return
    store = spark.conf.get(f"spark.delta.logStore.{scheme}.impl", spark.conf.get(_ANY_STORE, _DEFAULT_STORE))
    if store == LOCK_STORE and scheme != "s3a":
        raise ConfigError(
            f"{location} has another lock than the same address with s3a://, and the two do not exclude each other",
            hint="write s3a:// everywhere, in every cluster",
        )
    if (
        store != _DEFAULT_STORE
        or spark.conf.get(COMMITS_SETTING, None) == "single_writer"
        or spark.conf.get(_ON_DATABRICKS, None) is not None  # Databricks has its own commit service
    ):
        return
    raise ConfigError(
        f"nothing is written to {location}: on S3 the commits of two clusters overwrite each other without an error, and "
        "nothing in this session prevents that",
        hint="set storage.commits: {kind: dynamodb, table: delta_log} and create the table with `deltarelay storage lock "
        "create`; or promise that there is one writer: {kind: single_writer}",
    )


def _home(spark: SparkSession, name: str) -> str:
    """Where a table of that name would be created; empty if that is unknown: creating the table will then fail."""
    parts = name.replace("`", "").split(".")
    with suppress(Exception):
        database = parts[-2] if len(parts) > 1 else spark.catalog.currentDatabase()
        return str(spark.catalog.getDatabase(database).locationUri or "")
    return ""


def commit_alone(spark: SparkSession, log: TableLog, what: str, write: Callable[[], Any]) -> tuple[str, ...]:
    """Make one commit, and check in the log that there was no other writer. → warnings.

    The commit has an id in its ``userMetadata``. Raises SourceError if it is not in the log afterwards: another writer has
    overwritten it, and neither writer got an error. A warning names the commits of other writers in between.
    """
    if log.location.partition("://")[0].lower() not in _S3 or spark.conf.get(COMMITS_SETTING, None) != "single_writer":
        write()
        return ()
    before, ours = log.latest(), uuid.uuid4().hex
    with setting(spark, _USER_METADATA, json.dumps({"deltarelay": what, "id": ours})):
        write()
    commits = list(log.commits(before + 1, log.latest()))
    foreign = [commit.version for commit in commits if ours not in (commit.user_metadata or "")]
    if len(foreign) == len(commits):
        raise SourceError(
            f"the commit of `{what}` is not in the log of {log.location}: another writer has overwritten it",
            hint="commits: single_writer promises that there is no other writer: stop the other one, or let all of "
            "them use `commits: {kind: dynamodb}`; then try again",
            condition="COMMIT_OVERWRITTEN",
        )
    if not foreign:
        return ()
    return (
        f"another writer wrote version {', '.join(map(str, foreign))} of {log.location} meanwhile: with single_writer such "
        "commits can be lost without an error",
    )
