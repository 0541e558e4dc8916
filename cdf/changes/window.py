"""What a sink gets: the changes of a range of commits (``Window``), or the whole table at one version (``Snapshot``).

One module, because each of them can become the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping
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
from cdf.changes.commits import Commit
from cdf.changes.keys import KeyFaults, violation_of
from cdf.changes.plain_files import PlainFiles, RowsOfFiles, SelectedRows
from cdf.errors import CdfError, KeyViolation
from cdf.read_errors import translate
from cdf.spark_versions import collect_arrow, iterate_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cdf.changes.schema_diff import SchemaChange

__all__ = ["COUNTED", "Snapshot", "Window", "WindowSource", "commit_of_inserts"]

COUNTED = {"inserts": INSERT, "updates": UPDATE, "deletes": DELETE}
"""The names under which a net effect's changes are counted."""


class WindowSource:
    """What a window can find out about its table. The defaults are those of a window that comes from no table."""

    __slots__ = ()

    @property
    def has_snapshot(self) -> bool:
        """Whether ``snapshot`` and ``table_bytes`` are available."""
        return False

    def snapshot(self) -> Snapshot:
        """The table at the window's last version."""
        raise NotImplementedError

    def table_bytes(self) -> int:
        """Size of the table's files at the window's last version. Reads the log."""
        raise NotImplementedError

    def commit_sha256(self, version: int) -> str:  # noqa: ARG002
        """SHA-256 (hex) of the commit file of a version. Reads the file."""
        return ""

    def confirm(self) -> None:
        """Raise if the rows that were read may be incomplete; see ``Window.confirm``."""
        return


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
    """The feed's rows, in no order: the schema's columns, then ``cdf.changes.columns.METADATA_COLUMNS``."""
    source: WindowSource = field(repr=False, default=WindowSource())
    rows_in: Callable[[], int | None] = field(repr=False, default=lambda: None)
    """The number of the feed's rows, after they were read; None: they were not counted."""
    drift: tuple[SchemaChange, ...] = ()
    """The schema changes of the first commit: the rows before this window have the schema before these changes."""
    filtered: bool = False
    """The guard removes rows: the remaining ones may contradict each other and the target."""

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
        """False if the log alone shows that no row changed (OPTIMIZE, VACUUM, properties)."""
        return any(commit.change_files for commit in self.commits)

    @property
    def has_snapshot(self) -> bool:
        """Whether a sink may copy the table (``snapshot``) instead of applying the changes, if that is cheaper."""
        return self.source.has_snapshot and not self.filtered

    def snapshot(self) -> Snapshot:
        """The table at ``last``. Only if ``has_snapshot``."""
        return self.source.snapshot()

    def table_bytes(self) -> int:
        """Size of the table's files at ``last``. Only if ``has_snapshot``; reads the log."""
        return self.source.table_bytes()

    def commit_sha256(self, version: int) -> str:
        """SHA-256 (hex) of the commit file of a version. Reads the file."""
        return self.source.commit_sha256(version)

    def confirm(self) -> None:
        """To be called after the rows were read and before anything is durable.

        Raises VersionsExpired if commit files disappeared meanwhile, and TableReplaced if the table was created again:
        Delta lists the log again when the rows are read, and reads across a gap without an error.
        """
        self.source.confirm()

    def net(self, *, transients: bool = False) -> DataFrame:
        """At most one change per key, with the same result as the sequence; see ``cdf.changes.net_spark``.

        ``transients``: include the keys that the window first inserts and finally deletes; the target must not hold a row
        under them.
        """
        from cdf.changes.net_spark import net_effect

        self.refuse_missing_images()
        return net_effect(self.read(), self.key, transients=transients)

    def everything(self) -> Any:
        """All rows, for a guard: a DataFrame; of rows in memory an Arrow table."""
        return self.read()

    def without(self, leave_out: Callable[[Any], Any]) -> Self:
        """The same, with its rows replaced by ``leave_out(everything())``."""
        return replace(self, read=lambda: leave_out(self.read()))

    def collect(self) -> pa.Table:
        """The rows of ``read``, in memory. An error is raised as ``failure`` translates it, also by the next three."""
        return _collect(self, self.read)

    def collect_net(self, *, transients: bool = False) -> pa.Table:
        """The rows of ``net``, in memory."""
        return _collect(self, lambda: self.net(transients=transients))

    def iterate(self) -> Iterator[dict[str, Any]]:
        """The rows of ``read`` one by one, with only a part of them in memory. Values are those of Spark's rows."""
        return _iterate(self, self.read)

    def iterate_net(self, *, transients: bool = False) -> Iterator[dict[str, Any]]:
        """The rows of ``net`` one by one, like ``iterate``."""
        return _iterate(self, lambda: self.net(transients=transients))

    def project(self, columns: Mapping[str, str], schema: StructType) -> Self:
        """The window with only these columns (present name → name in ``schema``).

        A key column that is not among them keeps its name: the sink's inspection reports that.
        """
        key = tuple(columns.get(name, name) for name in self.key)
        selected = _select(self.read, {**columns, **{name: name for name in METADATA_COLUMNS}})
        return replace(self, schema=schema, key=key, read=selected)

    def count_changes(self) -> dict[str, int]:
        """The number of the feed's rows by change type."""
        try:
            rows = self.read().groupBy(CHANGE_TYPE).count().collect()
        except Exception as error:
            raise self.failure(error) from error
        return {row[CHANGE_TYPE]: int(row["count"]) for row in rows}

    def count_net(self) -> tuple[dict[str, int], int]:
        """The number of inserts, updates and deletes in the net effect, and the number of contradictory changes.

        Reads the key columns only.
        """
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

    def plain_files(self) -> PlainFiles | None:
        """The files that hold exactly the feed's rows, to decode instead of calling ``read``; None: no files do."""
        try:
            return self.read.find_files() if isinstance(self.read, RowsOfFiles) else None
        except Exception as error:
            raise self.failure(error) from error

    def refuse_key_changes(self) -> None:
        """Raise KeyViolation if an update changes the key of a row: its images have two different keys."""
        from cdf.changes.keys import key_violation
        from cdf.changes.net_spark import first_unpaired_image

        try:
            version = first_unpaired_image(self.read(), self.key) if self.has_changes else None
        except Exception as error:
            raise self.failure(error) from error
        if version is not None:
            raise key_violation("key_changed", version, table=self.table, key=self.key)

    def refuse_missing_images(self, rows: pa.Table | None = None) -> None:
        """Raise KeyViolation if a version has updates without their old or new row: the net effect would be wrong.

        ``rows``: all rows, if they are in memory. Otherwise they are read, if one of the writers is not Delta itself.
        """
        from cdf.changes import net_arrow, net_spark
        from cdf.changes.keys import key_violation

        if self.filtered or (rows is None and not any(commit.may_lack_images for commit in self.commits)):
            return
        try:
            find = net_spark.first_unpaired_image
            version = find(self.read()) if rows is None else net_arrow.first_unpaired_image(rows)
        except Exception as error:
            raise self.failure(error) from error
        if version is not None:
            engine = next((commit.engine for commit in self.commits if commit.version == version), None)
            raise key_violation("image_missing", version, table=self.table, key=self.key, engine=engine)

    def failure(self, error: Exception) -> CdfError:
        """Translate the error of a Spark job over this window's rows. A CdfError is returned unchanged."""
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
    """When that version was committed; None: the log no longer has it."""

    def everything(self) -> Any:
        """All rows, for a guard: a DataFrame; of rows in memory an Arrow table."""
        return self.read()

    def without(self, leave_out: Callable[[Any], Any]) -> Self:
        """The same, with its rows replaced by ``leave_out(everything())``."""
        return replace(self, read=lambda: leave_out(self.read()))

    def collect(self) -> pa.Table:
        """The rows, in memory. An error is raised as ``failure`` translates it, also by ``iterate``."""
        return _collect(self, self.read)

    def iterate(self) -> Iterator[dict[str, Any]]:
        """The rows one by one, with only a part of them in memory. Values are those of Spark's rows."""
        return _iterate(self, self.read)

    def project(self, columns: Mapping[str, str], schema: StructType) -> Self:
        """The snapshot with only these columns; see ``Window.project``."""
        key = tuple(columns.get(name, name) for name in self.key)
        return replace(self, schema=schema, key=key, read=_select(self.read, columns))

    def with_keys(self, digests: Collection[str]) -> Self:
        """The snapshot with only the rows under these keys, given by their digests (``cdf.changes.canonical``)."""
        return replace(self, read=lambda: _filter_keys(self, digests))

    def as_inserts(self) -> Window:
        """The rows as the inserts of one commit, for a sink that writes them like a window's rows."""
        commit, read = commit_of_inserts(self), self.read

        def inserts() -> DataFrame:
            from pyspark.sql import functions as F

            return read().select(
                "*",
                F.lit(INSERT).alias(CHANGE_TYPE),
                F.lit(self.version).cast("bigint").alias(COMMIT_VERSION),
                F.lit(self.timestamp).cast("timestamp").alias(COMMIT_TIMESTAMP),
            )

        return Window(self.table, self.table_id, self.schema, self.key, (commit,), inserts)

    def plain_files(self) -> PlainFiles | None:
        """The files that hold exactly these rows, to decode instead of calling ``read``; None: no files do."""
        try:
            return self.read.find_files() if isinstance(self.read, RowsOfFiles) else None
        except Exception as error:
            raise self.failure(error) from error

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
        """The faults that ``key_faults`` finds, as an error; None: each row has its own key."""
        faults = self.key_faults()
        parts = []
        if faults.duplicate_keys:
            parts.append(f"{faults.duplicate_keys} keys occur more than once")
        if faults.null_rows:
            parts.append(f"{faults.null_rows} rows have a null in the key")
        if not parts:
            return None
        return KeyViolation(
            f"version {self.version} of {self.table} cannot use the key ({', '.join(self.key)}): "
            + " and ".join(parts),
            hint="name the columns that identify a row, or repair the source and start at a later version",
            table=self.table,
            version=self.version,
            duplicate_keys=faults.duplicate_keys,
            null_rows=faults.null_rows,
        )

    def failure(self, error: Exception) -> CdfError:
        """Translate the error of a Spark job over these rows. A CdfError is returned unchanged."""
        return _failure(error, self.table, self.key, self.version, self.version)


