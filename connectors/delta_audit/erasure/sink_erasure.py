"""The erasure component of the audit trail's sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from audit.encryption.decrypt import has_groups
from audit.erasure.erase.purge import purge_table
from audit.erasure.scan.delta_scan import scan_table
from audit.erasure.scan.files import LocalFiles
from audit.erasure.scan.results import ScanResult, unseen_location
from audit.erasure.sink_contract import PurgeResult, TrailErasure
from audit.reencryption.plaintext_rows import PlaintextRows, count_plaintext_rows
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD, read_commit_info
from cdf.result import plain
from connectors.delta_audit.erasure.erase import erase
from connectors.delta_audit.erasure.person_history import read_history
from connectors.delta_audit.erasure.stored_values import retained_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.encryption.encrypt import ColumnEncryption
    from audit.encryption.key_registry import Registry, States
    from audit.erasure.model import EncryptedColumns, ReachedState
    from audit.erasure.scan.files import Files
    from audit.erasure.scan.search_terms import SearchTerms
    from audit.erasure.sink_contract import ErasureTask
    from cdf.source.table import ChangeFeed
    from connectors.delta_audit.erasure.writable_trail import WritableTrail

__all__ = ["DeltaAuditErasure"]


class DeltaAuditErasure(TrailErasure):
    def __init__(
        self,
        sink: WritableTrail,
        *,
        errors: Callable[[str], AbstractContextManager[None]],
        files: Callable[[str], Files] | None,
        sealing: ColumnEncryption | None,
        registry: Callable[[], Registry] | None,
    ) -> None:
        """``errors``: translates errors of Spark; its argument says what was being done. ``files``: lists the files below an
        address, on local disk by default. ``sealing``: the classes of columns that are configured. ``registry``: of keys."""
        self.path = sink.path
        self._sink = sink
        self._errors = errors
        self._files: Callable[[str], Files] = files or LocalFiles
        self._sealing = sealing
        self._registry = registry

    def erase(self, task: ErasureTask) -> Mapping[str, int]:
        with self._errors("erasing in the trail"):
            return erase(self._sink, task)

    def purge(self, task: ErasureTask, *, now: dt.datetime) -> PurgeResult:
        """Remove the payload's files that held the values. No pipeline reads former versions of the payload, so only its own
        retention counts."""
        with self._errors("purging the trail"), self._sink.open_for(task.table, task.key, task.run):
            tables = self._sink.trail.tables
            log = tables.log(PAYLOAD)
            first, latest = log.listing().earliest, log.latest()
            # Commits that removed or encrypted values
            removals = [
                commit.version for commit in log.commits(first, latest) if "removal" in read_commit_info(commit)
            ]
            if not removals:
                return PurgeResult()
            return purge_table(
                tables.spark,
                tables.location(PAYLOAD),
                versions=[max(removals)],
                positions={},
                now=now,
                immediately=task.immediately,
            )

    def scan(self, terms: SearchTerms) -> ScanResult:
        now, found = dt.datetime.now(dt.UTC), ScanResult()
        for name in (PAYLOAD, EVENTS, LEDGER):
            place = f"{self.path}/{name}"
            try:
                found += scan_table(self._files(place), terms, now=now).at(place)
            except OSError as error:
                found += ScanResult(unseen=(unseen_location(place, error),))
        return found

    def retained_rows(self, source: ChangeFeed, columns: Collection[str]) -> Iterator[DataFrame]:  # noqa: ARG002
        return retained_values(self._sink.trail, columns, self._registry)

    def record_states(self, table: str, key: tuple[str, ...], run: str, states: Sequence[ReachedState]) -> None:
        from pyspark.sql import functions as F

        from audit.queries.questions import erasures

        recorded = erasures(self._sink.trail).where(F.col("run") == run).select("state").collect()
        known = {row["state"] for row in recorded}
        if missing := [one for one in states if one.state not in known]:
            with self._sink.open_for(table, key, run):
                self._sink.record_erasure_steps([{"run": run, **plain(one)} for one in missing])

    def unencrypted_rows(self) -> PlaintextRows:
        if self._sealing is None or not (trail := self._sink.trail).tables.exist():
            return PlaintextRows()
        with self._errors("looking for what is not sealed"):
            return count_plaintext_rows(trail, self._sealing)

    def has_encrypted_columns(self) -> bool:
        tables = self._sink.trail.tables
        with self._errors("looking for what is sealed"):
            return tables.exist() and has_groups(tables.read(PAYLOAD))

    def read_history(
        self,
        catch: Callable[[DataFrame], DataFrame],
        encrypted: EncryptedColumns,
        states: Callable[[str], States] | None,
    ) -> DataFrame:
        return read_history(self._sink.trail, catch, encrypted, states)
