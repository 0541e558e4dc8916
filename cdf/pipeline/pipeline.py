"""The data flow: read the position, read the changes after it, and let the sink apply them.

    pipeline.run()
        position = sink.open()                          where the target is; only the sink knows
        sink.load(snapshot)                             only while the target is empty
        for window in windows(position + 1 .. latest):  whole commits, one schema each
            sink.apply(window)                          rows and position in one durable step

The parts: ``context`` holds source and sink, ``preflight`` refuses what cannot be applied, ``windows`` groups commits,
``runner`` opens the sink and runs the steps.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cdf.changes.commits import Limits
from cdf.changes.window import Snapshot, Window
from cdf.pipeline.brakes import Brakes
from cdf.pipeline.context import PipelineContext
from cdf.pipeline.follow import Following
from cdf.pipeline.micro_batches import MicroBatches
from cdf.pipeline.plan import make_plan
from cdf.pipeline.reload import reload_target
from cdf.pipeline.runner import Runner
from cdf.pipeline.windows import list_windows
from cdf.results import Followed, Plan, RunResult, Step, Totals
from cdf.sink import Position, Sink

if TYPE_CHECKING:
    from cdf.sink.guard import Guard
    from cdf.source.table import ChangeFeed
    from cdf.verify.verify import Verification

__all__ = ["Pipeline"]


class Pipeline:
    """One source table, one sink.

    ``key`` names the columns that identify a row. ``start`` says where an empty target begins: ``"snapshot"`` (the latest
    version), ``"earliest"``, a version, or a time with a zone. A sink that holds state is loaded with the snapshot at that
    version and applies the feed from the next version on. A sink that holds history applies the feed from that version on
    (``"snapshot"``: after a baseline). Once the sink has a position, ``start`` is ignored. ``guard`` checks the rows of
    each step before the sink gets them. ``brakes`` stop a window that would delete or change too much of the target.
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
        brakes: Brakes | None = None,
    ) -> None:
        self.context = PipelineContext(
            feed=feed,
            sink=sink,
            key=(key,) if isinstance(key, str) else tuple(key),
            name=name or feed.table,
            start=start,
            limits=limits or Limits(),
            guard=guard,
            brakes=brakes or Brakes(),
        )
        self.context.parse_start()
        self.context.check_support()
        self.runner = Runner(self.context)

    @property
    def feed(self) -> ChangeFeed:
        return self.context.feed

    @property
    def sink(self) -> Sink:
        return self.context.sink

    @property
    def key(self) -> tuple[str, ...]:
        return self.context.key

    @property
    def name(self) -> str:
        return self.context.name

    # ── replicating ──────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self,
        until: int | str | dt.datetime | None = None,
        *,
        progress: Callable[[Step], None] | None = None,
        retries: int = 0,
    ) -> RunResult:
        """Catch up to the latest version at this moment (or to ``until``, a version or a time), and stop.

        Returns when everything is durable in the sink. Raises a CdfError if something must be refused; earlier steps stay
        applied, and the next run continues after them. ``progress`` is called after each durable step. ``retries``: how
        many attempts at the next step failed before this one, for the sink's run history.
        """
        began = time.monotonic()
        last = self.context.resolve_last_version(until)
        totals = Totals()
        with self.runner.open(last, retries=retries) as position:
            version = position.version
            for step in self.runner.steps(position, last):
                version = step.applied.position
                totals.add(step)
                if progress is not None:
                    progress(step)
            self.runner.record_success()
        return totals.result(self.name, self.feed.table, version, last, time.monotonic() - began)

    def interrupt(self) -> None:
        """End the ``run`` or ``reload`` of another thread: no further step begins, the sink's running step is cancelled.

        That thread gets ``Interrupted``, which the sink's run history records. Never raises. A cancelled statement may be
        followed by another one: call it again until the thread has ended. Final: a later run needs another Pipeline.
        """
        self.runner.interrupt()

    def reload(self, *, progress: Callable[[Step], None] | None = None, retries: int = 0) -> RunResult:
        """Rebuild the target from a snapshot at the latest version, then catch up as ``run`` does.

        For a target that a run can no longer update, or that ``verify`` found to differ. The target's position does not
        matter, nor whether the table was replaced. Readers see the old rows until they see the new ones. Rows without a
        position are refused, because no run has written them: adopt their position first.
        """
        began = time.monotonic()
        step = reload_target(self.runner, retries=retries)
        if progress is not None:
            progress(step)
        after = self.run(progress=progress)
        return replace(
            after,
            loaded_rows=step.applied.inserts,
            ddl=(*step.applied.ddl, *after.ddl),
            seconds=round(time.monotonic() - began, 3),
        )

    def follow(
        self,
        trigger: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[Followed], None] | None = None,
    ) -> Following:
        """Catch up, then ask the table's log for new commits at an interval, until the handle is stopped.

        Returns at once. ``trigger`` is ``{"processingTime": "1 second"}``, the interval (the default), or
        ``{"availableNow": True}``, which ends after catching up. ``progress`` is called after each durable step, in the
        handle's thread. Following waits for a database that became unreachable, and follows a new column. An error that
        needs a decision ends it, and ``await_termination`` raises that error.
        """
        return Following(self.runner, trigger=trigger or {"processingTime": "1 second"}, progress=progress)

    @contextmanager
    def foreach_batch(self, *, progress: Callable[[Followed], None] | None = None) -> Iterator[MicroBatches]:
        """For a streaming query of your own: the function for ``writeStream.foreachBatch``, over the open sink.

            with pipeline.foreach_batch() as apply:
                query = feed.stream(start_version=5).writeStream.foreachBatch(apply).option(...).start()
                query.awaitTermination()

        The query must read this pipeline's table and nothing else. Its micro-batches only show which versions are there:
        commits are always read as a whole, so the query's limits, options, filters, or an old checkpoint do no harm. The
        target is loaded and brought up to date first.

        Leaving the block ends the running window: it may finish within 30 seconds, then it is cancelled and rolled back,
        and the query fails.
        """
        self.context.require_classic("foreach_batch")
        last = self.context.resolve_last_version(None)
        with self.runner.open(last) as position:
            batches = MicroBatches(self.runner, position, progress=progress)
            # If a checkpoint is ahead of a target that was restored, the next micro-batch may be a long time away
            batches.advance(last)
            try:
                yield batches
            finally:
                batches.close()  # the sink is used from one thread at a time

    # ── reading only ─────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, until: int | str | dt.datetime | None = None) -> Plan:
        """What ``run`` would do: windows, counts per change type, DDL, problems and warnings. Writes nothing."""
        return make_plan(self.context, until)

    def verify(self, *, show_keys: bool = False) -> Verification:
        """Compare source and target at the target's position; see ``cdf.verify.verify``."""
        from cdf.verify.verify import verify  # a run needs neither it nor what it imports

        return verify(self.context, show_keys=show_keys)

    def windows(self, position: Position, last: int) -> Iterator[Window]:
        """The windows that a run from this position to ``last`` would apply."""
        return list_windows(self.context, position, last)

    def snapshot(self, version: int) -> Snapshot:
        """The source at a version, as a load would read it."""
        return self.context.snapshot(version)
