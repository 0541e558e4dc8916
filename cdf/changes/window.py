"""Whole commits, and the ranges of them that are applied together.

``cut`` decides where one window ends and the next begins. It is a pure function of the commits; everything that Delta's
own stream may tear apart (``facts``: an overwrite is delivered inserts first, in several micro-batches) stays together
because a commit is never divided.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    CONFLICTS,
    DELETE,
    INSERT,
    METADATA_COLUMNS,
    UPDATE,
)
from cdf.changes.keys import KeyFaults, violation_of
from cdf.errors import CdfError, ConfigError, KeyViolation
from cdf.read_errors import translate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.schema_diff import SchemaChange

__all__ = ["Commit", "Metadata", "Limits", "Window", "Snapshot", "cut", "commit_of_inserts", "COUNTED"]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's metadata as of some version."""

    table_id: str
    schema: StructType
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def feed_enabled(self) -> bool:
        return self.properties.get("delta.enableChangeDataFeed", "false").lower() == "true"


COUNTED = {"inserts": INSERT, "updates": UPDATE, "deletes": DELETE}
"""The names under which a net effect's changes are counted."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the source, as its commit file tells it; also those that change no row."""

    version: int
    timestamp: dt.datetime
    operation: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    user: str | None = None
    user_metadata: str | None = None
    change_files: int = 0
    change_bytes: int = 0
    """Size of the files that the feed reads for this commit; 0 for a commit that changes no row."""
    atomic: bool = False
    """The commit wrote change files of its own (``cdc`` actions): Delta's stream never delivers a part of it."""
    metadata: Metadata | None = None
    """Set where the commit writes new table metadata (also when only a property changed)."""
    erasing: bool = False
    """It erased somebody, as the pipeline's guard knows: what keeps history keeps no image of its rows from before."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one window may hold. A commit above the limit is a window of its own."""

    max_commits: int = 500
    max_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.max_commits < 1 or self.max_bytes < 1:
            raise ConfigError("window limits must be at least 1", hint="set max_commits and max_bytes to 1 or more")


