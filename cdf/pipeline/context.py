"""What the parts of a pipeline share: the source, the sink, and the decisions that depend only on these two."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from cdf.changes.commits import Commit, Limits
from cdf.changes.window import Snapshot, Window
from cdf.errors import CdfError, ConfigError, TableReplaced, VersionNotFound
from cdf.pipeline.brakes import Brakes
from cdf.sink import Position, Sink, Source
from cdf.source.bounds import Bound, parse_timestamp, resolve_end, resolve_start

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cdf.sink.guard import Guard
    from cdf.source.table import ChangeFeed

__all__ = ["PipelineContext"]

_Rows = TypeVar("_Rows", Window, Snapshot)


@dataclass(slots=True)
class PipelineContext:
    """One source table, one sink. ``cdf.pipeline.pipeline.Pipeline`` describes the fields."""

    feed: ChangeFeed
    sink: Sink
    key: tuple[str, ...]
    name: str
    start: str | int | dt.datetime
    limits: Limits
    guard: Guard | None
    brakes: Brakes

    # ── what the session must be ─────────────────────────────────────────────────────────────────────────────────

    def check_support(self) -> None:
        """Refuse what does not work over Spark Connect, while nothing has been written yet."""
        if self.sink.capabilities.needs_classic_session:
            self.require_classic(f"a {type(self.sink).__name__}")

    def require_classic(self, what: str) -> None:
        if self.feed.over_connect:
            raise ConfigError(
                f"{what} needs a classic Spark session, and {self.feed.table} is read over Spark Connect",
                hint="use a session with a JVM: local, spark-submit, or on the cluster's driver; over Spark Connect, "
                "`run` replicates into PostgreSQL, Kafka and audit trails",
            )

    def check_session(self) -> None:
        """Refuse a session that would alter rows, and executors that cannot run the tasks of the sink and the guard."""
        guard = () if self.guard is None else self.guard.executor_modules
        self.feed.check_session((*self.sink.capabilities.executor_modules, *guard))

    # ── what the sink gets ───────────────────────────────────────────────────────────────────────────────────────

    def describe_source(self, schema: StructType, standing: StructType | None = None) -> Source:
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

    def apply_guard(self, step: _Rows) -> _Rows:
        """Remove the rows that the guard holds back. The guard may also refuse the whole step with a CdfError."""
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
        return replace(left, filtered=True) if isinstance(left, Window) else left

    def find_erasures(self, commits: Sequence[Commit]) -> frozenset[int]:
        """The versions among these commits that erased persons, according to the guard."""
        return frozenset() if self.guard is None else self.guard.erased(commits, table=self.feed.table)

    # ── where a run starts and ends ──────────────────────────────────────────────────────────────────────────────

    def has_initial_load(self) -> bool:
        """Whether an empty target is loaded with a snapshot before the first window."""
        return self.sink.capabilities.holds == "state" or self.start == "snapshot"

    def parse_start(self) -> Bound | None:
        """``start`` as a bound; None for ``snapshot`` and ``earliest``. Raises ConfigError for anything else."""
        if self.start in ("snapshot", "earliest"):
            return None
        if isinstance(self.start, int):
            return Bound.of("start", version=self.start, timestamp=None)
        return Bound(timestamp=parse_timestamp(self.start, name="start"))

    def resolve_start_version(self) -> int:
        """The version at which an empty target begins."""
        bound = self.parse_start()
        if bound is not None:
            return resolve_start(self.feed.log, bound, table=self.feed.table)
        if self.start == "snapshot":
            return self.feed.log.latest()
        earliest = self.feed.status().earliest_version
        assert earliest is not None  # the preflight checks have found the feed enabled
        return earliest

    def resolve_last_version(self, until: int | str | dt.datetime | None) -> int:
        """The version at which a run stops: the latest one, or ``until``, a version or a time."""
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

    # ── whether a position belongs to the table ──────────────────────────────────────────────────────────────────

    def check_position(self, position: Position) -> None:
        """Refuse the position of another table, and a position beyond the latest version of this one."""
        with self.feed.log.cache_reads():
            table_id, latest = self.feed.log.metadata().table_id, self.feed.log.latest(refresh=False)
        if position.table_id is not None and position.table_id != table_id:
            raise self.table_replaced("is another table than the one the target was filled from")
        reached, verb = position.version, "is at"
        if position.pending is not None and position.pending.last > latest:
            reached, verb = position.pending.last, "has begun"
        if reached is not None and reached > latest:
            raise VersionNotFound(
                f"the target {verb} version {reached}, but {self.feed.table} ends at {latest}: "
                "the source was restored from an older copy",
                hint="restore the newer commits of the source, or reload the target: "
                f"`deltarelay run --reload -p {self.name}`",
                latest=latest,
            )

    def table_replaced(self, what: str) -> TableReplaced:
        """The error for a source that is no longer the table that the target was filled from."""
        return TableReplaced(
            f"{self.feed.table} {what}: it was dropped and created again, or CREATE OR REPLACE TABLE was run",
            hint="its history does not continue the target's: name a new target table, "
            f"or reload this one: `deltarelay run --reload -p {self.name}`",
            table=self.feed.table,
        )
