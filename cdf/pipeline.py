"""The walk: choose a window, read the feed, take its net effect, let the sink apply it, go on from the sink's position.

    pipeline.run()
        position = sink.open()                          where the target stands; the sink alone knows
        sink.load(snapshot)                             only while the target is empty
        for window in windows(position + 1 .. latest):  whole commits, one schema each
            sink.apply(window)                          rows and position in one durable step

Everything else in this file decides what must be refused before the first of these lines runs.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cdf.change import METADATA_COLUMNS
from cdf.errors import (
    CdfError,
    FeedNotEnabled,
    TableReplaced,
    VersionNotFound,
)
from cdf.log import missing_commits
from cdf.net import check_key, quoted
from cdf.plan import make_plan
from cdf.readers.batch import check_commits, check_session, load_range
from cdf.readers.bounds import Bound, parse_timestamp, resolve_end, resolve_start
from cdf.readers.snapshot import read_snapshot
from cdf.results import Plan, RunResult, Step, Totals
from cdf.schema import check_followed, compare
from cdf.sink import Applied, Inspection, Position, Sink, Source
from cdf.verify import Verification, verify
from cdf.window import Commit, Limits, Metadata, Snapshot, Window, cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.source import ChangeFeed

__all__ = ["Pipeline"]


class Pipeline:
    """One source table, one sink.

    ``key`` names the columns that identify a row. ``start`` says where an empty target begins: ``"snapshot"`` (the latest
    version), ``"earliest"``, a version, or a time with a zone. A sink that holds state is loaded with the snapshot at that
    version and takes the feed from the next one on; a sink that holds history takes the feed from that version on
    (``"snapshot"``: a baseline first). Once the sink has a position, ``start`` is not looked at any more.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        sink: Sink,
        *,
        key: Sequence[str],
        start: str | int | dt.datetime = "snapshot",
        name: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.feed = feed
        self.sink = sink
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.start = start
        self.name = name or feed.table
        self.limits = limits or Limits()
        self._start_bound()

    # ── the walk ─────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, until: int | str | dt.datetime | None = None, *, progress: Callable[[Step], None] | None = None
    ) -> RunResult:
        """Catch up to the latest version there is now (or to ``until``, a version or a time), and stop.

        Returns when everything is durable in the sink. Raises a CdfError where something must be refused; whatever was
        applied before stays, and the next run goes on after it. ``progress`` is called after each durable step.
        """
        began = time.monotonic()
        last = self.last_version(until)
        totals = Totals()
        with self._opened(last) as position:
            if position.version is None and self.loads_first():
                step = self._load(last)
                position = replace(position, version=step.applied.position)
                totals.add(step)
                if progress is not None:
                    progress(step)
            for window in self.windows(position, last):
                step = Step("window", window.first, window.last, last, self._apply(window))
                position = replace(position, version=step.applied.position)
                totals.add(step)
                if progress is not None:
                    progress(step)
        return totals.result(self.name, self.feed.table, position.version, last, time.monotonic() - began)

    def _load(self, last: int) -> Step:
        version = min(self.start_version(), last)
        snapshot = self.snapshot(version)
        if version < last:
            # A copy whose history cannot be followed would be a target that no run can bring further
            self._check_ahead(version + 1, last)
        try:
            applied = self.sink.load(snapshot)
        except CdfError:
            raise
        except Exception as error:
            raise snapshot.failure(error) from error
        return Step("load", version, version, last, applied)

    def _apply(self, window: Window) -> Applied:
        try:
            return self.sink.apply(window)
        except CdfError:
            raise
        except Exception as error:
            raise window.failure(error) from error

    def inspect(self, last: int) -> Inspection:
        """Check session, feed and key, then let the sink look at its target for the schema at ``last``."""
        check_session(self.feed.spark)
        self.feed.require_enabled()
        schema = self.feed.log.metadata(last).schema
        check_key(schema, self.key, self.feed.table)
        found = self.sink.inspect(self.source(schema))
        stands = found.position.version
        if stands is not None and last < stands <= self.feed.log.latest():
            # An end before the position changes nothing: the target has the schema of its position by right
            found = self.sink.inspect(self.source(self.feed.log.metadata(stands).schema))
        return found

    @contextmanager
    def _opened(self, last: int) -> Iterator[Position]:
        """The sink, open and checked against the source; closed whatever happens."""
        # Looked at first, so that a table that was replaced is refused before the lease or any DDL.
        stands = self.inspect(last).position
        self.check_position(stands)
        if stands.version is not None and stands.version < last:
            self._check_ahead(stands.version + 1, last)
        try:
            # The schema at the end of this run: what comes after it is not this run's concern
            end = max(last, stands.version or 0)
            position = self.sink.open(self.source(self.feed.log.metadata(end).schema))
            self.check_position(position)
            yield position
        finally:
            self.sink.close()

    def windows(self, position: Position, last: int) -> Iterator[Window]:
        """The windows from the position on. A pending window comes first, with exactly its recorded bounds."""
        if position.pending is not None:
            pending = position.pending
            yield from self._cut(pending.first, pending.last, Limits(2**62, 2**62))
            first = pending.last + 1
        else:
            first = self.start_version() if position.version is None else position.version + 1
        if first <= last:
            yield from self._cut(first, last, self.limits, begins=position.version is None)

    def _cut(self, first: int, last: int, limits: Limits, *, begins: bool = False) -> Iterator[Window]:
        before = self._check_ahead(first, last, begins=begins)
        schema = before.schema

        def starts_segment(commit: Commit) -> bool:
            nonlocal schema
            if commit.metadata is None or not compare(schema, commit.metadata.schema):
                return False
            schema = commit.metadata.schema
            return True

        in_force = schema
        for commits in cut(self.feed.log.commits(first, last), limits, starts_segment=starts_segment):
            for commit in commits:
                if commit.metadata is not None:
                    in_force = commit.metadata.schema
            yield self._window(commits, in_force, before.table_id)

    def _check_ahead(self, first: int, last: int, *, begins: bool = False) -> Metadata:
        """Refuse what lies ahead and cannot be followed, before any of it is applied.

        → the metadata before ``first``, or at it where a history ``begins`` there: its schema changes nothing yet.
        """
        listing = self.feed.log.listing()
        if missing := listing.missing(first, last):
            raise missing_commits(self.feed.table, missing)
        before = self.feed.log.metadata(first if begins else max(first - 1, listing.earliest))
        now = self.feed.log.metadata(first)
        if now.table_id == before.table_id and not now.feed_enabled:
            raise FeedNotEnabled(
                f"the change feed of {self.feed.table} was off at version {first}, where the changes would begin",
                hint="start from a later version: `deltarelay feed status` tells since when the feed is on",
                condition="DELTA_MISSING_CHANGE_DATA",
                version=first,
            )
        now = before
        for version, metadata in self.feed.log.metadata_commits(first, last):
            if metadata.table_id != before.table_id:
                raise self._replaced(f"was replaced at version {version}")
            if not metadata.feed_enabled:
                raise FeedNotEnabled(
                    f"version {version} of {self.feed.table} turned the change feed off: "
                    "changes made while it is off are never recorded",
                    hint=f"run with --until {version - 1} to apply everything before it; turn the feed on again, "
                    "then the target has to be made anew from a snapshot",
                    condition="DELTA_MISSING_CHANGE_DATA",
                    version=version,
                )
            changes = compare(now.schema, metadata.schema)
            check_followed(changes, self.sink.capabilities, table=self.feed.table, version=version, key=self.key)
            now = metadata
        return before

    # ── what the sink is handed ──────────────────────────────────────────────────────────────────────────────────

    def source(self, schema: StructType) -> Source:
        return Source(
            table=self.feed.table,
            table_id=self.feed.log.metadata().table_id,
            schema=schema,
            key=self.key,
            pipeline=self.name,
        )

    def snapshot(self, version: int) -> Snapshot:
        metadata = self.feed.log.metadata(version)
        return Snapshot(
            table=self.feed.table,
            table_id=metadata.table_id,
            schema=metadata.schema,
            key=self.key,
            version=version,
            read=lambda: read_snapshot(self.feed, version),
        )

    def _window(self, commits: tuple[Commit, ...], schema: StructType, table_id: str) -> Window:
        first, last = commits[0].version, commits[-1].version
        columns = [*(field.name for field in schema.fields), *METADATA_COLUMNS]

        def read() -> DataFrame:
            # The table may have gained columns since; the window shows its own schema.
            return load_range(self.feed, first, last).select(*(quoted(name) for name in columns))

        return Window(
            table=self.feed.table,
            table_id=table_id,
            schema=schema,
            key=self.key,
            commits=commits,
            read=read,
            commit_sha256=self.feed.log.sha256,
            confirm=lambda: check_commits(self.feed, first, last),
        )

    # ── what is refused, and where it starts ─────────────────────────────────────────────────────────────────────

    def check_position(self, position: Position) -> None:
        """Refuse a position that does not belong to this table, or that the table does not reach."""
        metadata = self.feed.log.metadata()
        if position.table_id is not None and position.table_id != metadata.table_id:
            raise self._replaced("is another table than the one the target was filled from")
        latest = self.feed.log.latest()
        if position.version is not None and position.version > latest:
            raise VersionNotFound(
                f"the target stands at version {position.version}, but {self.feed.table} ends at {latest}: "
                "the source was restored from an older copy",
                hint="bring the source's newer commits back, or begin with an empty target",
                latest=latest,
            )

    def _replaced(self, what: str) -> TableReplaced:
        return TableReplaced(
            f"{self.feed.table} {what}: it was dropped and created again, or CREATE OR REPLACE TABLE was run",
            hint="its history does not continue the target's: name a new target table, "
            "or drop the target and its position, and run again from a snapshot",
            table=self.feed.table,
        )

    def loads_first(self) -> bool:
        return self.sink.capabilities.holds == "state" or self.start == "snapshot"

    def _start_bound(self) -> Bound | None:
        """``start`` as a bound; None for the two words. Raises ConfigError for anything else."""
        if self.start in ("snapshot", "earliest"):
            return None
        if isinstance(self.start, int):
            return Bound.of("start", version=self.start, timestamp=None)
        return Bound(timestamp=parse_timestamp(self.start, name="start"))

    def start_version(self) -> int:
        bound = self._start_bound()
        if bound is not None:
            return resolve_start(self.feed.log, bound, table=self.feed.table)
        if self.start == "snapshot":
            return self.feed.log.latest()
        earliest = self.feed.status().earliest_version
        assert earliest is not None  # the feed is on: _opened has checked
        return earliest

    def last_version(self, until: int | str | dt.datetime | None) -> int:
        if until is None:
            return self.feed.log.latest()
        if isinstance(until, str) and until.strip().isdecimal():
            until = int(until)
        bound = (
            Bound.of("end", version=until, timestamp=None)
            if isinstance(until, int)
            else Bound(timestamp=parse_timestamp(until, name="until"))
        )
        return resolve_end(self.feed.log, bound, table=self.feed.table)

    # ── looking without touching ─────────────────────────────────────────────────────────────────────────────────

    def plan(self, until: int | str | dt.datetime | None = None) -> Plan:
        """What ``run`` would do: windows, counts per change type, DDL, problems and warnings. Writes nothing."""
        return make_plan(self, until)

    def verify(self, *, show_keys: bool = False) -> Verification:
        """Compare source and target at the target's position; see ``cdf.verify``."""
        return verify(self, show_keys=show_keys)