def cut(
    commits: Iterable[Commit],
    limits: Limits,
    *,
    starts_segment: Callable[[Commit], bool],
    ends_segment: Callable[[Commit], bool] = lambda _: False,
) -> Iterator[tuple[Commit, ...]]:
    """Group consecutive commits into windows.

    A new window starts at a commit for which ``starts_segment`` is true (a schema change: that commit's rows already have
    the new schema), after one for which ``ends_segment`` is (it erased somebody: the target is to show what came of it),
    and wherever a limit would be passed. Commits are consumed lazily, one beyond the window at most.
    """
    group: list[Commit] = []
    size = 0
    for commit in commits:
        full = len(group) >= limits.max_commits or size + commit.change_bytes > limits.max_bytes
        # starts_segment is asked for every commit, in order: it may keep the schema in force as its state
        border = starts_segment(commit)
        if group and (full or border or ends_segment(group[-1])):
            yield tuple(group)
            group, size = [], 0
        group.append(commit)
        size += commit.change_bytes
    if group:
        yield tuple(group)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A closed range of whole commits of one table, with one schema."""

    table: str
    table_id: str
    schema: StructType
    key: tuple[str, ...]
    commits: tuple[Commit, ...]
    """Every commit of the range, also those without rows."""
    read: Callable[[], DataFrame] = field(repr=False)
    """The feed's rows: the schema's columns, then ``cdf.changes.columns.METADATA_COLUMNS``. Rows come in no order."""
    commit_sha256: Callable[[int], str] = field(repr=False)
    """SHA-256 (hex) of the commit file of a version; read when asked."""
    confirm: Callable[[], None] = field(repr=False, default=lambda: None)
    """Call it after the rows were read and before anything is durable: raises VersionsExpired where commit files went
    away meanwhile, TableReplaced where the table was made again. Delta lists the log anew when the rows are read, and reads
    across a gap without a word."""
    table_bytes: Callable[[], int] | None = field(repr=False, default=None)
    """Size of the table's files as of ``last``; asks the log when called."""
    rows_in: Callable[[], int | None] = field(repr=False, default=lambda: None)
    """The number of the feed's rows, once they were read; None where they were not counted on the way."""
    drift: tuple[SchemaChange, ...] = ()
    """What its first commit changed in the schema: the rows before this window have the schema from before it."""
    whole: Callable[[], Snapshot] | None = field(repr=False, default=None)
    """The table as of ``last``: for a sink to which that is cheaper than these changes. None: it cannot be had."""
    filtered: bool = False
    """A guard leaves rows out: what remains may contradict itself and the target."""

    @property
    def first(self) -> int:
        return self.commits[0].version

    @property
    def last(self) -> int:
        return self.commits[-1].version

    @property
    def change_bytes(self) -> int:
        return sum(commit.change_bytes for commit in self.commits)

    @property
    def has_changes(self) -> bool:
        """False where the log alone shows that no row changed (OPTIMIZE, VACUUM, properties)."""
        return any(commit.change_files for commit in self.commits)

    def net(self, *, transients: bool = False) -> DataFrame:
        """At most one change per key, equal in result to the sequence; see ``cdf.changes.net_spark``. ``transients``:
        with the keys that
        the window inserts first and deletes last, under which the target must hold no row."""
        from cdf.changes.net_spark import net_effect

        return net_effect(self.read(), self.key, transients=transients)

    def everything(self) -> Any:
        """All rows, for a guard: a DataFrame; of rows in memory an Arrow table."""
        return self.read()

    def without(self, leave_out: Callable[[Any], Any]) -> Self:
        """The same, with what ``leave_out`` makes of ``everything``."""
        return replace(self, read=lambda: leave_out(self.read()))

    def collect(self) -> pa.Table:
        """The rows of ``read``, in memory. Raises what ``failure`` makes of an error, as the three below."""
        return _collected(self, self.read)

    def collect_net(self, *, transients: bool = False) -> pa.Table:
        """The rows of ``net``, in memory."""
        return _collected(self, lambda: self.net(transients=transients))

    def iterate(self) -> Iterator[dict[str, Any]]:
        """The rows of ``read`` one by one, with a part of them in memory at a time. Values are those of Spark's rows."""
        return _iterated(self, self.read)

    def iterate_net(self, *, transients: bool = False) -> Iterator[dict[str, Any]]:
        """The rows of ``net`` one by one, as ``iterate``."""
        return _iterated(self, lambda: self.net(transients=transients))

    def project(self, columns: Mapping[str, str], schema: StructType) -> Self:
        """The window of these columns alone (present name: name in ``schema``).

        A key column that is not among them keeps its name: what is wrong with the choice is reported elsewhere.
        """
        key = tuple(columns.get(name, name) for name in self.key)
        chosen = _chosen(self.read, {**columns, **{name: name for name in METADATA_COLUMNS}})
        return replace(self, schema=schema, key=key, read=chosen)

    def count_changes(self) -> dict[str, int]:
        """How many of the feed's rows there are of each type."""
        try:
            rows = self.read().groupBy(CHANGE_TYPE).count().collect()
        except Exception as error:
            raise self.failure(error) from error
        return {row[CHANGE_TYPE]: int(row["count"]) for row in rows}

    def count_net(self) -> tuple[dict[str, int], int]:
        """How many inserts, updates and deletes the net effect has, and how many changes contradict each other. Reads the
        key columns only."""
        from pyspark.sql import functions as F

        from cdf.changes.columns import quoted
        from cdf.changes.net_spark import net_effect

        try:
            keys = self.read().select(*map(quoted, (*self.key, *METADATA_COLUMNS)))
            net = net_effect(keys, self.key).groupBy(CHANGE_TYPE).agg(F.count("*"), F.sum(CONFLICTS)).collect()
        except Exception as error:
            raise self.failure(error) from error
        counts = {kind: int(rows) for kind, rows, _ in net}
        conflicts = sum(int(found or 0) for _, _, found in net)
        return {name: counts.get(kind, 0) for name, kind in COUNTED.items()}, conflicts

    def refuse_key_changes(self) -> None:
        """Raises KeyViolation where an update changes the key of a row: its images have two different keys."""
        from cdf.changes.keys import key_violation
        from cdf.changes.net_spark import first_key_change

        try:
            version = first_key_change(self.read(), self.key) if self.has_changes else None
        except Exception as error:
            raise self.failure(error) from error
        if version is not None:
            raise key_violation("key_changed", version, table=self.table, key=self.key)

    def failure(self, error: Exception) -> CdfError:
        """What stopped a Spark job over this window's rows, in words; a CdfError is handed back as it is."""
        return _failure(error, self.table, self.key, self.first, self.last)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The whole table at one version."""

    table: str
    table_id: str
    schema: StructType
    key: tuple[str, ...]
    version: int
    read: Callable[[], DataFrame] = field(repr=False)
    timestamp: dt.datetime | None = None
    """When that version was committed; None where the log no longer tells."""

    def everything(self) -> Any:
        """All rows, for a guard: a DataFrame; of rows in memory an Arrow table."""
        return self.read()

    def without(self, leave_out: Callable[[Any], Any]) -> Self:
        """The same, with what ``leave_out`` makes of ``everything``."""
        return replace(self, read=lambda: leave_out(self.read()))

    def collect(self) -> pa.Table:
        """The rows, in memory. Raises what ``failure`` makes of an error, as ``iterate``."""
        return _collected(self, self.read)

    def iterate(self) -> Iterator[dict[str, Any]]:
        """The rows one by one, with a part of them in memory at a time. Values are those of Spark's rows."""
        return _iterated(self, self.read)

    def project(self, columns: Mapping[str, str], schema: StructType) -> Self:
        """The snapshot of these columns alone, as ``Window.project``."""
        key = tuple(columns.get(name, name) for name in self.key)
        return replace(self, schema=schema, key=key, read=_chosen(self.read, columns))

    def with_keys(self, digests: Collection[str]) -> Self:
        """The snapshot of the rows under these keys alone, which are given by their digests (``cdf.changes.canonical``)."""
        return replace(self, read=lambda: _with_keys(self, digests))

    def as_inserts(self) -> Window:
        """The rows as the inserts of one commit, for a sink that can write them as it writes a window's."""
        commit, read = commit_of_inserts(self), self.read

        def inserts() -> DataFrame:
            from pyspark.sql import functions as F

            return read().select(
                "*",
                F.lit(INSERT).alias(CHANGE_TYPE),
                F.lit(self.version).cast("bigint").alias(COMMIT_VERSION),
                F.lit(self.timestamp).cast("timestamp").alias(COMMIT_TIMESTAMP),
            )

        return Window(self.table, self.table_id, self.schema, self.key, (commit,), inserts, commit_sha256=lambda _: "")

    def count(self) -> int:
        try:
            return self.read().count()
        except Exception as error:
            raise self.failure(error) from error

    def key_faults(self) -> KeyFaults:
        """Count null and duplicate keys: one pass over the key columns."""
        from cdf.changes.net_spark import count_key_faults

        return count_key_faults(self.read(), self.key)

    def key_violation(self) -> KeyViolation | None:
        """What ``key_faults`` found, as an error; None: each row has a key of its own."""
        faults = self.key_faults()
        parts = []
        if faults.duplicate_keys:
            parts.append(f"{faults.duplicate_keys} keys occur more than once")
        if faults.null_rows:
            parts.append(f"{faults.null_rows} rows have a null in the key")
        if not parts:
            return None
        return KeyViolation(
            f"version {self.version} of {self.table} cannot be keyed by ({', '.join(self.key)}): "
            + " and ".join(parts),
            hint="name the columns that identify a row, or repair the source and start at a later version",
            table=self.table,
            version=self.version,
            duplicate_keys=faults.duplicate_keys,
            null_rows=faults.null_rows,
        )

    def failure(self, error: Exception) -> CdfError:
        """What stopped a Spark job over these rows, in words; a CdfError is handed back as it is."""
        return _failure(error, self.table, self.key, self.version, self.version)


