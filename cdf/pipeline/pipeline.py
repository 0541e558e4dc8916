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
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cdf.changes.keys import check_key
from cdf.changes.row_count import counted
from cdf.changes.schema_diff import compare, same_names_in_files
from cdf.changes.window import Commit, Limits, Metadata, Snapshot, Window, cut
from cdf.errors import (
    CdfError,
    FeedNotEnabled,
    Interrupted,
    LeaseHeld,
    TableReplaced,
    TypeNotSupported,
    VersionNotFound,
    VersionsExpired,
)
from cdf.interrupt import Stop
from cdf.pipeline.follow import Following
from cdf.pipeline.micro_batches import MicroBatches
from cdf.pipeline.plan import make_plan
from cdf.pipeline.reload import make_anew
from cdf.results import Followed, Plan, RunResult, Step, Totals
from cdf.sink import (
    Applied,
    Bounds,
    Inspection,
    Monitored,
    Position,
    Sink,
    Source,
    Tracked,
)
from cdf.sink.guard import ERASURE, ErasureNotConfigured
from cdf.sink.schema_evolution import check_followed
from cdf.source.batch_reader import check_commits
from cdf.source.bounds import Bound, parse_timestamp, resolve_end, resolve_start
from cdf.source.log import missing_commits
from cdf.verify.verify import Verification, verify

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.changes.schema_diff import SchemaChange
    from cdf.sink.guard import Guard
    from cdf.source.table import ChangeFeed

__all__ = ["Pipeline"]

_Rows = TypeVar("_Rows", Window, Snapshot)


