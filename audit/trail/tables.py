"""The Delta tables of one trail; all writes to them go through ``TrailTables``.

    events    one row per change, append-only: what happened, when, and the hashes that prove it
    payload   the values of the rows, apart from the events so that they can be removed
    ledger    one record per commit of the source, append-only: its hash covers all events of the commit

Each table has an **epoch**, a fencing token: the transaction version under one fixed application id. A runner that opens the
trail writes the next epoch into each table; from then on Delta ignores the writes of earlier runners. Delta reports no error
for an ignored write, so each write is looked up in the log afterwards.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from audit.trail.column_history import SEALED
from audit.trail.position import MAINTENANCE_OPERATIONS
from audit.trail.redaction import parse_object
from cdf.changes.columns import quote_name
from cdf.errors import Fenced, TableNotFound, TargetNotReady, condition_of
from cdf.session import is_connect, require_classic
from cdf.source.log import TableLog
from cdf.spark_versions import create_from_arrow, create_session

if TYPE_CHECKING:
    import pyarrow as pa
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from cdf.changes.commits import Commit

__all__ = [
    "EVENT",
    "EVENTS",
    "LEDGER",
    "PAYLOAD",
    "RECORD",
    "STORED_EVENT",
    "TABLES",
    "TrailTables",
    "read_commit_info",
    "quote_row_column",
    "payload_schema",
]

EVENTS, PAYLOAD, LEDGER = "events", "payload", "ledger"
TABLES = (PAYLOAD, EVENTS, LEDGER)
"""In the order in which a window is written to them."""

EVENT = StructType(
    [
        StructField("table_id", StringType(), False),
        StructField("version", LongType(), False),
        StructField("index", LongType(), False),
        StructField("id", BinaryType(), False),
        StructField("committed_at", TimestampType()),
        StructField("change_type", StringType(), False),
        StructField("baseline", BooleanType(), False),
        StructField("changed_columns", ArrayType(StringType(), False)),
        StructField("row_hash", BinaryType(), False),
    ]
)
"""What the leaf of an event covers. ``index``: position among the events of the commit, from 0."""
_COPIED_COLUMNS = ("id", "version", "committed_at", "change_type", "baseline", "changed_columns", "row_hash")
"""Columns of an event that the payload repeats."""
STORED_EVENT = StructType([*EVENT.fields, StructField("leaf", BinaryType(), False)])

RECORD = StructType(
    [
        StructField("sequence", LongType(), False),
        StructField("kind", StringType(), False),
        StructField("version", LongType()),
        StructField("committed_at", TimestampType()),
        StructField("events", LongType(), False),
        StructField("record", StringType(), False),
        StructField("leaf", BinaryType(), False),
        StructField("chunk_roots", BinaryType(), False),
        StructField("signed_state", StringType()),
    ]
)
"""A ledger record as a row. ``record`` is what the leaf covers; the columns before it are copies for queries.

``signed_state``: with the last record of an append, a note that the runner signed
(``audit.trail.ledger_state.is_signed_end``). ``chunk_roots``: the roots over a commit's events, 32 bytes each; with an
``EncryptionRecord``, the new hashes of its rows.
"""

_WITH_STATISTICS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
"""Types for which Delta keeps minimum and maximum per file."""
_APPLICATION = "deltarelay.audit"
_DELTA = "spark.databricks.delta"
_CONFLICTS = {
    "DELTA_CONCURRENT_TRANSACTION",
    "DELTA_CONCURRENT_WRITE",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
}
"""Delta's error conditions of a write that lost against a concurrent commit. Another run is also right after maintenance."""


def payload_schema(row: StructType) -> StructType:
    """The schema of a payload with this ``row``. ``sealed``: the encrypted bytes of the groups in the row's ``SEALED``
    column, in their order; only if ``row`` has that column."""
    encrypted = [StructField("sealed", ArrayType(BinaryType()))] if SEALED in row.names else []
    return StructType(
        [
            *(EVENT[name] for name in _COPIED_COLUMNS),
            StructField("salt", BinaryType(), False),
            StructField("row", row, False),
            *encrypted,
        ]
    )


@dataclass(slots=True)
class _Table:
    location: str
    log: TableLog
    writes: int = 0
    seen: int = -1
    """The last commit that was inspected."""


