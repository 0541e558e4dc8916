"""``audit optimize``: few files, with the values of one record close together.

Each window leaves files with keys from the whole table, so the history of one record would read nearly every file. After the
files are rewritten in the order of the key, Delta's statistics lead to one or two of them. Rows and hashes do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from audit.trail.column_history import Column
from audit.trail.tables import EVENTS, PAYLOAD, TABLES, TrailTables, quote_row_column
from cdf.result import Result
from cdf.session import require_classic

__all__ = ["Compaction", "compact_files"]

FILE_BYTES = 32 * 1024 * 1024
"""Maximum size of a file of payload or events. Reading one record costs about one file."""
_OPTIMIZE = "spark.databricks.delta.optimize"


@dataclass(frozen=True, slots=True)
class Compaction(Result):
    """Number of files of each table, before and after. The old files stay until a VACUUM."""

    trail: str
    before: dict[str, int]
    after: dict[str, int]


def compact_files(
    tables: TrailTables,
    columns: Sequence[Column],
    key: Sequence[str],
    *,
    file_bytes: int = FILE_BYTES,
    progress: Callable[[str], None] | None = None,
) -> Compaction:
    """Rewrite the files: those of the payload in the order of ``key``, those of the events in the order of versions.

    A runner may write meanwhile, because rows are only moved. If the call is interrupted, tables that are not finished stay
    as they were.
    """
    from delta.tables import DeltaTable

    require_classic(tables.spark, f"the compaction of the trail at {tables.path}")
    session = tables.spark.newSession()
    session.conf.set(f"{_OPTIMIZE}.maxFileSize", str(file_bytes))
    # A key column may have no statistics: a search by it becomes no faster, a search by the others does
    session.conf.set(f"{_OPTIMIZE}.zorder.checkStatsCollection.enabled", "false")
    key_fields = [column.stored for column in columns if column.live and column.name in key]
    order = {PAYLOAD: [quote_row_column(name) for name in key_fields], EVENTS: ["version"]}
    before, after = {}, {}
    for name in TABLES:
        if progress is not None:
            progress(name)
        before[name] = _count_files(tables, name)
        if by := order.get(name):
            DeltaTable.forPath(session, tables.location(name)).optimize().executeZOrderBy(by)
        else:
            DeltaTable.forPath(tables.spark, tables.location(name)).optimize().executeCompaction()
        after[name] = _count_files(tables, name)
    return Compaction(tables.path, before, after)


def _count_files(tables: TrailTables, name: str) -> int:
    detail: Any = tables.spark.sql(f"describe detail delta.`{tables.location(name)}`").select("numFiles").collect()
    return int(detail[0][0])
