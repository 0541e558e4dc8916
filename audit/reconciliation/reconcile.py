"""Does a trail say what its source says? Version by version: the changes by their number and an order-free keyed digest, the
commit files of the source's log by the hashes that the ledger has of them.

The source tells what it still can: its feed within the retention of its change files, its commit files within that of its
log. What it cannot tell any more is no difference; each such range is named, with the reason.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from audit.encryption.decrypt import decrypt_rows, find_encrypted_columns, find_lost_columns
from audit.errors import unreadable_trail
from audit.hashing.multiset_digest import Sums, digest_rows, sum_digests
from audit.queries.view import add_missing_columns
from audit.reconciliation.results import Fault, Mismatch, NotCompared, Reason, Reconciled
from audit.trail.column_history import SEALED, Column, extend_columns, row_type
from audit.trail.record_kinds import named_runs, parse_columns, parse_record
from audit.trail.tables import EVENTS, LEDGER, PAYLOAD
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, INSERT, METADATA_COLUMNS, UPDATE_PREIMAGE, quoted
from cdf.changes.window import Window
from cdf.errors import (
    CdfError,
    FeedNotEnabled,
    SchemaDrift,
    SourceError,
    TableReplaced,
    VersionsExpired,
)
from cdf.sink.contract import Position
from cdf.sink.guard import erasing_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from audit.audit_trail import Trail
    from audit.trail.tables import TrailTables
    from cdf.changes.window import Metadata, Snapshot
    from cdf.pipeline.pipeline import Pipeline

__all__ = ["Mismatch", "NotCompared", "Reconciled", "reconcile"]

MOST_MISMATCHES = 100
_EXPIRED: tuple[Reason, str] = (
    "expired",
    "past the source's retention: their change files are gone, or the part of the log that leads to them",
)
_BEHIND: tuple[Reason, str] = ("behind", "not in the trail yet: `deltarelay run` brings them")

_Progress: TypeAlias = Callable[[int, int], None]


def reconcile(trail: Trail, pipeline: Pipeline, *, progress: _Progress | None = None) -> Reconciled:
    """Hold the trail against the source of ``pipeline``, window by window. ``progress`` is told how many versions are done,
    and of how many. Of columns that are sealed what the trail has no keys for, or no more, is not compared.

    A runner may be at work meanwhile: what the ledger does not have yet is left out. Raises a SourceError where the source
    cannot be read, for another reason than its retention, and VerificationError where the trail cannot.
    """
    return _Comparison(trail, trail.there(), pipeline, progress or _untold).result()


def _untold(_done: int, _of: int) -> None:
    pass


# ── what the trail has ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Ledger:
    versions: list[int] = field(default_factory=list)
    """In the order of the records."""
    recorded: set[int] = field(default_factory=set)
    pins: dict[int, str] = field(default_factory=dict)
    baseline: int | None = None
    table_id: str | None = None
    columns: list[tuple[int, tuple[Column, ...]]] = field(default_factory=list)
    """From which version on, and which."""

    def columns_at(self, version: int) -> tuple[Column, ...]:
        at = bisect_right(self.columns, version, key=lambda one: one[0])
        return tuple(column for column in self.columns[at - 1][1] if column.live) if at else ()


def _ledger(tables: TrailTables) -> _Ledger:
    from pyspark.sql import functions as F

    told = (F.get_json_object("record", f"$.{name}").alias(name) for name in ("log_sha256", "table_id", "columns"))
    records = tables.now(LEDGER).where("kind in ('commit', 'baseline') and version is not null").orderBy("sequence")
    found = _Ledger()
    for row in records.select("kind", "version", *told).toLocalIterator():
        version = row["version"]
        found.versions.append(version)
        found.recorded.add(version)
        found.table_id = row["table_id"]
        if row["kind"] == "baseline":
            found.baseline = version
        if row["log_sha256"] is not None:
            found.pins[version] = row["log_sha256"]
        if row["columns"] is not None:
            found.columns.append((version, parse_columns(row["columns"], version=row["version"])))
    return found


def _removed(tables: TrailTables) -> Mapping[int, int]:
    """How many values of each version the ledger says were removed."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in tables.now(LEDGER).where("kind = 'removal'").select("record").collect():
        record = parse_record(row["record"])
        if record is None or record["kind"] != "removal":
            continue  # what it names is told as missing; `audit verify` reports the record
        for version, first, last in named_runs(record):
            ranges.setdefault(version, []).append((first, last))
    return {version: _covered(places) for version, places in ranges.items()}


