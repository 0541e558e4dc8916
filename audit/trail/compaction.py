"""A trail's files laid out for whoever asks: few of them, and the values of one record close together.

Each window leaves files with keys from all over the table: the history of one record would read nearly every one. Written
anew in the order of the key, Delta's statistics lead to one or two. The rows stay what they are, and so does every hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from audit.trail.column_history import Column
from audit.trail.tables import EVENTS, PAYLOAD, TABLES, TrailTables, quote_row_column
from cdf.result import Result

__all__ = ["Compaction", "compact_files"]

FILE_BYTES = 32 * 1024 * 1024
"""So large may a file of payload or events become: what one record costs is about one of them."""
_OPTIMIZE = "spark.databricks.delta.optimize"


@dataclass(frozen=True, slots=True)
class Compaction(Result):
    """How many files each table has, before and after. Those of before stay until a VACUUM."""

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
    """Write the files anew: the payload's in the order of ``key``, the events' in that of versions.

    Beside a runner as well: rows are only moved. A run that breaks off leaves what it has not finished as it was.
    """
    from delta.tables import DeltaTable

    ordered = tables.spark.newSession()
    ordered.conf.set(f"{_OPTIMIZE}.maxFileSize", str(file_bytes))
    # A key column may have no statistics: of these it is not found sooner, and the others still are
    ordered.conf.set(f"{_OPTIMIZE}.zorder.checkStatsCollection.enabled", "false")
    places = [column.stored for column in columns if column.live and column.name in key]
    order = {PAYLOAD: [quote_row_column(place) for place in places], EVENTS: ["version"]}
    before, after = {}, {}
    for name in TABLES:
        if progress is not None:
            progress(name)
        before[name] = _files(tables, name)
        if by := order.get(name):
            DeltaTable.forPath(ordered, tables.location(name)).optimize().executeZOrderBy(by)
        else:
            DeltaTable.forPath(tables.spark, tables.location(name)).optimize().executeCompaction()
        after[name] = _files(tables, name)
    return Compaction(tables.path, before, after)


def _files(tables: TrailTables, name: str) -> int:
    detail: Any = tables.spark.sql(f"describe detail delta.`{tables.location(name)}`").select("numFiles").collect()
    return int(detail[0][0])