@dataclass(slots=True)
class TrailTables:
    """The tables below ``path``, for one runner or reader. Writes raise Fenced after another runner has opened the trail."""

    spark: SparkSession
    path: str
    epoch: int = 0
    pinned: Mapping[str, int] = field(default_factory=dict)
    """By table, the Delta version at which it is read (``pin``)."""
    _id: str | None = None
    _tables: dict[str, _Table] = field(default_factory=dict)

    def location(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def exist(self) -> bool:
        """Whether all tables exist. A runner that is killed while it creates them leaves some."""
        return all(self.log(name).exists() for name in TABLES)

    def origin(self) -> str:
        """The trail's name in checkpoints. A trail that is recreated at the same path has another one."""
        return f"deltarelay.audit/{self.id()}"

    def id(self) -> str:
        """The Delta table id of the ledger. A trail that is recreated at the same path has another one."""
        return self.log(LEDGER).metadata().table_id

    def log(self, name: str) -> TableLog:
        return self._table(name).log

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            self._tables[name] = _Table(self.location(name), TableLog(self.spark, self.location(name)))
        return self._tables[name]

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, name: str, *, version: int | None = None) -> DataFrame:
        """Read a table: its latest state whenever a query runs, or its state at the Delta version ``version``."""
        reader = self.spark.read.format("delta")
        version = self.pinned.get(name) if version is None else version
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.location(name))

    def read_current(self, name: str) -> DataFrame:
        """Read a table in its present state, also for queries that run later."""
        return self.read(name, version=self.pinned[name] if name in self.pinned else self.log(name).latest())

    def pin(self) -> TrailTables:
        """Return the tables in their present state, also for queries that run later. For reading only."""
        return TrailTables(self.spark, self.path, pinned={name: self.log(name).latest() for name in TABLES})

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def take_over(self, row: StructType, key: Sequence[str]) -> None:
        """Begin the next epoch, which fences earlier runners. Creates the tables that do not exist.

        ``row``: type of the payload's rows. ``key``: names of its key fields. Raises Fenced if another runner takes over at
        the same time, TargetNotReady if a table of a trail with data is missing.
        """
        existing = [name for name in TABLES if self.log(name).exists()]
        if existing and len(existing) < len(TABLES) and any(not self.read(name).isEmpty() for name in existing):
            missing = ", ".join(name for name in TABLES if name not in existing)
            raise TargetNotReady(
                f"the table {missing} of the trail at {self.path} is missing: an empty new one would not match the hashes "
                "of the others",
                hint="restore it from a backup, or begin a new trail in another folder",
                problems=[f"the table {missing} is missing"],
            )
        # The ledger gets a new epoch first, so no other table has a later one: if all exist, the ledger's epoch is enough
        with_epoch = [LEDGER] if len(existing) == len(TABLES) else existing
        written = [self._table(name).log.transaction(_APPLICATION) for name in with_epoch]
        self.epoch = 1 + max((version >> 32 for version in written if version is not None), default=0)
        schemas = {PAYLOAD: payload_schema(row), EVENTS: STORED_EVENT, LEDGER: RECORD}
        for name in reversed(TABLES):
            self._table(name).writes = 0
            rows = self.read(name).limit(0) if name in existing else self.spark.createDataFrame([], schemas[name])
            properties = None if name in existing else _table_properties(name, row, key)
            self.append(name, rows, about={"opened": self.epoch}, create_with=properties)
        self._id = self.id()

    def check(self) -> bool:
        """Return whether the ledger's rows are unchanged since the last write or check. Reads only the commits made since.

        Raises Fenced if another runner has taken over.
        """
        ledger = self._table(LEDGER)
        latest = ledger.log.latest()
        if latest < ledger.seen or self.id() != self._id:
            raise fenced(self.path)  # the ledger was replaced by that of another trail, or by an older state
        commits = list(ledger.log.commits(ledger.seen + 1, latest))
        if any(read_commit_info(commit).get("opened", 0) > self.epoch for commit in commits):
            raise fenced(self.path)
        ledger.seen = latest
        return all(commit.operation in MAINTENANCE_OPERATIONS for commit in commits)

    def create_rows(self, table: pa.Table, schema: StructType) -> DataFrame:
        """Make rows for ``append``, written as one file. Needs ``schema``: an Arrow timestamp fits two types of Spark."""
        return create_from_arrow(self.spark, table, schema).coalesce(1)

    def append(
        self, name: str, rows: DataFrame, *, about: Mapping[str, Any], create_with: Mapping[str, str] | None = None
    ) -> int:
        """Append rows in exactly one commit; → its version. ``create_with``: properties of a table that does not exist yet.

        ``about`` is stored in ``userMetadata``. The commit is found in the log even if Spark's answer was lost. Raises
        Fenced if there is a later epoch.
        """
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true").options(**create_with or {})

        def write(number: int, metadata: str) -> None:
            transaction = writer.option("txnAppId", _APPLICATION).option("txnVersion", number)
            transaction.option("userMetadata", metadata).save(self.location(name))

        return self._commit(name, write, about, is_new=create_with is not None)

    def change(self, name: str, statement: str | Callable[[DeltaTable], object], *, about: Mapping[str, Any]) -> int:
        """Run a DELETE or MERGE that changes at least one row, under the same rules as ``append``. ``statement``: the
        condition of a DELETE, or a function that runs the statement, which needs a classic session."""
        from delta.tables import DeltaTable

        def run(number: int, metadata: str) -> None:
            # Statements read these settings from their session; in a shared session they would apply to all other writes
            session = create_session(self.spark)
            session.conf.set(f"{_DELTA}.write.txnAppId", _APPLICATION)
            session.conf.set(f"{_DELTA}.write.txnVersion", str(number))
            session.conf.set(f"{_DELTA}.commitInfo.userMetadata", metadata)
            if not isinstance(statement, str):
                require_classic(session, f"changing values of the trail at {self.path}")
                statement(DeltaTable.forPath(session, self.location(name)))
            elif is_connect(session):
                session.sql(f"delete from {self._quote_table(name)} where {statement}")
            else:
                DeltaTable.forPath(session, self.location(name)).delete(statement)

        return self._commit(name, run, about)

    def enable_timestamp_ntz(self) -> None:
        """Allow TIMESTAMP_NTZ columns in the payload. Delta enables the feature by itself only when a table is created."""
        from delta.tables import DeltaTable

        if is_connect(self.spark):
            supported = "tblproperties ('delta.feature.timestampNtz' = 'supported')"
            self.spark.sql(f"alter table {self._quote_table(PAYLOAD)} set {supported}")
        else:
            DeltaTable.forPath(self.spark, self.location(PAYLOAD)).addFeatureSupport("timestampNtz")

    def _quote_table(self, name: str) -> str:
        """For Spark Connect, where ``DeltaTable`` needs a client of Delta's own. The path must be absolute."""
        return f"delta.{quote_name(self.location(name))}"

    def _commit(
        self, name: str, write: Callable[[int, str], None], about: Mapping[str, Any], *, is_new: bool = False
    ) -> int:
        table = self._table(name)
        table.writes += 1
        before, token = -1 if is_new else table.log.latest(), uuid.uuid4().hex
        failure: Exception | None = None
        try:
            write((self.epoch << 32) + table.writes, json.dumps({**about, "write": token}))
        except Exception as error:
            failure = error
        version = self._find_commit(table, before, token)
        if version is not None:
            return version
        if failure is None or condition_of(failure) in _CONFLICTS:
            raise fenced(self.path)
        raise failure

    @staticmethod
    def _find_commit(table: _Table, before: int, token: str) -> int | None:
        """Find the commit with the token; → its version. Later commits stay uninspected: they may be those of a
        successor."""
        try:
            latest = table.log.latest()
        except TableNotFound:
            return None
        for commit in table.log.commits(before + 1, latest):
            if read_commit_info(commit).get("write") == token:
                table.seen = commit.version
                return commit.version
        return None