def _failure(error: Exception, table: str, key: tuple[str, ...], first: int, last: int) -> CdfError:
    return violation_of(error, table=table, key=key) or translate(error, table=table, first=first, last=last)


def _collect(of: Window | Snapshot, read: Callable[[], DataFrame]) -> pa.Table:
    try:
        return collect_arrow(read())
    except Exception as error:
        # Spark's own text may quote row values: it is kept as the cause only
        raise of.failure(error) from error


def _iterate(of: Window | Snapshot, read: Callable[[], DataFrame]) -> Iterator[dict[str, Any]]:
    try:
        for row in iterate_rows(read()):
            yield row.asDict()
    except Exception as error:
        raise of.failure(error) from error


def _select(read: Callable[[], DataFrame], columns: Mapping[str, str]) -> Callable[[], DataFrame]:
    if isinstance(read, RowsOfFiles):
        return SelectedRows(read, columns)

    def select() -> DataFrame:
        from cdf.changes.columns import quoted

        return read().select(*(quoted(name).alias(target) for name, target in columns.items()))

    return select


def _filter_keys(snapshot: Snapshot, digests: Collection[str]) -> DataFrame:
    from pyspark.sql import functions as F

    from cdf.changes.canonical import key_digest, plain_decimals

    wanted = snapshot.read()
    of = wanted.sparkSession.createDataFrame([(digest,) for digest in digests], "_digest string")
    with plain_decimals(wanted.sparkSession):
        marked = wanted.withColumn("_deltarelay_digest", key_digest(snapshot.schema, snapshot.key))
    found = marked.join(F.broadcast(of), marked["_deltarelay_digest"] == of["_digest"], "left_semi")
    return found.drop("_deltarelay_digest")


def commit_of_inserts(snapshot: Snapshot) -> Commit:
    """The commit of ``as_inserts``. Its size is unknown: it is treated as a large one."""
    at = snapshot.timestamp or dt.datetime.fromtimestamp(0, dt.UTC)
    return Commit(snapshot.version, at, change_files=1, change_bytes=2**62)
