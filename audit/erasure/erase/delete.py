"""Makes the erasing commits: a MERGE against keys that are data, so that the table's log contains no value.

The log would contain the predicate of a DELETE in plain text. Here it contains ``held.email <=> doomed._0``, and the run. A
repeated call finds no row and commits nothing.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.erasure.commit_marker import erased_person, erasing_metadata, erasing_run, make_proof, proven
from audit.erasure.find.table_checks import inspect_table
from audit.erasure.model import PersonalTable
from cdf.changes.columns import CHANGE_TYPE, DELETE, UPDATE_PREIMAGE, quote_name, quoted
from cdf.errors import CdfError, ConfigError, SourceError, SourceUnavailable, condition_of
from cdf.result import Result
from cdf.source.batch_reader import read_range
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from audit.erasure.register.secrets import MarkKeys

__all__ = ["Deleted", "erase_table", "erased_keys", "erased_versions"]

logger = logging.getLogger("deltarelay.erasure")

_TRIES = 5
_PAUSE = 0.5
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_VIOLATED = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT")
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True)
class Deleted(Result):
    """What a run has erased from one table so far."""

    versions: tuple[int, ...] = ()
    """Its commits, ascending; empty where there was no row to erase."""
    rows: int = 0
    files: int = 0
    """Files that lost rows."""


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
    """Delete or empty the rows of ``caught`` (``Resolution.caught``: after ``request``, the columns by which rows are
    matched) in one commit. ``person``: the place among the ``people`` of the table.

    ``marker``: proves that the run made the commit. ``since``: the version at which the rows were resolved. Later commits of
    the run count as made by this call, so it may be repeated after a crash. Raises ConfigError with all ``problems`` before
    any write; SourceUnavailable where other writers were faster each time.
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
        # The rows that were resolved are still there if nothing was committed since, and whole rows are deleted
        is_certain = one.on_erase == "delete" and feed.log.latest() == since
        if not (keys if is_certain else _rows_to_erase(feed, one, names, keys)).isEmpty():

            def metadata() -> str:
                return erasing_metadata(run, requests, person, make_proof(marker, run, table.table, person))

            _retry(feed, lambda: _merge(feed, one, names, keys, metadata()))
            if not erased_versions(spark, table.table, run, since=since, marker=marker, person=person):
                raise SourceError(
                    f"the commit that erased from {table.table} is not in its log",
                    hint="another writer has replaced it; see `storage.commits`, then run again",
                )
    finally:
        keys.unpersist()
    return _count_deleted(feed, erased_versions(spark, table.table, run, since=since, marker=marker, person=person))


def erased_versions(
    spark: SparkSession, table: str, run: str, *, since: int, marker: MarkKeys, person: int = 0
) -> tuple[int, ...]:
    """Return the commits after ``since`` by which the run erased for one of the ``people`` of the table. Commits without a
    proof are left out: otherwise any writer could make every copy remove what its commit changed."""
    log = ChangeFeed(spark, table).log
    first: dict[str, int] = {}
    for one in log.commits(since + 1, log.latest()):
        if (erasing_run(one.user_metadata), erased_person(one.user_metadata)) == (run, person):
            proof = proven(marker, one.user_metadata, table)
            if proof is None or first.setdefault(proof, one.version) != one.version:
                details = {"table": table, "version": one.version, "run": run}
                logger.error("a commit is marked as an erasing commit without a valid proof", extra=details)
    return tuple(sorted(first.values()))


def erased_keys(spark: SparkSession, table: str, versions: Sequence[int], key: Sequence[str]) -> DataFrame:
    """Return the distinct keys of the rows that these commits erased, as they were before."""
    from pyspark.sql import functions as F

    feed = ChangeFeed(spark, table)
    columns = [quoted(name) for name in key]
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
    """Compare each column separately, so that Spark can use a hash join. NULL equals NULL: a row is matched by all
    columns."""
    from pyspark.sql import functions as F

    pairs = [
        F.col(f"held.{quote_name(name)}").eqNullSafe(F.col(f"doomed.{_key(place)}")) for place, name in enumerate(names)
    ]
    return functools.reduce(lambda one, other: one & other, pairs)


def _has_values(table: PersonalTable) -> Column | None:
    """Return whether a row has values to empty; None where whole rows are deleted."""
    from pyspark.sql import functions as F

    if table.on_erase == "delete":
        return None
    return functools.reduce(
        lambda one, other: one | other, (F.col(f"held.{quote_name(name)}").isNotNull() for name in table.personal)
    )


def _rows_to_erase(feed: ChangeFeed, table: PersonalTable, names: Sequence[str], keys: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    rows = feed.snapshot().alias("held")
    if (has_values := _has_values(table)) is not None:
        rows = rows.where(has_values)
    return rows.join(keys.alias("doomed"), _same(names), "left_semi").select(F.lit(1))


def _merge(feed: ChangeFeed, table: PersonalTable, names: Sequence[str], keys: DataFrame, metadata: str) -> None:
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    # Delta reads it from the session, and in a shared session it would apply to all commits
    session = feed.spark.newSession()
    session.conf.set(_USER_METADATA, metadata)
    merge = DeltaTable.forPath(session, feed.location).alias("held").merge(keys.alias("doomed"), _same(names))
    if (has_values := _has_values(table)) is None:
        merge.whenMatchedDelete().execute()
    else:
        merge.whenMatchedUpdate(has_values, {quote_name(name): F.lit(None) for name in table.personal}).execute()


def _retry(feed: ChangeFeed, work: Callable[[], None]) -> None:
    """Retry a commit that Delta refused because another one changed the same files first. Nothing was written then."""
    for attempt in range(_TRIES):
        try:
            return work()
        except CdfError:
            raise
        except Exception as error:
            condition = condition_of(error) or ""
            if condition.startswith(_VIOLATED):
                # Without its cause, which contains the row
                raise ConfigError(
                    f"{feed.table} has a constraint that refuses the emptied row",
                    hint="let the constraint allow NULL in the columns of `personal`",
                    condition=condition,
                ) from None
            if not condition.startswith(_CONFLICTS):
                raise SourceError(
                    f"nothing could be erased from {feed.table}" + (f" ({condition})" if condition else ""),
                    hint="Spark's log has the cause",
                    condition=condition or None,
                ) from error
            failure = error
        time.sleep(_PAUSE * 2**attempt)
    raise SourceUnavailable(
        f"other writers of {feed.table} committed first in all {_TRIES} attempts: nothing was erased from it",
        hint="run again when fewer writers are active",
        condition=condition_of(failure),
    ) from failure


def _count_deleted(feed: ChangeFeed, versions: Sequence[int]) -> Deleted:
    from delta.tables import DeltaTable

    if not versions:
        return Deleted()
    history = DeltaTable.forPath(feed.spark, feed.location).history(feed.log.latest() - versions[0] + 1)
    rows = files = 0
    for commit in history.select("version", "operationMetrics").collect():
        if commit["version"] in versions:
            metrics = {
                name: int(value) for name, value in (commit["operationMetrics"] or {}).items() if value.isdigit()
            }
            rows += metrics.get("numTargetRowsDeleted", 0) + metrics.get("numTargetRowsUpdated", 0)
            files += metrics.get("numTargetFilesRemoved", 0) + metrics.get("numTargetDeletionVectorsAdded", 0)
    return Deleted(tuple(versions), rows, files)