def _failure(error: Exception, table: str, key: tuple[str, ...], first: int, last: int) -> CdfError:
    return violation_of(error, table=table, key=key) or translate(error, table=table, first=first, last=last)


def _collected(of: Window | Snapshot, read: Callable[[], DataFrame]) -> pa.Table:
    try:
        return read().toArrow()
    except Exception as error:
        # Spark's own text may carry row values: it stays behind, as the cause
        raise of.failure(error) from error


def _iterated(of: Window | Snapshot, read: Callable[[], DataFrame]) -> Iterator[dict[str, Any]]:
    try:
        for row in read().toLocalIterator():
            yield row.asDict()
    except Exception as error:
        raise of.failure(error) from error


def _chosen(read: Callable[[], DataFrame], columns: Mapping[str, str]) -> Callable[[], DataFrame]:
    def chosen() -> DataFrame:
        from cdf.changes.columns import quoted

        return read().select(*(quoted(name).alias(target) for name, target in columns.items()))

    return chosen


def _with_keys(snapshot: Snapshot, digests: Collection[str]) -> DataFrame:
    from pyspark.sql import functions as F

    from cdf.changes.canonical import key_digest, plain_decimals

    wanted = snapshot.read()
    of = wanted.sparkSession.createDataFrame([(digest,) for digest in digests], "_digest string")
    with plain_decimals(wanted.sparkSession):
        marked = wanted.withColumn("_deltarelay_digest", key_digest(snapshot.schema, snapshot.key))
    found = marked.join(F.broadcast(of), marked["_deltarelay_digest"] == of["_digest"], "left_semi")
    return found.drop("_deltarelay_digest")


def commit_of_inserts(snapshot: Snapshot) -> Commit:
    """The commit of ``as_inserts``. Its size is not known: it is taken for a large one."""
    at = snapshot.timestamp or dt.datetime.fromtimestamp(0, dt.UTC)
    return Commit(snapshot.version, at, change_files=1, change_bytes=2**62)