def _covered(places: Iterable[tuple[int, int]]) -> int:
    """How many places these ranges have together; they may overlap."""
    count, end = 0, -1
    for first, last in sorted(places):
        count += max(0, last - max(first, end + 1) + 1)
        end = max(end, last)
    return count


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Comparison:
    trail: Trail
    tables: TrailTables
    pipeline: Pipeline
    progress: _Progress
    key: bytes = field(default_factory=lambda: os.urandom(32))
    """Of this call alone: sums of digests can be made to agree by whoever knows it."""
    found: list[Mismatch] = field(default_factory=list)
    left_out: list[NotCompared] = field(default_factory=list)
    versions: int = 0
    rows: int = 0
    baseline_rows: int | None = None
    pins: int = 0
    removed_from: list[int] = field(default_factory=list)
    removed_values: int = 0
    done: int = 0
    of: int = 0
    ledger: _Ledger = field(init=False)
    events: DataFrame = field(init=False)
    payload: DataFrame = field(init=False)
    removals: Mapping[int, int] = field(init=False)
    sealed: set[str] = field(init=False)
    """The columns that are sealed in any row; of these ``hidden`` cannot be compared. With their case folded."""
    hidden: set[str] = field(init=False)

    def result(self) -> Reconciled:
        began = time.monotonic()
        with self._of_the_trail("ledger"):
            self.ledger = _ledger(self.tables)
            # After the ledger, which is written last; before the removals, which it has before the values go
            self.events, self.payload = (
                self.tables.now(EVENTS),
                add_missing_columns(self.trail, self.tables.now(PAYLOAD)),
            )
            self.removals = _removed(self.tables)
            self.sealed = find_encrypted_columns(self.payload)
            states = self.trail.states
            self.hidden = self.sealed if states is None or not self.sealed else find_lost_columns(self.payload, states)
        latest = self.pipeline.feed.log.latest()
        if self.ledger.versions:
            self._ledger_alone()
            self._with_source(latest)
        if self.removed_from:
            words = f"the values of {self.removed_values} changes were removed, as the ledger records: only counted"
            self.left_out.append(NotCompared(min(self.removed_from), max(self.removed_from), "removed", words))
        first, last = min(self.ledger.versions, default=0), max(self.ledger.versions, default=-1)
        if self.hidden:
            words = f"the columns {', '.join(sorted(self.hidden))}: sealed, and not all of their keys are there"
            self.left_out.append(NotCompared(first, last, "sealed", words))
        whole = not any(one.first <= last and one.last >= first for one in self.left_out)
        # Commits without rows are equal soon: where only they could be compared, nothing is said
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
            not_compared=tuple(_joined(self.left_out)),
            seconds=round(time.monotonic() - began, 3),
        )

    def _ledger_alone(self) -> None:
        """Each version has one record."""
        for before, version in pairwise(sorted(self.ledger.versions)):
            if before == version:
                self._differs(version, "doubled", "the trail has more than one record of it")
            elif version > before + 1:
                more = f", nor of those up to version {version - 1}" if version > before + 2 else ""
                self._differs(before + 1, "missing", f"the trail has no record of it{more}")

    def _with_source(self, latest: int) -> None:
        log = self.pipeline.feed.log
        first, last = min(self.ledger.versions), max(self.ledger.versions)
        if self._table_id(min(last, latest)) != self.ledger.table_id:
            words = "the source is another table than the one that was trailed: it was dropped and created again"
            self._differs(None, "replaced", words)
            return
        if latest < last:
            words = f"the source ends at version {latest}, the trail at {last}: an older copy has taken its place"
            self._differs(latest + 1, "cut_off", words)
            last = latest
        there = log.listing().times
        self._outside(first, last, latest, there)
        self._log_pins(there, last)
        if self.ledger.baseline is not None and self.ledger.baseline <= last:
            first = self.ledger.baseline + 1
            self._baseline(self.ledger.baseline)
        unreadable = self._unreadable(first, last, there)
        self.of = last - first + 1
        for why, group in groupby(range(first, last + 1), unreadable.get):
            versions = list(group)
            if why is None:
                self._over(versions[0], versions[-1])
            else:
                self._leave_out(versions[0], versions[-1], *why)

    def _table_id(self, version: int) -> str:
        return (self._metadata(version) or self.pipeline.feed.log.metadata()).table_id

    def _metadata(self, version: int) -> Metadata | None:
        """None where the log does not lead to it any more."""
        try:
            return self.pipeline.feed.log.metadata(version)
        except SourceError as error:
            if _gone(error):
                return None
            raise

    # ── what cannot be compared ──────────────────────────────────────────────────────────────────────────────────

    def _outside(self, first: int, last: int, latest: int, there: Mapping[int, Any]) -> None:
        """The source's versions that the trail does not cover."""
        if first > 0:
            holds = "its baseline holds what they left" if self.ledger.baseline is not None else "they are not in it"
            self.left_out.append(NotCompared(0, first - 1, "before", f"from before the trail begins: {holds}"))
        why = self._unreadable(last + 1, latest, there)
        for version in range(last + 1, latest + 1):
            self.left_out.append(NotCompared(version, version, *why.get(version, _BEHIND)))

    def _unreadable(self, first: int, last: int, there: Mapping[int, Any]) -> Mapping[int, tuple[Reason, str]]:
        """The versions whose changes the log alone shows to be lost, and why."""
        log, why = self.pipeline.feed.log, dict[int, tuple[Reason, str]]()
        for version in range(first, last + 1):
            if version not in there:
                why[version] = ("expired", "their commit files are gone from the source's log")
        begins = next((version for version in range(first, last + 1) if version in there), None)
        if begins is None:
            return why
        found = self._metadata(begins)
        enabled = found is None or found.feed_enabled  # where it cannot be had, reading will tell
        changes = [*log.metadata_commits(begins + 1, last)]
        steps = [(begins, enabled), *((version, now.feed_enabled) for version, now in changes), (last + 1, True)]
        for (since, on), (until, _) in pairwise(steps):
            if not on:
                words = f"the source's change feed was off from version {since}: what changed then is in no feed"
                why |= dict.fromkeys(range(since, until), ("feed_off", words))
        return why

    def _leave_out(self, first: int, last: int, reason: Reason, text: str) -> None:
        self.left_out.append(NotCompared(first, last, reason, text))
        self._tell(last - first + 1)

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_pins(self, there: Mapping[int, Any], last: int) -> None:
        """A retention takes the oldest commit files first: one that is gone between others was taken by somebody."""
        log, oldest = self.pipeline.feed.log, min(there)
        for version, pin in sorted(self.ledger.pins.items()):
            if oldest < version <= last and version not in there:
                self._differs(version, "log", "its commit file is gone from the source's log, and older ones are there")
            if version not in there:
                continue
            try:
                now = log.sha256(version)
            except Exception:
                if log.missing(version, version):
                    continue  # retention has taken it meanwhile
                raise
            if now == pin:
                self.pins += 1
            else:
                words = "its commit file in the source's log is another one than when it was trailed"
                self._differs(version, "log", words)

    # ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _over(self, first: int, last: int) -> bool:
        """Compare these versions; False where the change files of some are gone, which are then left out.

        Halved from there: VACUUM removes what is older first, so where the later half is not whole the earlier is not
        tried.
        """
        at = first
        try:
            for window in self.pipeline.windows(Position(first - 1), last):
                self._window(window)
                at = window.last + 1
            return True
        except FeedNotEnabled as error:
            self._leave_out(at, last, "feed_off", error.message)
        except SchemaDrift as error:
            self._leave_out(at, last, "drift", error.message)
        except TableReplaced as error:
            self._differs(at, "replaced", error.message)
        except SourceError as error:
            if not _gone(error):
                raise
            middle = (at + last) // 2
            if at == last:
                self._leave_out(at, last, *_EXPIRED)
            elif self._over(middle + 1, last):
                self._over(at, middle)
            else:
                self._leave_out(at, middle, *_EXPIRED)
        return False

    def _window(self, window: Window) -> None:
        theirs = self._theirs(window.read, window.schema, window) if window.has_changes else {}
        window.confirm()
        events, values = self._mine(window.first, window.last, baseline=False)
        recorded = self.ledger.recorded
        for version in range(window.first, window.last + 1):
            if version in recorded:
                sides = (side.get(version, Sums()) for side in (theirs, events, values))
                self.versions += self._version(version, *sides)
        self.rows += sum(side.rows for side in theirs.values())
        self._tell(window.last - window.first + 1)

    def _baseline(self, version: int) -> None:
        from pyspark.sql import functions as F

        def read() -> DataFrame:
            told = F.lit(INSERT).alias(CHANGE_TYPE), F.lit(version).cast("long").alias(COMMIT_VERSION)
            return snapshot.read().select("*", *told)

        try:
            snapshot = self.pipeline.snapshot(version)
            theirs = self._theirs(read, snapshot.schema, snapshot)
        except SourceError as error:
            if not _gone(error):
                raise
            self.left_out.append(NotCompared(version, version, "expired", f"the baseline: {error.message}"))
            return
        events, values = self._mine(version, version, baseline=True)
        if self._version(version, *(side.get(version, Sums()) for side in (theirs, events, values))):
            self.baseline_rows = theirs.get(version, Sums()).rows

    def _version(self, version: int, theirs: Sums, events: Sums, values: Sums) -> bool:
        """False where values were removed, so that only the number could be compared."""
        gone, removed = events.rows - values.rows, self.removals.get(version, 0)
        if events.counts != theirs.counts:
            if not events.rows:
                self._differs(version, "missing", f"the trail has none of its changes: {theirs}")
            elif not theirs.rows:
                self._differs(version, "added", f"the source has none of the trail's changes: {events}")
            else:
                self._differs(version, "counts", f"{events} in the trail, {theirs} in the source")
        elif 0 < gone <= removed:  # whoever records a removal may have died before it
            self.removed_from.append(version)
            self.removed_values += gone
            return False
        elif gone:
            words = f"the values of {gone} changes are gone, and the ledger records that {removed} were removed"
            self._differs(version, "rows", words)
        elif values.digest != theirs.digest:
            self._differs(version, "rows", f"as many changes ({events.rows}), and not the same rows")
        return True

    def _theirs(
        self, read: Callable[[], DataFrame], schema: StructType, source: Window | Snapshot
    ) -> Mapping[int, Sums]:
        from pyspark.sql import functions as F

        plain = row_type(
            [one for one in extend_columns((), schema) if one.name.casefold() not in self.hidden], stored=False
        )
        try:
            values = (quoted(name).alias(f"value_{at}") for at, name in enumerate(plain.names))
            feed = read()
            if isinstance(source, Window):
                key = [name for name in source.key if name.casefold() not in self.sealed]
                feed = _as_kept(feed, erasing_versions(source.commits), key)
            rows = feed.select(*values, F.col(CHANGE_TYPE).alias("change_type"), F.col(COMMIT_VERSION).alias("version"))
            return sum_digests(digest_rows(rows, plain, self.key))["rows"]
        except Exception as error:
            raise source.failure(error) from error

    def _mine(self, first: int, last: int, *, baseline: bool) -> tuple[Mapping[int, Sums], Mapping[int, Sums]]:
        """Of the events, and of the values that are there."""
        from pyspark.sql import functions as F

        columns = [one for one in self.ledger.columns_at(last) if one.name.casefold() not in {*self.hidden, SEALED}]
        within = F.col("version").between(first, last) & (F.col("baseline") == baseline)
        none = (F.lit(0).cast("decimal(38, 0)").alias(half) for half in ("high", "low"))
        counted = self.events.where(within).select(
            F.lit("events").alias("side"), "version", "change_type", F.lit(1).cast("long").alias("count"), *none
        )
        places = (F.col("row").getField(one.stored).alias(f"value_{at}") for at, one in enumerate(columns))
        with self._of_the_trail(f"version {first} to {last}"):
            values = self._opened(self.payload.where(within)).select(*places, "change_type", "version")
            sides = sum_digests(digest_rows(values, row_type(columns, stored=False), self.key).unionByName(counted))
        return sides["events"], sides["rows"]

    def _opened(self, payload: DataFrame) -> DataFrame:
        states = self.trail.states
        return payload if states is None or not self.sealed else decrypt_rows(payload, self.ledger.columns, states)

    @contextmanager
    def _of_the_trail(self, what: str) -> Iterator[None]:
        try:
            yield
        except CdfError:
            raise
        except Exception as error:
            raise unreadable_trail(self.tables.path, error, what) from error

    def _differs(self, version: int | None, fault: Fault, text: str) -> None:
        self.found.append(Mismatch(version, fault, text))

    def _tell(self, versions: int) -> None:
        self.done += versions
        self.progress(self.done, self.of)


