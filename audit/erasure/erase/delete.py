"""The commits that erase: a MERGE against keys that are data, so that no value stands in the table's log.

The predicate of a DELETE is written into the log in clear. Here the log tells ``held.email <=> doomed._0``, and whose run it
was. A call that comes again finds no row any more and commits nothing.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.erasure.commit_marker import erased_person, erasing_metadata, erasing_run, make_proof, proven
from audit.erasure.find.columns import quoted
from audit.erasure.find.table_checks import inspect_table
from audit.erasure.model import PersonalTable
from cdf.changes.columns import CHANGE_TYPE, DELETE, UPDATE_PREIMAGE
from cdf.errors import CdfError, ConfigError, SourceError, SourceUnavailable, condition_of
from cdf.result import Result
from cdf.source.batch_reader import read_range
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from audit.erasure.register.protocols import MarkKeys

__all__ = ["Deleted", "erase_table", "erased_keys", "erased_versions"]

logger = logging.getLogger("deltarelay.erasure")

_TRIES = 5
_PAUSE = 0.5
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_VIOLATED = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT")
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True)
class Deleted(Result):
    """What a run has erased from one table, by now."""

    versions: tuple[int, ...] = ()
    """Its commits, ascending; none where no row was there to erase."""
    rows: int = 0
    files: int = 0
    """That lost rows."""


def erase_table(
    spark: SparkSession,
    table: PersonalTable,
    caught: DataFrame,
    *,
    run: str,
    requests: Sequence[str],
    since: int,
    marker: MarkKeys,
    person: int = 0,
) -> Deleted:
    """Delete or empty the rows of ``caught`` (``Resolution.caught``: after ``request`` the columns that tell a row), in one
    commit. ``person``: the place among the ``people`` of the table.

    ``marker``: proves that the commit is the run's. ``since``: the version at which they were caught. Commits of the run
    after it count as this call's own: it may be called again after a crash. Raises ConfigError with all ``problems`` before
    anything is written; SourceUnavailable where other writers were faster each time.
    """
    if problems := inspect_table(spark, table):
        raise ConfigError(
            "; ".join(problems), hint="`deltarelay erase plan` names all of them beforehand", problems=problems
        )
    feed = ChangeFeed(spark, table.table)
    names = caught.columns[1:]
    keys = caught.toDF("request", *map(_key, range(len(names)))).drop("request").distinct().persist()
    try:
        one = table.people[person]
        if not _doomed(feed, one, names, keys).isEmpty():

            def metadata() -> str:
                return erasing_metadata(run, requests, person, make_proof(marker, run, table.table, person))

            _retried(feed, lambda: _merge(feed, one, names, keys, metadata()))
            if not erased_versions(spark, table.table, run, since=since, marker=marker, person=person):
                raise SourceError(
                    f"the commit that erased from {table.table} is not in its log",
                    hint="another writer has put its own in its place; see `storage.commits`, then run again",
                )
    finally:
        keys.unpersist()
    return _told(feed, erased_versions(spark, table.table, run, since=since, marker=marker, person=person))


def erased_versions(
    spark: SparkSession, table: str, run: str, *, since: int, marker: MarkKeys, person: int = 0
) -> tuple[int, ...]:
    """The commits after ``since`` by which the run erased for one of the ``people`` of the table. Not those that only say
    so: what they changed would be kept nowhere as it was, and be forgotten in every copy."""
    log = ChangeFeed(spark, table).log
    first: dict[str, int] = {}
    for one in log.commits(since + 1, log.latest()):
        if (erasing_run(one.user_metadata), erased_person(one.user_metadata)) == (run, person):
            proof = proven(marker, one.user_metadata, table)
            if proof is None or first.setdefault(proof, one.version) != one.version:
                details = {"table": table, "version": one.version, "run": run}
                logger.error("a commit says that it is of an erasure, and is not", extra=details)
    return tuple(sorted(first.values()))


def erased_keys(spark: SparkSession, table: str, versions: Sequence[int], key: Sequence[str]) -> DataFrame:
    """The distinct keys of the rows that these commits erased, as the rows had them before."""
    from pyspark.sql import functions as F

    feed = ChangeFeed(spark, table)
    columns = [F.col(quoted(name)) for name in key]
    if not versions:
        return feed.snapshot().select(*columns).limit(0)
    erased = (
        read_range(feed, version, version).where(F.col(CHANGE_TYPE).isin(DELETE, UPDATE_PREIMAGE)).select(*columns)
        for version in versions
    )
    return functools.reduce(lambda one, other: one.unionAll(other), erased).distinct()


# ── one MERGE ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _key(place: int) -> str:
    return f"_{place}"


def _same(names: Sequence[str]) -> Column:
    """An equation for each column, so that Spark joins by hash; null is equal to null: a row is told by all of them."""
    from pyspark.sql import functions as F

    pairs = [
        F.col(f"held.{quoted(name)}").eqNullSafe(F.col(f"doomed.{_key(place)}")) for place, name in enumerate(names)
    ]
    return functools.reduce(lambda one, other: one & other, pairs)


def _filled(table: PersonalTable) -> Column | None:
    """Whether there is anything to empty; None where rows go as a whole."""
    from pyspark.sql import functions as F

    if table.on_erase == "delete":
        return None
    return functools.reduce(
        lambda one, other: one | other, (F.col(f"held.{quoted(name)}").isNotNull() for name in table.personal)
    )


def _doomed(feed: ChangeFeed, table: PersonalTable, names: Sequence[str], keys: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    rows = feed.snapshot().alias("held")
    if (filled := _filled(table)) is not None:
        rows = rows.where(filled)
    return rows.join(keys.alias("doomed"), _same(names), "left_semi").select(F.lit(1))


def _merge(feed: ChangeFeed, table: PersonalTable, names: Sequence[str], keys: DataFrame, metadata: str) -> None:
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    # Statements take it from their session alone; in one that others use it would be everybody's
    session = feed.spark.newSession()
    session.conf.set(_USER_METADATA, metadata)
    merge = DeltaTable.forPath(session, feed.location).alias("held").merge(keys.alias("doomed"), _same(names))
    if (filled := _filled(table)) is None:
        merge.whenMatchedDelete().execute()
    else:
        merge.whenMatchedUpdate(filled, {quoted(name): F.lit(None) for name in table.personal}).execute()


def _retried(feed: ChangeFeed, work: Callable[[], None]) -> None:
    """Delta refuses a commit where another one came first and touched the same files; nothing was written then."""
    for attempt in range(_TRIES):
        try:
            return work()
        except CdfError:
            raise
        except Exception as error:
            condition = condition_of(error) or ""
            if condition.startswith(_VIOLATED):
                # Without its cause, which shows the row
                raise ConfigError(
                    f"{feed.table} has a constraint that refuses the emptied row",
                    hint="let the constraint allow NULL in the columns of `personal`",
                    condition=condition,
                ) from None
            if not condition.startswith(_CONFLICTS):
                raise SourceError(
                    f"nothing could be erased from {feed.table}" + (f" ({condition})" if condition else ""),
                    hint="the cause stands in Spark's log",
                    condition=condition or None,
                ) from error
            failure = error
        time.sleep(_PAUSE * 2**attempt)
    raise SourceUnavailable(
        f"other writers of {feed.table} were faster each of {_TRIES} times: nothing was erased from it",
        hint="run again when less is written",
        condition=condition_of(failure),
    ) from failure


def _told(feed: ChangeFeed, versions: Sequence[int]) -> Deleted:
    from delta.tables import DeltaTable

    if not versions:
        return Deleted()
    history = DeltaTable.forPath(feed.spark, feed.location).history(feed.log.latest() - versions[0] + 1)
    rows = files = 0
    for commit in history.select("version", "operationMetrics").collect():
        if commit["version"] in versions:
            told = {name: int(value) for name, value in (commit["operationMetrics"] or {}).items() if value.isdigit()}
            rows += told.get("numTargetRowsDeleted", 0) + told.get("numTargetRowsUpdated", 0)
            files += told.get("numTargetFilesRemoved", 0) + told.get("numTargetDeletionVectorsAdded", 0)
    return Deleted(tuple(versions), rows, files)
