"""What was erased removed from storage, in the only order that removes all of it::

    REORG … PURGE      rows that a deletion vector only hides, columns that the table has dropped: files written anew
    checkpoint         of a commit behind all that: Delta cleans its log up to a checkpoint that is itself old enough, and
                       a quiet table writes none
    VACUUM             former files, change files, files of no commit; full, once their retention is over
    log clean-up       entries with statistics and predicates, once the log's retention is over; where no retention is waited
                       for, ahead of VACUUM, whose commits no sink has read

Each step is looked for before it is taken, so a purge can be called again at any time, after a crash too.
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
from cdf.errors import CdfError
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["purge_table"]

_PURGE = "deltarelay_purge"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_MARK = "deltarelay.purged"
"""A property whose setting is the newer commit where a table is quiet."""


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
    """As far as ``now`` allows. ``versions``: the erasing commits. ``positions``: of the sinks of this table, by pipeline.
    ``personal``: the columns whose values may name somebody; None: any of them. ``once_more``: after all of it
    something was found.

    ``immediately``: without waiting for any retention. Whoever still reads an older version of the table (a running query,
    a feed that lags behind, time travel, a shallow clone) fails from then on. Raises SinkBehind where a sink has not read
    the erasing commits: VACUUM takes the change files away that it needs.
    """
    feed = ChangeFeed(spark, table)
    behind = sorted(name for name, stands in positions.items() if stands < max(versions))
    if behind:
        raise SinkBehind(
            f"the changes of {table} have not been read yet, and purging would take them away: {', '.join(behind)}",
            hint="let the pipelines run (`deltarelay run`), then go on",
            behind=behind,
        )
    last = _rewritten(spark, feed, versions, once_more)
    base = _based(spark, feed, last)
    times, properties = feed.log.times(), feed.log.metadata().properties
    # Of an entry that is cleaned already the oldest one that is there came later
    oldest = min(times.values())
    files_on = purge_schedule(properties, times.get(last, oldest)).files_on
    log_on = purge_schedule(properties, times.get(base, oldest)).log_on
    if now < files_on and not immediately:
        return PurgeResult(waits_until=files_on, waits_for="the retention of deleted files")
    named = feed.partition_columns()
    if personal is not None:
        named = tuple(name for name in named if name.lower() in {one.lower() for one in personal})
    if now >= files_on and named:
        # The one from before still names the folders of deleted files. Ahead of VACUUM's commits, which no sink has read yet
        feed.log.checkpoint()
    if immediately:  # ahead of VACUUM's commits: with a checkpoint of those no sink would ever have read enough
        entries = _clean_log(feed, last, positions, immediately)
        done = {**_vacuum(spark, feed, immediately), "folders": _empty_folders(feed.location), "log entries": entries}
    else:
        done = {**_vacuum(spark, feed, immediately), "folders": _empty_folders(feed.location)}
        if now < log_on:
            return PurgeResult(done, waits_until=log_on, waits_for="the retention of the log")
        done["log entries"] = _clean_log(feed, last, positions, immediately)
    if now < files_on and named:
        return PurgeResult(
            done, waits_until=files_on, waits_for="the table's checkpoint, which names the folders of deleted files"
        )
    return PurgeResult(done)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rewritten(spark: SparkSession, feed: ChangeFeed, versions: Sequence[int], once_more: bool) -> int:
    """Let no file of the table hide a row; → the last commit that took files out for that, or that erased.

    Once is enough: what later commits hide is nobody's who is erased here, and each further commit of ours would put off the
    day on which former files go.
    """
    mark = f"{_PURGE} {max(versions)}"

    def found() -> int:
        first = max(max(versions) + 1, feed.log.listing().earliest)
        commits = feed.log.commits(first, feed.log.latest())
        ours = [one.version for one in commits if mark in (one.user_metadata or "")]
        return max([*versions, *ours])

    if (last := found()) > max(versions) and not once_more:
        return last
    session = spark.newSession()
    session.conf.set(_METADATA, json.dumps({"purpose": mark}))
    session.sql(f"reorg table {_sql(feed.location)} apply (purge)").collect()
    return found()


def _vacuum(spark: SparkSession, feed: ChangeFeed, immediately: bool) -> dict[str, int]:
    """→ how many files are gone, where that can be seen. The table's own property decides about their age: Delta ignores any
    other but 0."""
    session = spark.newSession()
    session.conf.set(_METADATA, json.dumps({"purpose": _PURGE}))
    if immediately:
        session.conf.set(_CHECK, "false")
    folder = _local(feed.location)
    before = _files(folder)
    session.sql(f"vacuum {_sql(feed.location)}{' retain 0 hours' if immediately else ''}").collect()
    return {} if folder is None else {"files": max(0, before - _files(folder))}


def _files(folder: Path | None) -> int:
    if folder is None:
        return 0
    return sum(
        1 for one in folder.rglob("*") if one.is_file() and "_delta_log" not in one.parts and one.suffix == ".parquet"
    )


def _empty_folders(location: str) -> int:
    """Folders of partitions without a file: their names are values."""
    folder, gone = _local(location), 0
    if folder is None:
        return 0
    for one in sorted(folder.rglob("*=*"), key=lambda path: -len(path.parts)):
        if one.is_dir() and "_delta_log" not in one.parts and not any(one.iterdir()):
            one.rmdir()
            gone += 1
    return gone


# ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _based(spark: SparkSession, feed: ChangeFeed, last: int) -> int:
    """The first checkpoint of a later version than ``last``; made where there is none."""
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
    """Remove all entries up to ``last``; → how many are gone. Raises CdfError where some are still there afterwards, and
    SinkBehind where a sink would lose entries that it has not read: all before the newest checkpoint may go."""
    before = feed.log.listing().earliest
    newest = max(feed.log.listing().checkpoints)
    behind = sorted(name for name, stands in positions.items() if stands < newest - 1)
    if immediately and behind:
        raise SinkBehind(
            f"the log of {feed.table} has not been read up to its newest checkpoint, {newest}: {', '.join(behind)}",
            hint="let the pipelines run (`deltarelay run`), then go on",
            behind=behind,
        )
    feed.log.clean_up(at_once=immediately)
    _remove_left(feed.location, last)
    if (after := feed.log.listing().earliest) <= last:
        raise CdfError(
            f"the log of {feed.table} still has its entries from version {after} on after its clean-up",
            hint="another writer's checkpoints may be in the way: run again, and see who keeps its log",
        )
    return after - before


def _remove_left(location: str, last: int) -> None:
    """Compacted entries, which Delta's clean-up passes over, and copies that a lock's writer has left."""
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
    return "delta.`" + location.replace("`", "``") + "`"


def _local(location: str) -> Path | None:
    path = location.removeprefix("file://").removeprefix("file:")
    return None if "://" in path else Path(path)
