"""The erasure component of the PostgreSQL sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from audit.erasure.sink_contract import SinkErasure
from connectors.postgres.erasure.erase import erase
from connectors.postgres.erasure.purge import purge
from connectors.postgres.erasure.retained_rows import retained_rows
from connectors.postgres.erasure.scan import scan
from connectors.postgres.erasure.target import ErasureTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.erasure.scan.results import ScanResult
    from audit.erasure.scan.search_terms import SearchTerms
    from audit.erasure.sink_contract import ErasureTask, PurgeResult
    from cdf.source.table import ChangeFeed
    from connectors.postgres.client import Session
    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.options import Deletes

__all__ = ["PostgresErasure"]


class PostgresErasure(SinkErasure):
    def __init__(self, session: Session, columns: Columns, deletes: Deletes, *, close_sink: Callable[[], None]) -> None:
        """``close_sink``: releases the lease that the sink may hold; ``erase`` acquires its own."""
        self._target = ErasureTarget(session, columns, deletes)
        self._close_sink = close_sink

    def erase(self, task: ErasureTask) -> Mapping[str, int]:
        self._close_sink()
        return erase(self._target, task)

    def purge(self, task: ErasureTask, *, now: dt.datetime) -> PurgeResult:
        return purge(self._target, task.search_terms, now=now)

    def scan(self, terms: SearchTerms) -> ScanResult:
        return scan(self._target, terms)

    def retained_rows(self, source: ChangeFeed, columns: Collection[str]) -> Iterator[DataFrame]:
        return retained_rows(self._target, source, columns)