def _table_properties(name: str, row: StructType, key: Sequence[str]) -> Mapping[str, str]:
    """Properties of a new table. Statistics are copies of values: only those that a search by version or key needs."""
    key_fields = [column for column in key if isinstance(row[column].dataType, _WITH_STATISTICS)]
    statistics = {
        PAYLOAD: ["version", *map(quote_row_column, key_fields)],
        EVENTS: ["version", "index", "committed_at"],
        LEDGER: ["sequence", "version", "committed_at"],
    }
    return {
        "delta.dataSkippingStatsColumns": ",".join(statistics[name]),
        # Both always set: a session may have other defaults. A change feed would keep values removed from the payload
        "delta.appendOnly": "false" if name == PAYLOAD else "true",
        "delta.enableChangeDataFeed": "false",
    }


def quote_row_column(column: str) -> str:
    """The name of a field of the payload's row in Delta's properties and statements."""
    return "row." + quote_name(column)


def read_commit_info(commit: Commit) -> Mapping[str, Any]:
    """Return the ``about`` of ``TrailTables.append``; empty for a commit that is not ours."""
    return parse_object(commit.user_metadata)


def fenced(path: str) -> Fenced:
    return Fenced(
        f"another runner has taken over the trail at {path}; this one writes nothing more",
        hint="let the other runner finish; if it has died, run again",
        target=path,
    )
