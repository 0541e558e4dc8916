"""Removes erased data from storage, in the only order that removes all of it::

    REORG … PURGE      rewrites files with rows that a deletion vector hides, or with dropped columns; left out where the
                       table's protocol allows neither
    checkpoint         of a later commit: Delta cleans its log up to a checkpoint that is old enough, and a table without
                       writes makes none
    VACUUM             former files, change files, files of no commit; full, when their retention is over
    log clean-up       entries with statistics and predicates, when the log's retention is over; an immediate purge does it
                       before VACUUM, whose commits no sink has read

Each step checks whether it is already done, so a purge can be repeated at any time, also after a crash.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from audit.erasure.errors import SinkBehind
from audit.erasure.retention import purge_schedule
from audit.erasure.sink_contract import PurgeResult
from cdf.changes.columns import quote_name
from cdf.changes.commits import Protocol
from cdf.errors import CdfError
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["purge_table"]

_PURGE = "deltarelay_purge"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_HIDING = {"deletionVectors", "columnMapping"}
"""Table features with which current files hold values that no row shows: deleted rows, and dropped columns."""
_MARK = "deltarelay.purged"
"""Setting this property makes the later commit in a table without writes."""


def purge_table(
    spark: SparkSession,
    table: str,
    *,
    versions: Sequence[int],
    positions: Mapping[str, int],
    now: dt.datetime,
    immediately: bool = False,
    personal: Collection[str] | None = None,
    once_more: bool = False,
) -> PurgeResult:
    """Purge as far as ``now`` allows. ``versions``: the erasing commits. ``positions``: of the sinks of this table, by
    pipeline. ``personal``: the columns whose values may identify a person; None: any column. ``once_more``: repeat the
    rewrite, because something was found after it.

    ``immediately``: do not wait for any retention. Readers of older versions of the table (a running query, a feed that lags
    behind, time travel, a shallow clone) fail from then on. Raises SinkBehind where a sink has not read the erasing commits:
    VACUUM removes the change files that it needs.
    """
    feed = ChangeFeed(spark, table)
    behind = sorted(name for name, position in positions.items() if position < max(versions))
    if behind:
        raise SinkBehind(
            f"the changes of {table} have not been read yet, and purging would remove them: {', '.join(behind)}",
            hint="run the pipelines (`deltarelay run`), then repeat the command",
            behind=behind,
        )
    last = _rewrite_files(spark, feed, versions, once_more)
    base = _ensure_checkpoint(spark, feed, last)
    times, properties = feed.log.times(), feed.log.metadata().properties
    # An entry that is already cleaned up is older than the oldest entry left
    oldest = min(times.values())
    files_on = purge_schedule(properties, times.get(last, oldest)).files_on
    log_on = purge_schedule(properties, times.get(base, oldest)).log_on
    if now < files_on and not immediately:
        return PurgeResult(waits_until=files_on, waits_for="the retention of deleted files")
    partitions = feed.partition_columns()
    if personal is not None:
        partitions = tuple(name for name in partitions if name.lower() in {one.lower() for one in personal})
    if now >= files_on and partitions:
        # The former one still names folders of deleted files. It is made before VACUUM's commits, which no sink has read
        feed.log.checkpoint()
    if immediately:  # before VACUUM's commits: no sink would have read up to a checkpoint of these
        entries = _clean_log(feed, last, positions, immediately)
        done = {
            **_vacuum(spark, feed, immediately),
            "folders": _remove_empty_folders(feed.location),
            "log entries": entries,
        }
    else:
        done = {**_vacuum(spark, feed, immediately), "folders": _remove_empty_folders(feed.location)}
        if now < log_on:
            return PurgeResult(done, waits_until=log_on, waits_for="the retention of the log")
        done["log entries"] = _clean_log(feed, last, positions, immediately)
    if now < files_on and partitions:
        return PurgeResult(
            done, waits_until=files_on, waits_for="the table's checkpoint, which names the folders of deleted files"
        )
    return PurgeResult(done)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rewrite_files(spark: SparkSession, feed: ChangeFeed, versions: Sequence[int], once_more: bool) -> int:
    """Rewrite files with hidden rows. Return the last commit that removed files for that, or that erased.

    Once is enough: rows that later commits hide do not belong to this erasure, and each further commit would postpone the
    day on which former files are removed.
    """
    mark = f"{_PURGE} {max(versions)}"

    def last_rewrite() -> int:
        first = max(max(versions) + 1, feed.log.listing().earliest)
        commits = feed.log.commits(first, feed.log.latest())
        ours = [one.version for one in commits if mark in (one.user_metadata or "")]
        return max([*versions, *ours])

    # What a writer has left against the protocol is found by the scan, and then the rewrite is not left out
    if not once_more and ((last := last_rewrite()) > max(versions) or not _may_hide_values(feed.log.protocol())):
        return last
    session = spark.newSession()
    session.conf.set(_METADATA, json.dumps({"purpose": mark}))
    session.sql(f"reorg table {_sql(feed.location)} apply (purge)").collect()
    return last_rewrite()


def _may_hide_values(protocol: Protocol) -> bool:
    """Reader version 2 has column mapping without naming it."""
    return protocol.min_reader == 2 or not _HIDING.isdisjoint(protocol.reader_features)


def _vacuum(spark: SparkSession, feed: ChangeFeed, immediately: bool) -> dict[str, int]:
    """Return the number of removed files, where it is known. The table's property determines the age of files to remove:
    Delta ignores any retention but 0."""
    session = spark.newSession()
    session.conf.set(_METADATA, json.dumps({"purpose": _PURGE}))
    if immediately:
        session.conf.set(_CHECK, "false")
    folder = _local(feed.location)
    before = _count_files(folder)
    session.sql(f"vacuum {_sql(feed.location)}{' retain 0 hours' if immediately else ''}").collect()
    return {} if folder is None else {"files": max(0, before - _count_files(folder))}


def _count_files(folder: Path | None) -> int:
    if folder is None:
        return 0
    return sum(
        1 for one in folder.rglob("*") if one.is_file() and "_delta_log" not in one.parts and one.suffix == ".parquet"
    )


def _remove_empty_folders(location: str) -> int:
    """Remove folders of partitions without a file, whose names are values. Return their number."""
    folder, removed = _local(location), 0
    if folder is None:
        return 0
    for one in sorted(folder.rglob("*=*"), key=lambda path: -len(path.parts)):
        if one.is_dir() and "_delta_log" not in one.parts and not any(one.iterdir()):
            one.rmdir()
            removed += 1
    return removed


# ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _ensure_checkpoint(spark: SparkSession, feed: ChangeFeed, last: int) -> int:
    """Return the first checkpoint of a later version than ``last``; make one where there is none."""
    later = [version for version in feed.log.listing().checkpoints if version > last]
    if later:
        return min(later)
    if feed.log.latest() <= last:
        session = spark.newSession()
        session.conf.set(_METADATA, json.dumps({"purpose": _PURGE}))
        session.sql(f"alter table {_sql(feed.location)} set tblproperties ('{_MARK}' = '{last}')")
    feed.log.checkpoint()
    return feed.log.latest()


def _clean_log(feed: ChangeFeed, last: int, positions: Mapping[str, int], immediately: bool) -> int:
    """Remove all entries up to ``last``, and return their number. Raises CdfError where some remain, and SinkBehind where a
    sink would lose entries that it has not read: all entries before the newest checkpoint may be removed."""
    before = feed.log.listing().earliest
    newest = max(feed.log.listing().checkpoints)
    behind = sorted(name for name, position in positions.items() if position < newest - 1)
    if immediately and behind:
        raise SinkBehind(
            f"the log of {feed.table} has not been read up to its newest checkpoint, {newest}: {', '.join(behind)}",
            hint="run the pipelines (`deltarelay run`), then repeat the command",
            behind=behind,
        )
    feed.log.clean_up(at_once=immediately)
    _remove_leftovers(feed.location, last)
    if (after := feed.log.listing().earliest) <= last:
        raise CdfError(
            f"the log of {feed.table} still has its entries from version {after} on after its clean-up",
            hint="checkpoints of another writer may prevent it: run again, and check which settings retain the log",
        )
    return after - before


def _remove_leftovers(location: str, last: int) -> None:
    """Remove compacted entries, which Delta's clean-up does not remove, and temporary copies that a writer has left."""
    folder = _local(location)
    if folder is None:
        return
    for one in (folder / "_delta_log").glob("*.compacted.json"):
        if int(one.name.split(".")[1]) <= last:
            one.unlink(missing_ok=True)
    for one in (folder / "_delta_log" / ".tmp").glob("*"):
        version = one.name.partition(".")[0]
        if version.isdecimal() and int(version) <= last:
            one.unlink(missing_ok=True)


def _sql(location: str) -> str:
    return "delta." + quote_name(location)


def _local(location: str) -> Path | None:
    path = location.removeprefix("file://").removeprefix("file:")
    return None if "://" in path else Path(path)