def _as_kept(feed: DataFrame, withheld: frozenset[int], key: Sequence[str]) -> DataFrame:
    """Of commits that erased somebody a trail has no image from before the change, but for its key."""
    from pyspark.sql import functions as F

    if not withheld:
        return feed
    before = F.col(COMMIT_VERSION).isin(*withheld) & F.col(CHANGE_TYPE).isin(DELETE, UPDATE_PREIMAGE)
    values = [name for name in feed.columns if name not in (*key, *METADATA_COLUMNS)]
    return feed.select(
        *(F.when(~before, quoted(name)).alias(name) if name in values else quoted(name) for name in feed.columns)
    )


def _joined(left_out: Iterable[NotCompared]) -> Iterator[NotCompared]:
    """Neighbours with one reason become one."""
    before: NotCompared | None = None
    for one in sorted(left_out, key=lambda one: (one.first, one.last)):
        if before is None:
            before = one
        elif (before.last + 1, before.reason, before.text) == (one.first, one.reason, one.text):
            before = replace(before, last=one.last)
        else:
            yield before
            before = one
    if before is not None:
        yield before


def _gone(error: SourceError) -> bool:
    """Delta has no condition for a version that a hole in the log keeps it from."""
    return isinstance(error, VersionsExpired) or "non-existent version" in str(error.__cause__)
