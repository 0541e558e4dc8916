"""What the tests of the feed share: a Delta table written with Spark's own statements, and ways to look at its changes."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = ["AGES", "Table", "changes", "drained", "inserted", "setting", "versions"]

AGES = {"deletedFileRetentionDuration": "interval 36500 days", "logRetentionDuration": "interval 36500 days"}
"""Lets commits have any time in the past."""


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of the session for the length of a block. The product's own ``setting`` keeps other threads waiting
    meanwhile, a follower among them."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


class Table:
    """A Delta table at a path; version 0 creates it. Properties are Delta's own, written without their ``delta.``."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        columns: str = "id long, v string",
        *,
        feed: bool = True,
        **properties: str,
    ) -> None:
        self.spark, self.path = spark, path
        self.log = Path(path, "_delta_log")
        if feed:
            properties["enableChangeDataFeed"] = "true"
        clause = f" tblproperties ({_listed(properties)})" if properties else ""
        self.sql(f"create table {{t}} ({columns}) using delta{clause}")

    @classmethod
    def at(cls, spark: SparkSession, path: str | Path) -> Table:
        """One that is there already."""
        table = cls.__new__(cls)
        table.spark, table.path, table.log = spark, str(path), Path(path, "_delta_log")
        return table

    def copy(self, to: str | Path) -> Table:
        """Independent of this one: a log names its files relatively, and takes the times of commits from its own files.

        ``to`` must be a new path: Delta keeps in memory what it has read of a path's log."""
        shutil.copytree(self.path, to)
        return Table.at(self.spark, to)

    def sql(self, *statements: str) -> None:
        """Each statement is a commit; ``{t}`` stands for the table."""
        for statement in statements:
            self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))

    def set(self, **properties: str) -> None:
        self.sql(f"alter table {{t}} set tblproperties ({_listed(properties)})")

    def commit_file(self, version: int) -> Path:
        return self.log / f"{version:020d}.json"

    def lose_commit(self, *versions: int) -> None:
        for version in versions:
            self.commit_file(version).unlink()
        self.forget()

    def date(self, times: Mapping[int, dt.datetime]) -> None:
        """Commits get these times: Delta takes them from the commit files."""
        for version, time in times.items():
            os.utime(self.commit_file(version), (time.timestamp(), time.timestamp()))
        self.forget()

    def forget(self) -> None:
        """What another process would see: Delta keeps what it has read of a log."""
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def raw_feed(self, **options: Any) -> DataFrame:
        """Delta's own reader, without us."""
        return self.spark.read.format("delta").option("readChangeFeed", "true").options(**options).load(self.path)


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())


def inserted(spark: SparkSession, path: str, commits: int, **properties: str) -> Table:
    """Versions 1, 2, … insert the row with that id."""
    table = Table(spark, path, **properties)
    table.sql(*(f"insert into {{t}} values ({version}, 'a')" for version in range(1, commits + 1)))
    return table


def versions(changes: DataFrame) -> list[int]:
    """The commit version of each change, ascending."""
    return sorted(row["_commit_version"] for row in changes.select("_commit_version").collect())


def changes(feed: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """(version, change type, columns …) of each change, in order."""
    rows = feed.select("_commit_version", "_change_type", *columns).collect()
    return sorted((tuple(row) for row in rows), key=lambda row: tuple(map(repr, row)))


def drained(stream: DataFrame, checkpoint: Path) -> list[list[dict[str, Any]]]:
    """What a query over everything that is there now delivers, micro-batch by micro-batch."""
    batches: list[list[dict[str, Any]]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.append([row.asDict() for row in batch.collect()])

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return batches
