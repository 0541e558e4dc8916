"""A window or a baseline as the trail writes it, and its rows as a payload."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audit.trail.column_history import SEALED
from audit.writing.payload import PayloadRows
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, INSERT
from cdf.changes.commits import Commit
from cdf.changes.window import Snapshot, Window
from cdf.session import is_connect
from cdf.sink import Bounds
from cdf.sink.guard import erasing_versions
from connectors.delta_audit.context import TrailContext

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from audit.trail.column_history import Column

__all__ = ["UNKNOWN_TIME", "TrailWindow", "build_payload", "confirm_read"]

UNKNOWN_TIME = dt.datetime.min.replace(tzinfo=dt.UTC)
"""Commit time of a baseline whose commit is not in the source's log any more."""
_WITHOUT_UPDATES = ("WRITE", "DELETE", "STREAMING UPDATE", "TRUNCATE", "RESTORE")
_BYTES_PER_PARTITION = 32 * 1024 * 1024
_MAX_PARTITIONS = 200


@dataclass(frozen=True, slots=True)
class TrailWindow:
    bounds: Bounds
    is_baseline: bool
    """The rows are a snapshot of the table, from which the trail starts."""
    table_id: str
    rows: Window | Snapshot
    commits: Sequence[Commit]

    @property
    def has_rows(self) -> bool:
        return not isinstance(self.rows, Window) or self.rows.has_changes

    @property
    def partitions(self) -> int:
        return min(_MAX_PARTITIONS, 1 + getattr(self.rows, "change_bytes", 0) // _BYTES_PER_PARTITION)

    @property
    def change_files(self) -> int:
        return sum(commit.change_files for commit in self.commits)

    @property
    def about(self) -> Mapping[str, Any]:
        """What the commits of the trail's tables record about the window."""
        return {"first": self.bounds.first, "last": self.bounds.last}

    def is_small(self, limit_bytes: int) -> bool:
        return isinstance(self.rows, Window) and self.rows.change_bytes <= limit_bytes

    def build_condition(self) -> SparkColumn:
        """Return the condition for the rows of the window in the trail's tables."""
        from pyspark.sql import functions as F

        return F.col("version").between(self.bounds.first, self.bounds.last)

    def read_log_hashes(self) -> list[str | None]:
        """Return the SHA-256 of the source's commit file for each commit; None for a baseline."""
        if not isinstance(self.rows, Window):
            return [None]
        return [self.rows.commit_sha256(commit.version) for commit in self.commits]


def build_payload(
    context: TrailContext, window: TrailWindow, columns: tuple[Column, ...], *, encrypt: bool = True
) -> PayloadRows:
    """Return the rows of the window for these columns. ``encrypt=False``: without keys, to compare with written rows.

    Call ``confirm_read`` when they were read.
    """
    rows = window.rows
    if not isinstance(rows, Window):
        feed = _to_feed(rows)
    elif is_connect(context.spark):
        feed = rows.read()
    else:
        feed = _fix_plan(context.spark, rows.read(), rows)
        rows.confirm()  # the plan fixes the files that are read
    withheld = erasing_versions(window.commits)
    is_encrypted = any(column.live and column.name == SEALED for column in columns)
    encryption = context.encryption if is_encrypted else None
    if encryption is not None:
        feed = encryption.add_keys(feed, withheld) if encrypt else encryption.add_empty_keys(feed)
    return PayloadRows(
        feed,
        columns,
        rows.key,
        {commit.version: None if commit.timestamp is UNKNOWN_TIME else commit.timestamp for commit in window.commits},
        paired=isinstance(rows, Window) and not _is_without_updates(rows),
        baseline=window.is_baseline,
        few_files=0 < window.change_files < window.partitions,
        withheld=withheld,
        people=() if encryption is None else encryption.people,
    )


def confirm_read(context: TrailContext, window: TrailWindow) -> None:
    """Raise if the rows of ``build_payload`` may be incomplete. Over Spark Connect this is known only after they were read,
    because Delta lists the source's log then."""
    if isinstance(window.rows, Window) and is_connect(context.spark):
        window.rows.confirm()


def _fix_plan(spark: SparkSession, feed: DataFrame, window: Window) -> DataFrame:
    """Plan the query now: Spark plans a derived DataFrame again, and would list the Delta log again."""
    from pyspark.sql import DataFrame

    try:
        planned = feed._jdf.queryExecution()
        rows = spark._jsparkSession.internalCreateDataFrame(planned.toRdd(), feed._jdf.schema(), False)
    except Exception as error:
        raise window.failure(error) from error
    return DataFrame(rows, spark)


def _is_without_updates(window: Window) -> bool:
    """Return whether the log shows that no row was updated."""
    operations = [commit.operation for commit in window.commits if commit.change_files]
    return all(operation in _WITHOUT_UPDATES for operation in operations)


def _to_feed(snapshot: Snapshot) -> DataFrame:
    from pyspark.sql import functions as F

    return snapshot.read().select(
        "*",
        F.lit(INSERT).alias(CHANGE_TYPE),
        F.lit(snapshot.version).cast("long").alias(COMMIT_VERSION),
    )
