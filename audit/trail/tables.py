"""The Delta tables of one trail, and the one way in which they are written.

    events    one row per change, append-only: what happened, when, and the hashes that prove it
    payload   the values of the row, apart from the event so that they can be removed
    ledger    one record per commit of the source, append-only: its hash covers all events of the commit

Each table has an **epoch**: the transaction version under one fixed application id. A runner that opens the trail writes the
next epoch into each; from then on Delta drops what a runner from before still writes. It does so without a word, which is
why each write looks for itself in the log afterwards.
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
from audit.trail.position import NO_RECORDS
from audit.trail.redaction import object_in
from cdf.errors import Fenced, TableNotFound, TargetNotReady, condition_of
from cdf.source.log import TableLog

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
    "about_of",
    "in_row",
    "payload_of",
]

EVENTS, PAYLOAD, LEDGER = "events", "payload", "ledger"
TABLES = (PAYLOAD, EVENTS, LEDGER)
"""In the order in which a window is written into them."""

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
"""What the leaf of an event covers. ``index``: its place among the events of the commit, from 0."""
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
"""A ledger record as a row: ``record`` is what the leaf covers, the columns before it are copies for queries.

``signed_state``: beside the last record of an append, a signed note by whoever wrote it (``audit.trail.ledger.left_by``).
``chunk_roots``: of a commit's events, or of rows that were sealed later the hashes that these have since.
"""

_WITH_STATISTICS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
"""Delta keeps least and greatest values of these."""
_APPLICATION = "deltarelay.audit"
_DELTA = "spark.databricks.delta"


def payload_of(row: StructType) -> StructType:
    """``sealed``: what the groups in the row's ``SEALED`` have sealed, in their order. Only where the row has that."""
    sealed = [StructField("sealed", ArrayType(BinaryType()))] if SEALED in row.names else []
    return StructType(
        [
            StructField("id", BinaryType(), False),
            StructField("version", LongType(), False),
            StructField("committed_at", TimestampType()),
            StructField("change_type", StringType(), False),
            StructField("baseline", BooleanType(), False),
            StructField("changed_columns", ArrayType(StringType(), False)),
            StructField("row_hash", BinaryType(), False),
            StructField("salt", BinaryType(), False),
            StructField("row", row, False),
            *sealed,
        ]
    )


@dataclass(slots=True)
class _Table:
    location: str
    log: TableLog
    writes: int = 0
    seen: int = -1
    """The commits up to here were looked at."""


