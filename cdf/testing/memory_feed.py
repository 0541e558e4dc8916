"""The change feed of a ``MemoryTable``: with it the real ``Pipeline`` runs without Spark.

    table = MemoryTable(StructType().add("id", "long").add("v", "string"))
    pipeline = Pipeline(MemoryFeed(table), YourSink(…), key="id")
    table.append({"id": 1, "v": "a"})
    pipeline.run()

For sinks that collect their rows (``Window.collect_net``, ``Snapshot.collect``); a sink that reads a DataFrame gets an error
that says so. Only the parts of ``ChangeFeed`` and ``TableLog`` that use Spark or files are replaced. ``run``, ``reload``,
``plan`` and replays of dead letters work; following and verifying need Spark.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cdf.changes.commits import Commit, Metadata, Protocol
from cdf.changes.in_memory import InMemorySnapshot, InMemoryWindow, arrow_table, feed_schema
from cdf.changes.window import Snapshot, Window
from cdf.errors import ConfigError, VersionNotFound
from cdf.source.commit import missing_commits, version_gone
from cdf.source.log import TableLog
from cdf.source.log_readers import LatestVersion, LogFiles, LogListing, TableStates
from cdf.source.table import ChangeFeed
from cdf.testing.memory_table import MemoryTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["MemoryFeed", "MemoryLog"]


class _MemoryFiles(LogFiles):
    """The commit files of a ``MemoryTable``."""

    few = 50

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def list_log(self) -> LogListing:
        table = self._table
        times = {version: table.time(version) for version in range(table.latest + 1) if version not in table.missing}
        return LogListing(times, frozenset(table.checkpoints))

    def read_time(self, version: int) -> dt.datetime | None:
        return self._table.time(version) if self._exists(version) else None

    def read_text(self, version: int) -> str:
        if not self._exists(version):
            raise missing_commits(self._table.name, [version])
        return self._table.commit_text(version)

    def compute_sha256(self, version: int) -> str:
        return hashlib.sha256(self.read_text(version).encode()).hexdigest()

    def find_actions(self, versions: list[int], kind: str, containing: str = "") -> list[tuple[int, Any]]:
        lines = ((version, line) for version in versions for line in self.read_text(version).split("\n"))
        begins = f'{{"{kind}"'
        return [
            (version, json.loads(line)[kind])
            for version, line in lines
            if line.startswith(begins) and containing in line
        ]

    def _exists(self, version: int) -> bool:
        return 0 <= version <= self._table.latest and version not in self._table.missing


class _MemorySnapshots(TableStates):
    """The states of a ``MemoryTable``."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def read_latest(self) -> LatestVersion:
        table = self._table
        return LatestVersion(table.latest, table.time(table.latest), table.metadata(), Protocol(1, 4))

    def read_metadata(self, version: int) -> Metadata:
        if version > self._table.latest or not self._table.rebuildable(version):
            raise version_gone(self._table.name, version)
        return self._table.metadata(version)

    def read_size_bytes(self, version: int) -> int:
        return self._table.bytes(version)

    def read_transaction(self, application: str) -> int | None:  # noqa: ARG002 — rows in memory are written without one
        return None

    def write_checkpoint(self) -> None:
        raise NotImplementedError("MemoryTable.checkpoint() writes one")

    def clean_up(self, *, at_once: bool) -> None:
        raise NotImplementedError("MemoryTable.expire_log() does it")


class MemoryLog(TableLog):
    """The log of a ``MemoryTable``: its commit files and states come from there, everything else from ``TableLog``."""

    def __init__(self, table: MemoryTable) -> None:
        self._assemble(table.name, _MemoryFiles(table), _MemorySnapshots(table))


class MemoryFeed(ChangeFeed):
    """The feed of a ``MemoryTable``."""

    def __init__(self, table: MemoryTable) -> None:
        self.table = self.location = table.name
        self.log: TableLog = MemoryLog(table)
        self._source = table

    @property
    def spark(self) -> SparkSession:  # type: ignore[override]
        raise ConfigError(
            f"{self.table} is a table in memory, and has no Spark session",
            hint="run, reload, plan and replay work without one; following and verifying need a ChangeFeed",
        )

    @property
    def over_connect(self) -> bool:
        return False

    def check_session(self, executor_modules: Sequence[str] = ()) -> None:
        """There is no session to check."""

    def partition_columns(self) -> tuple[str, ...]:
        return ()

    def snapshot(self, version: int | None = None) -> pa.Table:
        return self._rows(self.log.latest() if version is None else version)

    def window(self, commits: tuple[Commit, ...], schema: StructType, **fields: Any) -> Window:
        first, last = commits[0].version, commits[-1].version
        return InMemoryWindow(
            table=self.table,
            schema=schema,
            commits=commits,
            rows=lambda: self._changes(first, last, schema),
            **fields,
        )

    def keyed_snapshot(self, version: int, key: tuple[str, ...]) -> Snapshot:
        metadata = self.log.metadata(version)
        return InMemorySnapshot(
            table=self.table,
            table_id=metadata.table_id,
            schema=metadata.schema,
            key=key,
            version=version,
            rows=lambda: self._rows(version),
            timestamp=self.log.times().get(version),
        )

    def _rows(self, version: int) -> pa.Table:
        if not 0 <= version <= self._source.latest:
            raise VersionNotFound(f"{self.table} has no version {version}", latest=self._source.latest)
        if not self._source.rebuildable(version):
            raise version_gone(self.table, version)
        schema, rows = self._source.metadata(version).schema, self._source.rows(version)
        return arrow_table([[row[name] for name in schema.names] for row in rows], schema)

    def _changes(self, first: int, last: int, schema: StructType) -> pa.Table:
        values: list[Sequence[Any]] = []
        for version, change in self._source.changes(first, last):
            row = (change.row.get(name) for name in schema.names)
            values.append((*row, change.type, version, self._source.time(version)))
        return arrow_table(values, feed_schema(schema))
