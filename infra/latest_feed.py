"""The feed of a table of which only the latest state is known, read by delta-rs: enough for a run that applies nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from cdf.changes.commits import Metadata
from cdf.source.log import TableLog
from cdf.source.log_readers import LatestVersion, LogFiles, TableStates
from cdf.source.table import ChangeFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.diagnostics.delta_table import SourceTable

__all__ = ["LatestFeed", "NeedsSpark"]

_READ_AT = dt.datetime.fromtimestamp(0, dt.UTC)
"""Used instead of the time of the latest commit file, which is not read: it only has to stay the same."""


class NeedsSpark(Exception):
    """Only a run with Spark can tell, or there is something to apply."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NeedsSpark


class _LatestFile(LogFiles):
    """The commit file of the latest version exists, and none after it; whatever else is asked needs Spark."""

    few = 0

    def __init__(self, version: int) -> None:
        self._version = version

    def read_time(self, version: int) -> dt.datetime | None:
        if version < self._version:
            raise NeedsSpark
        return _READ_AT if version == self._version else None

    list_log = read_text = read_texts = compute_sha256 = find_actions = _refuse


class _LatestState(TableStates):
    def __init__(self, table: SourceTable) -> None:
        self._table = table

    def read_latest(self) -> LatestVersion:
        table = self._table
        metadata = Metadata(table.table_id, table.schema, table.properties)
        return LatestVersion(table.version, _READ_AT, metadata, table.protocol)

    read_metadata = read_size_bytes = read_transaction = write_checkpoint = clean_up = _refuse


class _LatestLog(TableLog):
    def __init__(self, table: SourceTable) -> None:
        self._assemble(table.address, _LatestFile(table.version), _LatestState(table))


class LatestFeed(ChangeFeed):
    """``table``: the name of the source in the configuration. Reading rows, and any other version, raises NeedsSpark."""

    def __init__(self, table: str, latest: SourceTable) -> None:
        self.table = table
        self.location = latest.address
        self.log: TableLog = _LatestLog(latest)

    @property
    def spark(self) -> SparkSession:  # type: ignore[override]
        raise NeedsSpark

    @property
    def over_connect(self) -> bool:
        return False

    def check_session(self, executor_modules: Sequence[str] = ()) -> None:
        """There is no session whose settings could change rows."""