@dataclass(slots=True)
class TrailTables:
    """The tables below ``path``, opened by one runner. What it raises of its own: Fenced."""

    spark: SparkSession
    path: str
    epoch: int = 0
    pinned: Mapping[str, int] = field(default_factory=dict)
    """Of ``as_now``: the commits after which they are read, whatever comes later."""
    _id: str | None = None
    _tables: dict[str, _Table] = field(default_factory=dict)

    def location(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def exist(self) -> bool:
        """All of them: a runner that was killed while it made them leaves some."""
        return all(self._is_there(name) for name in TABLES)

    def _is_there(self, name: str) -> bool:
        from delta.tables import DeltaTable

        return DeltaTable.isDeltaTable(self.spark, self.location(name))

    def origin(self) -> str:
        """The trail's name in checkpoints. A trail that is made anew at the same place has another one."""
        return f"deltarelay.audit/{self.id()}"

    def read(self, name: str, *, version: int | None = None) -> DataFrame:
        """As it is whenever it is asked something; with ``version``, after that commit."""
        reader = self.spark.read.format("delta")
        version = self.pinned.get(name) if version is None else version
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.location(name))

    def now(self, name: str) -> DataFrame:
        """As it is at this moment, also for what is asked of it later."""
        return self.read(name, version=self.pinned[name] if name in self.pinned else self.log(name).latest())

    def as_now(self) -> TrailTables:
        """All of them as they are at this moment, also for what is asked of them later. To be read only."""
        return TrailTables(self.spark, self.path, pinned={name: self.log(name).latest() for name in TABLES})

    def rows_of(self, table: pa.Table, schema: StructType) -> DataFrame:
        """For ``append``, in one file. By the schema: Arrow's type of a time does not tell which of Spark's two it is."""
        return self.spark.createDataFrame(table, schema).coalesce(1)

    def log(self, name: str) -> TableLog:
        return self._table(name).log

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            self._tables[name] = _Table(self.location(name), TableLog(self.spark, self.location(name)))
        return self._tables[name]

    # ── the epoch ────────────────────────────────────────────────────────────────────────────────────────────────

    def take_over(self, row: StructType, key: Sequence[str]) -> None:
        """From here on no runner from before can write. Tables that are not there are made: ``row`` is the payload's, and
        ``key`` names fields of it.

        Raises Fenced where another runner did the same at this moment, TargetNotReady where a part of a trail is gone.
        """
        there = [name for name in TABLES if self._is_there(name)]
        if there and len(there) < len(TABLES) and any(not self.read(name).isEmpty() for name in there):
            gone = ", ".join(name for name in TABLES if name not in there)
            raise TargetNotReady(
                f"of the trail at {self.path} the table {gone} is gone: made anew it would not be what its hashes tell",
                hint="put it back from a backup, or begin a new trail in another folder",
                problems=[f"{gone} is gone"],
            )
        # The ledger comes first, so that no other table has a later epoch than it: it alone is asked, if there are all
        asked = [LEDGER] if len(there) == len(TABLES) else there
        written = [self._table(name).log.transaction(_APPLICATION) for name in asked]
        self.epoch = 1 + max((one >> 32 for one in written if one is not None), default=0)
        schemas = {PAYLOAD: payload_of(row), EVENTS: STORED_EVENT, LEDGER: RECORD}
        for name in reversed(TABLES):
            self._table(name).writes = 0
            rows = self.read(name).limit(0) if name in there else self.spark.createDataFrame([], schemas[name])
            self.append(
                name, rows, about={"opened": self.epoch}, making=None if name in there else _properties(name, row, key)
            )
        self._id = self.id()

    def id(self) -> str:
        """Of the ledger's table: a trail that is made anew at the same place has another one."""
        return self.log(LEDGER).metadata().table_id

    def check(self) -> bool:
        """Whether nobody else has changed the ledger's rows since the last look. Reads what was committed since.

        Raises Fenced where another runner is seen to have taken over.
        """
        ledger = self._table(LEDGER)
        latest = ledger.log.latest()
        if latest < ledger.seen or self.id() != self._id:
            raise fenced(self.path)  # somebody has put another trail into its place, or an older state of this one
        commits = list(ledger.log.commits(ledger.seen + 1, latest))
        if any(about_of(commit).get("opened", 0) > self.epoch for commit in commits):
            raise fenced(self.path)
        ledger.seen = latest
        return all(commit.operation in NO_RECORDS for commit in commits)

    def append(
        self, name: str, rows: DataFrame, *, about: Mapping[str, Any], making: Mapping[str, str] | None = None
    ) -> int:
        """One commit, once; → its version. ``making``: the properties of a table that it makes.

        ``about`` stands in its ``userMetadata``. It is found in the log also when its answer was lost. Raises Fenced where a
        later epoch is.
        """
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true").options(**making or {})

        def write(number: int, said: str) -> None:
            signed = writer.option("txnAppId", _APPLICATION).option("txnVersion", number)
            signed.option("userMetadata", said).save(self.location(name))

        return self._committed(name, write, about, made=making is not None)

    def change(self, name: str, statement: Callable[[DeltaTable], object], *, about: Mapping[str, Any]) -> int:
        """A DELETE or MERGE that finds rows, under the same rules as ``append``."""
        from delta.tables import DeltaTable

        def run(number: int, said: str) -> None:
            # Statements take these from their session alone; in one that others use they would be everybody's
            session = self.spark.newSession()
            session.conf.set(f"{_DELTA}.write.txnAppId", _APPLICATION)
            session.conf.set(f"{_DELTA}.write.txnVersion", str(number))
            session.conf.set(f"{_DELTA}.commitInfo.userMetadata", said)
            statement(DeltaTable.forPath(session, self.location(name)))

        return self._committed(name, run, about)

    def admit_times_without_zone(self) -> None:
        """In the payload. Delta turns this on by itself only for a table that is made with them."""
        from delta.tables import DeltaTable

        DeltaTable.forPath(self.spark, self.location(PAYLOAD)).addFeatureSupport("timestampNtz")

    def _committed(
        self, name: str, write: Callable[[int, str], None], about: Mapping[str, Any], *, made: bool = False
    ) -> int:
        table = self._table(name)
        table.writes += 1
        before, token = -1 if made else table.log.latest(), uuid.uuid4().hex
        failure: Exception | None = None
        try:
            write((self.epoch << 32) + table.writes, json.dumps({**about, "write": token}))
        except Exception as error:
            failure = error
        if (landed := self._landed(table, before, token)) is not None:
            return landed
        if failure is None or condition_of(failure) in _OVERTAKEN:
            raise fenced(self.path)
        raise failure

    @staticmethod
    def _landed(table: _Table, before: int, token: str) -> int | None:
        """The commit with the token. What comes after it is still to be looked at: it may be a successor's."""
        try:
            latest = table.log.latest()
        except TableNotFound:
            return None
        commits = table.log.commits(before + 1, latest)
        landed = next((commit.version for commit in commits if about_of(commit).get("write") == token), None)
        if landed is not None:
            table.seen = landed
        return landed


_OVERTAKEN = {
    "DELTA_CONCURRENT_TRANSACTION",
    "DELTA_CONCURRENT_WRITE",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
}
"""What Delta tells whoever was overtaken while it wrote. Trying again is right also where it was somebody's upkeep."""


def _properties(name: str, row: StructType, key: Sequence[str]) -> Mapping[str, str]:
    """Of a table that is made. Statistics are copies of values: only those that finding a version or a key needs."""
    found_by = [column for column in key if isinstance(row[column].dataType, _WITH_STATISTICS)]
    statistics = {
        PAYLOAD: ["version", *map(in_row, found_by)],
        EVENTS: ["version", "index", "committed_at"],
        LEDGER: ["sequence", "version", "committed_at"],
    }
    return {
        "delta.dataSkippingStatsColumns": ",".join(statistics[name]),
        # Said in either case: a session may have other defaults. A feed would keep what is removed from the payload
        "delta.appendOnly": "false" if name == PAYLOAD else "true",
        "delta.enableChangeDataFeed": "false",
    }


def in_row(column: str) -> str:
    """A column of the payload's row, as Delta's properties and statements name it."""
    return "row.`" + column.replace("`", "``") + "`"


def about_of(commit: Commit) -> Mapping[str, Any]:
    """What ``append`` was told about the commit; empty where it is none of ours."""
    return object_in(commit.user_metadata)


def fenced(path: str) -> Fenced:
    return Fenced(
        f"another runner has taken over the trail at {path}; this one writes nothing more",
        hint="let the other runner finish; if it is gone, run again",
        target=path,
    )
