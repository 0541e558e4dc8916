"""Who may write to a table on S3.

Delta's default log store for S3 keeps writers of one JVM apart and nobody else: the commits of a second cluster vanish
without an error, and the versions stay contiguous (``tests/acceptance/test_s3_writers.py`` shows it). Nothing is written
there before somebody has said what keeps writers apart. Reading needs none of this.
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
"""What keeps this session's commits apart. ``single_writer``: somebody has promised that there is no other."""
_S3 = ("s3", "s3a", "s3n")
_DEFAULT_STORE = "io.delta.storage.S3SingleDriverLogStore"
LOCK_STORE = "io.delta.storage.S3DynamoDBLogStore"
_ANY_STORE = "spark.delta.logStore.class"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_ON_DATABRICKS = "spark.databricks.clusterUsageTags.clusterId"


def require_writer(spark: SparkSession, location: str) -> None:
    """Raises ConfigError where ``location`` is on S3 and nothing keeps this session's commits apart from those of others.

    A catalog name counts as where its database is.
    """
    location = location if "/" in location else _home(spark, location)
    scheme = location.partition("://")[0].lower()
    if scheme not in _S3:
        return
    store = spark.conf.get(f"spark.delta.logStore.{scheme}.impl", spark.conf.get(_ANY_STORE, _DEFAULT_STORE))
    if store == LOCK_STORE and scheme != "s3a":
        raise ConfigError(
            f"{location} is another lock than the same address with s3a://, and the two do not exclude each other",
            hint="write s3a:// everywhere, in every cluster",
        )
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


def _home(spark: SparkSession, name: str) -> str:
    """Where a table of that name would be made; empty where that cannot be told, which making it will tell."""
    parts = name.replace("`", "").split(".")
    with suppress(Exception):
        database = parts[-2] if len(parts) > 1 else spark.catalog.currentDatabase()
        return str(spark.catalog.getDatabase(database).locationUri or "")
    return ""


def commit_alone(spark: SparkSession, log: TableLog, what: str, write: Callable[[], Any]) -> tuple[str, ...]:
    """Make one commit, and hold the promise of a single writer against the log. → what somebody should know.

    The commit carries an id in its ``userMetadata``. Raises SourceError where it is not in the log afterwards: another
    writer has put its own in its place, and neither was told. Commits of others in between are named.
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
            hint="commits: single_writer is a promise that somebody does not keep: stop the other writer, or let all of "
            "them use `commits: {kind: dynamodb}`; then try again",
            condition="COMMIT_OVERWRITTEN",
        )
    if not foreign:
        return ()
    return (
        f"somebody else wrote version {', '.join(map(str, foreign))} of {log.location} meanwhile: with single_writer "
        "such commits can vanish without an error",
    )