class Pipeline:
    """One source table, one sink.

    ``key`` names the columns that identify a row. ``start`` says where an empty target begins: ``"snapshot"`` (the latest
    version), ``"earliest"``, a version, or a time with a zone. A sink that holds state is loaded with the snapshot at that
    version and takes the feed from the next one on; a sink that holds history takes the feed from that version on
    (``"snapshot"``: a baseline first). Once the sink has a position, ``start`` is not looked at any more. ``guard`` looks
    at the rows of each step before the sink gets them.
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
        guard: Guard | None = None,
    ) -> None:
        self.feed = feed
        self.sink = sink
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.start = start
        self.name = name or feed.table
        self.limits = limits or Limits()
        self.guard = guard
        self._at_work = threading.Lock()
        self._stop = Stop()
        self._checked: tuple[int, int, Metadata] | None = None
        """What ``check_ahead`` found for a range while the sink was being opened; the first window need not ask again."""
        self._start_bound()

    # ── the walk ─────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self,
        until: int | str | dt.datetime | None = None,
        *,
        progress: Callable[[Step], None] | None = None,
        retries: int = 0,
    ) -> RunResult:
        """Catch up to the latest version there is now (or to ``until``, a version or a time), and stop.

        Returns when everything is durable in the sink. Raises a CdfError where something must be refused; whatever was
        applied before stays, and the next run goes on after it. ``progress`` is called after each durable step. ``retries``:
        how often the caller has tried in vain what comes first now; for the sink's history.
        """
        began = time.monotonic()
        last = self.last_version(until)
        totals = Totals()
        with self.opened(last, retries=retries) as position:
            stands = position.version
            for step in self.steps(position, last):
                stands = step.applied.position
                totals.add(step)
                if progress is not None:
                    progress(step)
        return totals.result(self.name, self.feed.table, stands, last, time.monotonic() - began)

    def interrupt(self) -> None:
        """End the ``run`` or ``reload`` of another thread: no further step begins, the sink's running step is cancelled.

        That thread gets ``Interrupted``, and the sink's history records it. Never raises. A cancelled statement may be
        followed by another one: call it again until the thread has ended. Final: a later run needs another Pipeline.
        """
        self._stop.cancel()
        self.sink.cancel()

    def reload(self, *, progress: Callable[[Step], None] | None = None, retries: int = 0) -> RunResult:
        """Make the target anew from a snapshot at the latest version, then catch up as ``run`` does.

        For a target that no run can bring further, or that ``verify`` found to differ: it does not matter where the target
        stands, nor that the table was replaced. Readers see the old rows until they see the new ones. Rows that no run
        of ours has brought there are refused: their position has to be adopted first.
        """
        began = time.monotonic()
        step = make_anew(self, retries=retries)
        if progress is not None:
            progress(step)
        after = self.run(progress=progress)
        return replace(
            after,
            loaded_rows=step.applied.inserts,
            ddl=(*step.applied.ddl, *after.ddl),
            seconds=round(time.monotonic() - began, 3),
        )

    def steps(
        self, position: Position, last: int, *, through: Callable[[Window], Window] | None = None
    ) -> Iterator[Step]:
        """From an open sink's position to ``last``, one durable step after the other. Each window passes ``through``."""
        if position.version is None and self.loads_first():
            step = self._load(last, begun=position.pending)
            position = replace(position, version=step.applied.position, pending=None)
            yield step
        windows = map(through, self.windows(position, last)) if through else self.windows(position, last)
        for window, announce in _with_next(windows):
            if self._stop.cancelled.is_set():
                raise _interrupted()
            # Who wants each window passed through wants it in its turn; so does who may object to it
            if through is None and self.guard is None:
                announce(self.sink.announce)
            yield Step("window", window.first, window.last, last, self.apply(window))

    def follow(
        self,
        checkpoint: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[Followed], None] | None = None,
    ) -> Following:
        """Catch up, then follow the table by a structured streaming query until the handle is stopped.

        Returns at once. ``trigger`` is ``{"processingTime": "1 second"}`` (the default) or ``{"availableNow": True}``, which
        ends by itself. ``checkpoint`` is a folder for what Spark keeps while the query runs (default: a temporary one);
        the position is the sink's, so nothing in it is needed after a restart. ``progress`` is called after each durable
        step, in the handle's thread. A database that cannot be reached is waited for, once it could be; a new column is
        followed; what needs a person's decision ends it, and ``await_termination`` raises that error.
        """
        return Following(
            self, checkpoint=checkpoint, trigger=trigger or {"processingTime": "1 second"}, progress=progress
        )

    @contextmanager
    def foreach_batch(self, *, progress: Callable[[Followed], None] | None = None) -> Iterator[MicroBatches]:
        """For a streaming query of your own: the function for ``writeStream.foreachBatch``, over the open sink.

            with pipeline.foreach_batch() as apply:
                query = feed.stream(start_version=5).writeStream.foreachBatch(apply).option(...).start()
                query.awaitTermination()

        The query has to read this pipeline's table, and nothing else. Its micro-batches only tell how far the table has
        got: commits are read as a whole whatever its limits, options, filters and checkpoint are, so a small
        ``max_files_per_trigger`` or an old checkpoint does no harm. The target is loaded and brought up to date first.

        Leaving the block ends the running window: it has 30 seconds to end by itself, then it is cancelled and rolled back,
        and the query fails.
        """
        last = self.last_version(None)
        with self.opened(last) as position:
            batches = MicroBatches(self, position, progress=progress)
            # Also where a checkpoint is ahead of a target that was restored: no micro-batch may come for a long time
            batches.advance(last)
            try:
                yield batches
            finally:
                batches.close()  # the sink is used from one thread at a time

    def _load(self, last: int, *, begun: Bounds | None) -> Step:
        """``begun``: a load that is durable in part is finished with the version that it was begun with."""
        version = min(self.start_version(), last) if begun is None else begun.last
        snapshot = self.snapshot(version)
        if version < last:
            # A copy whose history cannot be followed would be a target that no run can bring further
            self.check_ahead(version + 1, last)
        snapshot = self.admitted(snapshot)
        try:
            applied = self.sink.load(snapshot)
        except CdfError:
            raise
        except Exception as error:
            raise snapshot.failure(error) from error
        return Step("load", version, version, last, applied)

    def apply(self, window: Window) -> Applied:
        """Hand one window to the open sink; whatever goes wrong comes out as a CdfError."""
        window = self.admitted(window)
        try:
            return self.sink.apply(window)
        except CdfError:
            raise
        except Exception as error:
            raise window.failure(error) from error

    def admitted(self, step: _Rows) -> _Rows:
        """The step with the rows that the guard lets pass; it may also object to the step as a whole."""
        if self.guard is None or (isinstance(step, Window) and not step.has_changes):
            return step
        first, last = (step.first, step.last) if isinstance(step, Window) else (step.version, step.version)
        commits: tuple[Commit, ...] = step.commits if isinstance(step, Window) else ()
        try:
            without = self.guard.check(
                step.everything(),
                key=self.key,
                table=self.feed.table,
                pipeline=self.name,
                first=first,
                last=last,
                erasing={commit.version for commit in commits if commit.erasing},
                now=self.feed.snapshot,
            )
        except CdfError:
            raise
        except Exception as error:
            raise step.failure(error) from error
        if without is None:
            return step
        left = step.without(without)
        return replace(left, whole=None, filtered=True) if isinstance(left, Window) else left

    def inspect(self, last: int) -> Inspection:
        """Check session, feed and key, then let the sink look at its target for the schema at ``last``."""
        self.feed.check_session()
        self.feed.require_enabled()
        schema = self.feed.log.metadata(last).schema
        try:
            check_key(schema, self.key, self.feed.table)
        except TypeNotSupported:
            self._check_key_was_there(last)
            raise
        found = self.sink.inspect(self.source(schema))
        stands = found.position.version
        if stands is not None and last < stands <= self.feed.log.latest(anew=False):
            # An end before the position changes nothing: the target has the schema of its position by right
            schema = self.feed.log.metadata(stands).schema
        standing = self._standing_schema(found.position, last)
        if compare(standing, schema) or (stands is not None and last < stands):
            found = self.sink.inspect(self.source(schema, standing))
        return found

    def _check_key_was_there(self, last: int) -> None:
        """A key that a version on the way has renamed or dropped: refused as drift, with the version up to which it goes."""
        version = self.sink.position().version if isinstance(self.sink, Tracked) else None
        if version is None and self.loads_first():
            version = self.start_version()
        if version is not None and version < last:
            self.check_ahead(version + 1, last)

    def _standing_schema(self, position: Position, last: int) -> StructType:
        """The schema that the target holds by now, or begins with; as far as the log still has it."""
        log = self.feed.log
        if position.table_id is not None and position.table_id != log.metadata().table_id:
            return log.metadata(last).schema  # of another table: refused elsewhere, in its own words
        if position.version is None and not self.loads_first():
            return log.metadata(last).schema
        if position.version is not None and position.version > log.latest(anew=False):
            return log.metadata(last).schema  # the same
        begins = min(self.start_version(), last) if position.version is None else position.version
        with suppress(VersionsExpired, VersionNotFound):
            return log.metadata(begins).schema
        return log.metadata(last).schema

    @contextmanager
    def opened(self, last: int, *, retries: int = 0, stop: Stop | None = None) -> Iterator[Position]:
        """The sink, open and checked against the source; closed whatever happens. ``stop``: where another caller may ask
        for the end."""
        with self.closed_afterwards(), self.failures_recorded(retries, stop):
            # Looked at first, so that a table that was replaced is refused before the lease or any DDL.
            with self.feed.log.glance():
                stands = self.inspect(last).position
                self.check_position(stands)
                if stands.version is not None and stands.version < last:
                    first = stands.version + 1
                    self._checked = first, last, self.check_ahead(first, last)
                # The schema at the end of this run: what comes after it is not this run's concern
                end = max(last, stands.version or 0)
                source = self.source(self.feed.log.metadata(end).schema, self._standing_schema(stands, last))
            position = self.sink.open(replace(source, retries=retries))
            self.check_position(position)  # the lease may have been waited for
            yield position

    @contextmanager
    def closed_afterwards(self) -> Iterator[None]:
        """For this thread alone, and the sink closed whatever happens."""
        with self.alone():
            try:
                yield
            finally:
                self._checked = None
                self.sink.close()

    @contextmanager
    def failures_recorded(self, retries: int = 0, stop: Stop | None = None) -> Iterator[None]:
        """A try that fails or is interrupted is recorded in the sink's history. Not where another runner is at work: then
        nothing was tried. What fails only because of an interrupt is raised as Interrupted."""
        try:
            yield
        except KeyboardInterrupt:
            self._record(_interrupted(), retries)
            raise
        except Exception as error:
            if (stop or self._stop).broke_off(error):
                self._record(_interrupted(), retries)
                raise _interrupted() from error
            if isinstance(error, CdfError) and not isinstance(error, LeaseHeld):
                self._record(error, retries)
            raise

    def _record(self, error: CdfError, retries: int) -> None:
        if isinstance(self.sink, Monitored):
            self.sink.record_failure(error, pipeline=self.name, source=self.feed.table, retries=retries)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A sink is used from one thread at a time; opening it would close it under the other one."""
        if not self._at_work.acquire(blocking=False):
            raise LeaseHeld(
                f"the pipeline {self.name} is at work in this process already",
                hint="wait for its end, or stop following first",
            )
        try:
            yield
        finally:
            self._at_work.release()

    def windows(self, position: Position, last: int) -> Iterator[Window]:
        """The windows from the position on. A pending window comes first, with exactly its recorded bounds."""
        if position.pending is not None:
            pending = position.pending
            begins = position.version is None
            yield from self._cut(pending.first, pending.last, None, begins=begins)
            first = pending.last + 1
            position = replace(position, version=pending.last)  # what comes next begins no history
        else:
            first = self.start_version() if position.version is None else position.version + 1
        if first <= last:
            yield from self._cut(first, last, self.limits, begins=position.version is None)

    def _cut(self, first: int, last: int, limits: Limits | None, *, begins: bool = False) -> Iterator[Window]:
        """``limits``: None where the bounds are those of one window already."""
        checked, self._checked = self._checked, None
        with self.feed.log.glance():
            if checked is not None and checked[:2] == (first, last):
                before = checked[2]
            else:
                before = self.check_ahead(first, last, begins=begins)
            ahead = self.feed.log.commits(first, last)
        schema = before.schema

        def starts_segment(commit: Commit) -> bool:
            nonlocal schema
            if commit.metadata is None:
                return False
            older, schema = schema, commit.metadata.schema
            return bool(compare(older, schema)) or not same_names_in_files(older, schema)

        def ends_segment(commit: Commit) -> bool:
            return limits is not None and bool(self._erased((commit,)))

        in_force, most = schema, limits or Limits(2**62, 2**62)
        for commits in cut(ahead, most, starts_segment=starts_segment, ends_segment=ends_segment):
            previous = in_force
            for commit in commits:
                if commit.metadata is not None:
                    in_force = commit.metadata.schema
            yield self._window(commits, in_force, before.table_id, drift=tuple(compare(previous, in_force)))

    def check_ahead(self, first: int, last: int, *, begins: bool = False) -> Metadata:
        """Refuse what lies ahead and cannot be followed, before any of it is applied.

        Without a guard that is also an erasing commit: what lies before it holds rows of those whom it erased.

        → the metadata before ``first``, or at it where a history ``begins`` there: its schema changes nothing yet.
        """
        log = self.feed.log
        if missing := log.missing(first, last):
            raise missing_commits(self.feed.table, missing)
        if self.guard is None and (erasing := log.versions_naming(ERASURE, first, last)):
            raise self._erasure_not_configured(erasing)
        now = log.metadata(first)
        before = now
        if not begins and first > 0:
            with suppress(VersionsExpired):  # the log may begin at ``first`` itself
                before = log.metadata(first - 1)
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
                    f"then make the target anew: `deltarelay run --reload -p {self.name}`",
                    condition="DELTA_MISSING_CHANGE_DATA",
                    version=version,
                )
            changes = compare(now.schema, metadata.schema)
            check_followed(changes, self.sink, table=self.feed.table, version=version, key=self.key)
            now = metadata
        return before

    # ── what the sink is handed ──────────────────────────────────────────────────────────────────────────────────

    def source(self, schema: StructType, standing: StructType | None = None) -> Source:
        return Source(
            table=self.feed.table,
            table_id=self.feed.log.metadata().table_id,
            schema=schema,
            key=self.key,
            pipeline=self.name,
            standing=standing,
        )

    def snapshot(self, version: int) -> Snapshot:
        return self.feed.keyed_snapshot(version, self.key)

    def _window(
        self, commits: tuple[Commit, ...], schema: StructType, table_id: str, *, drift: tuple[SchemaChange, ...]
    ) -> Window:
        first, last = commits[0].version, commits[-1].version
        if erased := self._erased(commits):
            commits = tuple(replace(commit, erasing=commit.version in erased) for commit in commits)
        window = self.feed.window(
            commits,
            schema,
            table_id=table_id,
            key=self.key,
            confirm=lambda: self._confirm(first, last, table_id),
            drift=drift,
            # The guard checks the copy as well: the table may have rows that were left out of an earlier window
            whole=lambda: self.admitted(self.snapshot(last)),
            table_bytes=lambda: self.feed.log.size_bytes(last),
        )
        return counted(window)

    def _erased(self, commits: tuple[Commit, ...]) -> frozenset[int]:
        return frozenset() if self.guard is None else self.guard.erased(commits, table=self.feed.table)

    def _confirm(self, first: int, last: int, table_id: str) -> None:
        check_commits(self.feed, first, last)
        if self.feed.log.metadata().table_id != table_id:
            raise self._replaced("became another table while its changes were being read")

    # ── what is refused, and where it starts ─────────────────────────────────────────────────────────────────────

    def check_position(self, position: Position) -> None:
        """Refuse a position that does not belong to this table, or that the table does not reach."""
        with self.feed.log.glance():
            table_id, latest = self.feed.log.metadata().table_id, self.feed.log.latest(anew=False)
        if position.table_id is not None and position.table_id != table_id:
            raise self._replaced("is another table than the one the target was filled from")
        stands, how = position.version, "stands at"
        if position.pending is not None and position.pending.last > latest:
            stands, how = position.pending.last, "has begun"
        if stands is not None and stands > latest:
            raise VersionNotFound(
                f"the target {how} version {stands}, but {self.feed.table} ends at {latest}: "
                "the source was restored from an older copy",
                hint="bring the source's newer commits back, or make the target anew: "
                f"`deltarelay run --reload -p {self.name}`",
                latest=latest,
            )

    def _erasure_not_configured(self, versions: Sequence[int]) -> ErasureNotConfigured:
        return ErasureNotConfigured(
            f"version {versions[0]} of {self.feed.table} says that it erased persons, and the pipeline {self.name} has no "
            "register of erasures to check it against: nothing was applied",
            hint="add the `erasure` block of the project that erases, with its register and keys, to this configuration; "
            "in Python, give the pipeline a `guard`",
            table=self.feed.table,
            versions=list(versions[:20]),
        )

    def _replaced(self, what: str) -> TableReplaced:
        return TableReplaced(
            f"{self.feed.table} {what}: it was dropped and created again, or CREATE OR REPLACE TABLE was run",
            hint="its history does not continue the target's: name a new target table, "
            f"or make this one anew: `deltarelay run --reload -p {self.name}`",
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
        assert earliest is not None  # the feed is on: opened has checked
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
        """Compare source and target at the target's position; see ``cdf.verify.verify``."""
        return verify(self, show_keys=show_keys)


def _interrupted() -> Interrupted:
    return Interrupted("interrupted", hint="what was applied stays and the position is intact: run again to continue")


def _with_next(windows: Iterator[Window]) -> Iterator[tuple[Window, Callable[[Callable[[Window], None]], None]]]:
    """Each window, and a function that hands the one after it to whom it may concern.

    That one is looked for when the function is called. If it cannot be had, that is raised in its turn: what comes before it
    is applied.
    """
    found: list[Window] = []
    failed: list[Exception] = []

    def announce(tell: Callable[[Window], None]) -> None:
        try:
            found.extend(islice(windows, 1))
        except Exception as error:
            failed.append(error)
        for window in found:
            tell(window)

    while True:
        if failed:
            raise failed.pop()
        window = found.pop() if found else next(windows, None)
        if window is None:
            return
        yield window, announce
