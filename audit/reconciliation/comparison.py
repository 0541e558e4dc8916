"""Compares a trail with its source, version by version: the changes by their number and an order-independent keyed digest,
the commit files of the source's log by the hashes in the ledger.

The source has its change feed within the retention of its change files, and its commit files within the retention of its
log. Versions that the source no longer has do not count as differences; each such range is reported with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from audit.hashing.multiset_digest import Sums
from audit.reconciliation.recorded import RecordedCommits, count_removed_values, read_recorded_commits
from audit.reconciliation.results import Fault, Mismatch, NotCompared, Reason, Reconciled
from audit.reconciliation.row_sums import RowSums, translate_errors
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, INSERT
from cdf.changes.window import Window
from cdf.errors import (
    FeedNotEnabled,
    SchemaDrift,
    SourceError,
    TableReplaced,
    VersionsExpired,
)
from cdf.sink.contract import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from audit.audit_trail import Trail
    from audit.trail.tables import TrailTables
    from cdf.changes.window import Metadata
    from cdf.pipeline.pipeline import Pipeline

__all__ = ["Mismatch", "NotCompared", "Reconciled", "reconcile"]

MOST_MISMATCHES = 100
"""Maximum number of mismatches in a result."""
_EXPIRED: tuple[Reason, str] = (
    "expired",
    "older than the source's retention: their change files were deleted, or the part of the log that leads to them",
)
_BEHIND: tuple[Reason, str] = ("behind", "not in the trail yet: `deltarelay run` adds them")

_Progress: TypeAlias = Callable[[int, int], None]


def reconcile(trail: Trail, pipeline: Pipeline, *, progress: _Progress | None = None) -> Reconciled:
    """Compare the trail with the source of ``pipeline``, window by window.

    ``progress`` is called with the number of versions compared, and their total. Encrypted columns whose keys are not all
    available are not compared. A runner may write meanwhile: events without a ledger record are left out. Raises a
    SourceError if the source cannot be read for another reason than its retention, VerificationError if the trail cannot be
    read.
    """
    return _Comparison(trail, trail.require_tables(), pipeline, progress or _ignore_progress).run()


def _ignore_progress(_done: int, _of: int) -> None:
    pass


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Comparison:
    trail: Trail
    tables: TrailTables
    pipeline: Pipeline
    progress: _Progress
    found: list[Mismatch] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    versions: int = 0
    rows: int = 0
    baseline_rows: int | None = None
    pins: int = 0
    removed_from: list[int] = field(default_factory=list)
    removed_values: int = 0
    done: int = 0
    of: int = 0
    ledger: RecordedCommits = field(init=False)
    sums: RowSums = field(init=False)
    removals: Mapping[int, int] = field(init=False)

    def run(self) -> Reconciled:
        began = time.monotonic()
        with translate_errors(self.tables.path, "ledger"):
            # The ledger is written last, so it is read first; removals are recorded before values are deleted, so read last
            self.ledger = read_recorded_commits(self.tables)
            self.sums = RowSums.read(self.trail, self.tables, self.ledger)
            self.removals = count_removed_values(self.tables)
        latest = self.pipeline.feed.log.latest()
        if self.ledger.versions:
            self._check_versions()
            self._compare_with_source(latest)
        if self.removed_from:
            text = f"the values of {self.removed_values} changes were removed according to the ledger: only counted"
            self.not_compared.append(NotCompared(min(self.removed_from), max(self.removed_from), "removed", text))
        first, last = min(self.ledger.versions, default=0), max(self.ledger.versions, default=-1)
        if self.sums.hidden:
            text = (
                f"the columns {', '.join(sorted(self.sums.hidden))}: encrypted, and not all of their keys are available"
            )
            self.not_compared.append(NotCompared(first, last, "sealed", text))
        whole = not any(one.first <= last and one.last >= first for one in self.not_compared)
        # Commits without rows always agree: if only such commits could be compared, there is no result
        compared = self.rows > 0 or self.baseline_rows is not None or (self.versions > 0 and whole)
        return Reconciled(
            trail=self.tables.path,
            source=self.pipeline.feed.table,
            equal=False if self.found else True if compared else None,
            first_version=min(self.ledger.versions, default=None),
            last_version=max(self.ledger.versions, default=None),
            source_version=latest,
            versions=self.versions,
            rows=self.rows,
            baseline_rows=self.baseline_rows,
            pins=self.pins,
            removed=self.removed_values,
            mismatches=tuple(self.found[:MOST_MISMATCHES]),
            more_mismatches=len(self.found) > MOST_MISMATCHES,
            not_compared=tuple(_merge_neighbours(self.not_compared)),
            seconds=round(time.monotonic() - began, 3),
        )

    def _check_versions(self) -> None:
        """Check that each version has exactly one record."""
        for before, version in pairwise(sorted(self.ledger.versions)):
            if before == version:
                self._add_mismatch(version, "doubled", "the trail has more than one record of it")
            elif version > before + 1:
                more = f", nor of those up to version {version - 1}" if version > before + 2 else ""
                self._add_mismatch(before + 1, "missing", f"the trail has no record of it{more}")

    def _compare_with_source(self, latest: int) -> None:
        log = self.pipeline.feed.log
        first, last = min(self.ledger.versions), max(self.ledger.versions)
        if self._table_id(min(last, latest)) != self.ledger.table_id:
            text = "the source is not the table that the trail records: it was dropped and created again"
            self._add_mismatch(None, "replaced", text)
            return
        if latest < last:
            text = f"the source ends at version {latest}, the trail at {last}: the source was replaced by an older copy"
            self._add_mismatch(latest + 1, "cut_off", text)
            last = latest
        times = log.listing().times
        self._list_uncovered(first, last, latest, times)
        self._compare_log(times, last)
        if self.ledger.baseline is not None and self.ledger.baseline <= last:
            first = self.ledger.baseline + 1
            self._compare_baseline(self.ledger.baseline)
        lost = self._find_lost(first, last, times)
        self.of = last - first + 1
        for reason, group in groupby(range(first, last + 1), lost.get):
            versions = list(group)
            if reason is None:
                self._compare_versions(versions[0], versions[-1])
            else:
                self._skip(versions[0], versions[-1], *reason)

    def _table_id(self, version: int) -> str:
        return (self._metadata(version) or self.pipeline.feed.log.metadata()).table_id

    def _metadata(self, version: int) -> Metadata | None:
        """None where the log no longer has it."""
        try:
            return self.pipeline.feed.log.metadata(version)
        except SourceError as error:
            if _is_expired(error):
                return None
            raise

    # ── what cannot be compared ──────────────────────────────────────────────────────────────────────────────────

    def _list_uncovered(self, first: int, last: int, latest: int, times: Mapping[int, Any]) -> None:
        """List the source's versions that the trail does not cover."""
        if first > 0:
            content = "its baseline has their result" if self.ledger.baseline is not None else "they are not in it"
            self.not_compared.append(NotCompared(0, first - 1, "before", f"before the trail begins: {content}"))
        reasons = self._find_lost(last + 1, latest, times)
        for version in range(last + 1, latest + 1):
            self.not_compared.append(NotCompared(version, version, *reasons.get(version, _BEHIND)))

    def _find_lost(self, first: int, last: int, times: Mapping[int, Any]) -> Mapping[int, tuple[Reason, str]]:
        """The versions whose changes are lost according to the log, and the reasons."""
        log, reasons = self.pipeline.feed.log, dict[int, tuple[Reason, str]]()
        for version in range(first, last + 1):
            if version not in times:
                reasons[version] = ("expired", "their commit files are missing in the source's log")
        begins = next((version for version in range(first, last + 1) if version in times), None)
        if begins is None:
            return reasons
        found = self._metadata(begins)
        enabled = found is None or found.feed_enabled  # without metadata, reading shows whether it was enabled
        changes = [*log.metadata_commits(begins + 1, last)]
        steps = [(begins, enabled), *((version, now.feed_enabled) for version, now in changes), (last + 1, True)]
        for (since, on), (until, _) in pairwise(steps):
            if not on:
                text = f"the source's change feed was disabled from version {since} on: the feed does not have these changes"
                reasons |= dict.fromkeys(range(since, until), ("feed_off", text))
        return reasons

    def _skip(self, first: int, last: int, reason: Reason, text: str) -> None:
        self.not_compared.append(NotCompared(first, last, reason, text))
        self._report_progress(last - first + 1)

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _compare_log(self, times: Mapping[int, Any], last: int) -> None:
        """Compare the commit files. Retention deletes the oldest first, so a file missing after an existing one is a
        difference."""
        log, oldest = self.pipeline.feed.log, min(times)
        for version, pin in sorted(self.ledger.pins.items()):
            if oldest < version <= last and version not in times:
                self._add_mismatch(
                    version, "log", "its commit file is missing in the source's log, which has older ones"
                )
            if version not in times:
                continue
            try:
                hash = log.sha256(version)
            except Exception:
                if log.missing(version, version):
                    continue  # deleted by retention meanwhile
                raise
            if hash == pin:
                self.pins += 1
            else:
                text = "its commit file in the source's log has changed since the trail recorded it"
                self._add_mismatch(version, "log", text)

    # ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _compare_versions(self, first: int, last: int) -> bool:
        """Compare these versions; → False if change files of some are missing: these versions are then left out.

        The remaining range is halved. VACUUM deletes older files first, so if the later half is incomplete, the earlier
        half is not read.
        """
        at = first
        try:
            for window in self.pipeline.windows(Position(first - 1), last):
                self._compare_window(window)
                at = window.last + 1
            return True
        except FeedNotEnabled as error:
            self._skip(at, last, "feed_off", error.message)
        except SchemaDrift as error:
            self._skip(at, last, "drift", error.message)
        except TableReplaced as error:
            self._add_mismatch(at, "replaced", error.message)
        except SourceError as error:
            if not _is_expired(error):
                raise
            middle = (at + last) // 2
            if at == last:
                self._skip(at, last, *_EXPIRED)
            elif self._compare_versions(middle + 1, last):
                self._compare_versions(at, middle)
            else:
                self._skip(at, middle, *_EXPIRED)
        return False

    def _compare_window(self, window: Window) -> None:
        of_source = self.sums.sum_source(window.read, window.schema, window) if window.has_changes else {}
        window.confirm()
        events, values = self.sums.sum_trail(window.first, window.last, baseline=False)
        recorded = self.ledger.recorded
        for version in range(window.first, window.last + 1):
            if version in recorded:
                sides = (side.get(version, Sums()) for side in (of_source, events, values))
                self.versions += self._compare_version(version, *sides)
        self.rows += sum(side.rows for side in of_source.values())
        self._report_progress(window.last - window.first + 1)

    def _compare_baseline(self, version: int) -> None:
        from pyspark.sql import functions as F

        def read() -> DataFrame:
            metadata = F.lit(INSERT).alias(CHANGE_TYPE), F.lit(version).cast("long").alias(COMMIT_VERSION)
            return snapshot.read().select("*", *metadata)

        try:
            snapshot = self.pipeline.snapshot(version)
            of_source = self.sums.sum_source(read, snapshot.schema, snapshot)
        except SourceError as error:
            if not _is_expired(error):
                raise
            self.not_compared.append(NotCompared(version, version, "expired", f"the baseline: {error.message}"))
            return
        events, values = self.sums.sum_trail(version, version, baseline=True)
        if self._compare_version(version, *(side.get(version, Sums()) for side in (of_source, events, values))):
            self.baseline_rows = of_source.get(version, Sums()).rows

    def _compare_version(self, version: int, of_source: Sums, events: Sums, values: Sums) -> bool:
        """→ False if values were removed, so that only the number of changes could be compared."""
        missing, removed = events.rows - values.rows, self.removals.get(version, 0)
        if events.counts != of_source.counts:
            if not events.rows:
                self._add_mismatch(version, "missing", f"the trail has none of its changes: {of_source}")
            elif not of_source.rows:
                self._add_mismatch(version, "added", f"the source has none of the trail's changes: {events}")
            else:
                self._add_mismatch(version, "counts", f"{events} in the trail, {of_source} in the source")
        elif 0 < missing <= removed:  # fewer if the runner died between the record and the deletion
            self.removed_from.append(version)
            self.removed_values += missing
            return False
        elif missing:
            text = f"the values of {missing} changes are missing, and the ledger records the removal of {removed}"
            self._add_mismatch(version, "rows", text)
        elif values.digest != of_source.digest:
            self._add_mismatch(version, "rows", f"the same number of changes ({events.rows}), but different rows")
        return True

    def _add_mismatch(self, version: int | None, fault: Fault, text: str) -> None:
        self.found.append(Mismatch(version, fault, text))

    def _report_progress(self, versions: int) -> None:
        self.done += versions
        self.progress(self.done, self.of)


def _merge_neighbours(not_compared: Iterable[NotCompared]) -> Iterator[NotCompared]:
    """Merge consecutive ranges with the same reason."""
    before: NotCompared | None = None
    for one in sorted(not_compared, key=lambda one: (one.first, one.last)):
        if before is None:
            before = one
        elif (before.last + 1, before.reason, before.text) == (one.first, one.reason, one.text):
            before = replace(before, last=one.last)
        else:
            yield before
            before = one
    if before is not None:
        yield before


def _is_expired(error: SourceError) -> bool:
    """Delta has no error condition for a version that a gap in the log makes unreadable."""
    return isinstance(error, VersionsExpired) or "non-existent version" in str(error.__cause__)
