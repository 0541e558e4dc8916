"""One Delta table as a source of changes: enable and inspect its change feed, read it as batch, stream or snapshot."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import quote_name
from cdf.changes.window import Snapshot, Window
from cdf.errors import CdfError, ConfigError
from cdf.lag import DEFAULT_RETENTION, parse_interval
from cdf.result import Result
from cdf.session import has_delta_classes
from cdf.source import batch_reader as batch
from cdf.source import stream_reader as stream
from cdf.source.bounds import Bound, resolve_end, resolve_start
from cdf.source.plain_files import FeedRows, TableRows
from cdf.source.single_writer import commit_alone, require_writer
from cdf.source.snapshot_reader import read_snapshot
from cdf.source.table_handle import FEED_PROPERTY, TableHandle, is_path, translate_table_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from cdf.changes.commits import Commit

__all__ = ["ChangeFeed", "FeedStatus", "FeedEnabled"]

SESSION_DEFAULT = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"


@dataclass(frozen=True, slots=True)
class FeedEnabled(Result):
    table: str
    since_version: int
    """Changes can be read from this version on; rows written before are in a snapshot only."""
    changed: bool
    """False if the feed was already on."""
    warnings: tuple[str, ...] = ()
    """Commits of other writers, although ``commits: single_writer`` promises that there are none."""


@dataclass(frozen=True, slots=True)
class FeedStatus(Result):
    table: str
    location: str
    table_id: str
    enabled: bool
    since_version: int | None
    """The version since which the feed has been on without interruption."""
    earliest_version: int | None
    """The earliest version from which changes can be read now."""
    latest_version: int
    latest_timestamp: dt.datetime | None
    gaps: tuple[int, ...]
    """Commit files that are missing between older and newer ones."""
    deleted_file_retention: str
    log_retention: str
    notes: tuple[str, ...] = ()


class ChangeFeed(TableHandle):
    """The change feed of one Delta table.

    ``table`` is a path (``/data/customers``), a URL (``s3a://…``) or a catalog name (``sales.customers``). The caller
    provides the session; it is neither created nor configured here.
    """

    def __repr__(self) -> str:
        return f"ChangeFeed({self.table!r})"

    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned."""
        detail = self.spark.sql(f"describe detail delta.{quote_name(self.location)}").select("partitionColumns").first()
        return tuple(detail["partitionColumns"]) if detail else ()

    # ── turning the feed on ──────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def enable_by_default(spark: SparkSession) -> None:
        """Turn the feed on for every Delta table that this session creates from now on."""
        spark.conf.set(SESSION_DEFAULT, "true")

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        table: str,
        schema: StructType,
        *,
        partitioned_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> ChangeFeed:
        """Create an empty Delta table with the feed on from its first version."""
        from delta.tables import DeltaTable

        if not has_delta_classes(spark):
            raise ConfigError(
                f"{table} cannot be created by this session, which does not reach Delta's own classes",
                hint=f"use SQL: CREATE TABLE … USING delta TBLPROPERTIES ('{FEED_PROPERTY}' = 'true')",
            )
        require_writer(spark, table)
        builder = DeltaTable.create(spark).addColumns(schema).property(FEED_PROPERTY, "true")
        builder = builder.location(table) if is_path(table) else builder.tableName(table)
        for name, value in (properties or {}).items():
            builder = builder.property(name, value)
        if partitioned_by:
            builder = builder.partitionedBy(*partitioned_by)
        if comment is not None:
            builder = builder.comment(comment)
        try:
            builder.execute()
        except Exception as error:
            raise translate_table_error(error, table, "cannot be created") from error
        return cls(spark, table)

    def enable(self) -> FeedEnabled:
        """Turn the feed on for an existing table; does nothing if it is already on."""
        before = self.log.metadata()
        warnings: tuple[str, ...] = ()
        if not before.feed_enabled:
            require_writer(self.spark, self.location)
            statement = f"alter table delta.{quote_name(self.location)} set tblproperties ('{FEED_PROPERTY}' = 'true')"
            try:
                warnings = commit_alone(self.spark, self.log, "feed enable", lambda: self.spark.sql(statement))
            except CdfError:
                raise
            except Exception as error:
                raise translate_table_error(error, self.table, "cannot have its change feed enabled") from error
        since, _ = self._feed_periods()
        assert since is not None
        return FeedEnabled(self.table, since, changed=not before.feed_enabled, warnings=warnings)

    # ── inspecting it ────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> FeedStatus:
        latest = self.log.latest()
        metadata = self.log.metadata()
        listing = self.log.listing()
        times = self.log.times()
        since, notes = self._feed_periods()
        retention = metadata.properties.get("delta.deletedFileRetentionDuration", DEFAULT_RETENTION)
        earliest: int | None = None
        if since is not None:
            earliest = max(since, listing.readable)
            # Delta refuses batch reads of the feed that start before now - deletedFileRetentionDuration (since 4.1)
            horizon = dt.datetime.now(dt.UTC) - parse_interval(retention)
            while earliest < latest and times[earliest] < horizon:
                earliest += 1
        return FeedStatus(
            table=self.table,
            location=self.location,
            table_id=metadata.table_id,
            enabled=metadata.feed_enabled,
            since_version=since,
            earliest_version=earliest,
            latest_version=latest,
            latest_timestamp=times.get(latest),
            gaps=listing.gaps,
            deleted_file_retention=retention,
            log_retention=metadata.properties.get("delta.logRetentionDuration", "interval 30 days"),
            notes=notes,
        )

    def _feed_periods(self) -> tuple[int | None, tuple[str, ...]]:
        """The version since which the feed has been on, and a note for each time that it was turned off before."""
        first = self.log.listing().readable
        periods = [(first, self.log.metadata(first).feed_enabled)]
        changes = self.log.metadata_commits(first + 1, self.log.latest())
        periods += [(version, metadata.feed_enabled) for version, metadata in changes]
        since: int | None = None
        notes: list[str] = []
        for version, enabled in periods:
            if enabled and since is None:
                since = version
            elif not enabled and since is not None:
                notes.append(f"the feed was on from version {since} to {version - 1} and turned off at {version}")
                since = None
        return since, tuple(notes)

    # ── reading it ───────────────────────────────────────────────────────────────────────────────────────────────

    def read(
        self,
        *,
        start_version: int | None = None,
        end_version: int | None = None,
        start_timestamp: dt.datetime | str | None = None,
        end_timestamp: dt.datetime | str | None = None,
    ) -> DataFrame:
        """The changes of a closed range as a batch DataFrame: the table's columns, then Delta's three metadata columns.

        One start is required, one end is optional (default: the latest version at this moment); a version may be combined
        with a time. Bounds follow Delta's rules: a start timestamp means the first commit at or after it, an end timestamp
        the last commit at or before it, an end version beyond the latest means the latest, anything else outside the
        table's history is an error. Timestamps must have a zone. Every silent trap of Delta's own reader is an error here:
        missing commit files, an expired start, a feed that was off for a part of the range, ``ignoreMissingFiles``.
        """
        start = Bound.of("start", version=start_version, timestamp=start_timestamp)
        end = Bound.of("end", version=end_version, timestamp=end_timestamp)
        if start is None:
            raise ConfigError(
                "no start is given",
                hint="pass start_version= or start_timestamp=",
                condition="DELTA_NO_START_FOR_CDC_READ",
            )
        first = resolve_start(self.log, start, table=self.table)
        last = resolve_end(self.log, end, table=self.table)
        both_times = end is not None and start.timestamp is not None and end.timestamp is not None
        if both_times and first == last + 1 and start.timestamp <= end.timestamp:  # type: ignore[operator,union-attr]
            # Both times are between the same two commits: the range is empty, as in Delta.
            return batch.read_range(self, last, last).limit(0)
        if last < first:
            raise ConfigError(
                f"the range ends (version {last}) before it starts (version {first})",
                hint="swap the bounds, or leave out the end",
                condition="DELTA_INVALID_CDC_RANGE",
            )
        return batch.read_range(self, first, last)

    def stream(
        self,
        *,
        start_version: int | str | None = None,
        start_timestamp: dt.datetime | str | None = None,
        max_files_per_trigger: int | None = None,
        max_bytes_per_trigger: str | int | None = None,
        **options: Any,
    ) -> DataFrame:
        """The feed as a streaming DataFrame of Spark's own ``readStream``.

        Without a start Delta delivers the table's rows as inserts first. ``start_version="latest"`` is resolved to a
        number now, because Delta would resolve it again on every restart until data arrive; give a query that will be
        restarted from its checkpoint the same number each time (``status().latest_version`` of the first time). Further
        ``options`` have Delta's names; unknown options, and those that Delta ignores with the feed, are refused. A
        micro-batch of a limited stream may hold a part of a commit, with the inserts before the deletes: ordering by
        ``_commit_version`` is not enough to apply it. ``Pipeline`` handles that.
        """
        return stream.read_stream(
            self,
            start=Bound.of("start", version=start_version, timestamp=start_timestamp),
            max_files_per_trigger=max_files_per_trigger,
            max_bytes_per_trigger=max_bytes_per_trigger,
            options=options,
        )

    def snapshot(self, version: int | None = None) -> DataFrame:
        """The table's rows at a version (default: the latest)."""
        return read_snapshot(self, self.log.latest() if version is None else version)

    def window(self, commits: tuple[Commit, ...], schema: StructType, **fields: Any) -> Window:
        """The changes of these commits, for a caller that has checked that the feed was on. ``fields``: those of Window."""
        read = FeedRows(self, commits, tuple(schema.fieldNames()))
        return Window(table=self.table, schema=schema, commits=commits, read=read, **fields)

    def keyed_snapshot(self, version: int, key: tuple[str, ...]) -> Snapshot:
        """The table at a version, for a sink."""
        metadata = self.log.metadata(version)
        return Snapshot(
            table=self.table,
            table_id=metadata.table_id,
            schema=metadata.schema,
            key=key,
            version=version,
            read=TableRows(self, version),
            timestamp=self.log.times().get(version),
        )
