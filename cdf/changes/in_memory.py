"""Windows and snapshots whose rows are an Arrow table: they behave like those of a Delta table, without Spark.

For sinks that read rows by ``collect``, ``collect_net``, ``iterate`` or ``iterate_net``. A sink that asks for a DataFrame
(``read``, ``net``) gets an error that explains why this is not possible.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    CONFLICTS,
    INSERT,
    METADATA_COLUMNS,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)
from cdf.changes.keys import KeyFaults
from cdf.changes.net_arrow import KeyRefused, net_on_driver
from cdf.changes.window import COUNTED, Snapshot, Window, commit_of_inserts
from cdf.errors import ConfigError
from cdf.spark_versions import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["InMemorySnapshot", "InMemoryWindow", "arrow_table", "feed_schema", "key_digests"]

Rows = Callable[[], "pa.Table"]


def _no_dataframe() -> NoReturn:
    raise ConfigError(
        "these rows are in memory, and there is no Spark session to create a DataFrame",
        hint="read them by collect, collect_net, iterate or iterate_net; a test that needs a DataFrame needs Spark",
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InMemoryWindow(Window):
    """A window whose feed is ``rows()``: the schema's columns, then ``METADATA_COLUMNS``, in any order."""

    rows: Rows = field(repr=False)
    read: Callable[[], DataFrame] = field(repr=False, default=_no_dataframe)

    def net(self, *, transients: bool = False) -> DataFrame:  # noqa: ARG002
        _no_dataframe()

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The feed's rows or their net effect, in batches; a test may override this to fail while they are read."""
        yield from table.to_batches()

    def everything(self) -> pa.Table:
        return self.rows()

    def without(self, leave_out: Callable[[Any], Any]) -> Self:
        return replace(self, rows=lambda: leave_out(self.rows()))

    def collect(self) -> pa.Table:
        return _collect(self, self.rows)

    def collect_net(self, *, transients: bool = False) -> pa.Table:
        return _collect(self, lambda: self._net(transients))

    def iterate(self) -> Iterator[dict[str, Any]]:
        return _iterate(self, self.rows)

    def iterate_net(self, *, transients: bool = False) -> Iterator[dict[str, Any]]:
        return _iterate(self, lambda: self._net(transients))

    def _net(self, transients: bool) -> pa.Table:
        from cdf.changes.keys import key_violation

        rows = self.rows()
        self.refuse_missing_images(rows)
        try:
            net = net_on_driver(rows, self.key, transients=transients)
        except KeyRefused as refused:
            raise key_violation(refused.reason, refused.version, table=self.table, key=self.key) from refused
        return net.select([*self.schema.fieldNames(), *METADATA_COLUMNS, CONFLICTS])

    def project(self, columns: Mapping[str, str], schema: StructType) -> Self:
        key = tuple(columns.get(name, name) for name in self.key)
        names = {**columns, **{name: name for name in METADATA_COLUMNS}}
        return replace(self, schema=schema, key=key, rows=lambda: _select(self.rows(), names))

    def count_changes(self) -> dict[str, int]:
        return Counter(self.collect()[CHANGE_TYPE].to_pylist())

    def count_net(self) -> tuple[dict[str, int], int]:
        net = self.collect_net()
        counts = Counter(net[CHANGE_TYPE].to_pylist())
        return {name: counts[kind] for name, kind in COUNTED.items()}, sum(net[CONFLICTS].to_pylist())

    def refuse_key_changes(self) -> None:
        from cdf.changes.keys import key_violation

        unpaired = Counter[tuple[Any, ...]]()
        for row in self.collect().to_pylist():
            kind = row[CHANGE_TYPE]
            change = (row[COMMIT_VERSION], *(row[name] for name in self.key))
            unpaired[change] += (kind == UPDATE_PREIMAGE) - (kind == UPDATE_POSTIMAGE)
        versions = [change[0] for change, count in unpaired.items() if count]
        if versions:
            raise key_violation("key_changed", min(versions), table=self.table, key=self.key)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InMemorySnapshot(Snapshot):
    """A snapshot whose rows are ``rows()``, with the schema's columns."""

    rows: Rows = field(repr=False)
    read: Callable[[], DataFrame] = field(repr=False, default=_no_dataframe)

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows, in batches; a test may override this to fail while they are read."""
        yield from table.to_batches()

    def everything(self) -> pa.Table:
        return self.rows()

    def without(self, leave_out: Callable[[Any], Any]) -> Self:
        return replace(self, rows=lambda: leave_out(self.rows()))

    def collect(self) -> pa.Table:
        return _collect(self, self.rows)

    def iterate(self) -> Iterator[dict[str, Any]]:
        return _iterate(self, self.rows)

    def project(self, columns: Mapping[str, str], schema: StructType) -> Self:
        key = tuple(columns.get(name, name) for name in self.key)
        return replace(self, schema=schema, key=key, rows=lambda: _select(self.rows(), columns))

    def with_keys(self, digests: Collection[str]) -> Self:
        def found() -> pa.Table:
            table, wanted = self.rows(), frozenset(digests)
            return table.filter([digest in wanted for digest in key_digests(table, self.schema, self.key)])

        return replace(self, rows=found)

    def as_inserts(self) -> InMemoryWindow:
        values = {CHANGE_TYPE: INSERT, COMMIT_VERSION: self.version, COMMIT_TIMESTAMP: self.timestamp}

        def inserts() -> pa.Table:
            import pyarrow as pa

            table = self.collect()  # an error of reading the snapshot is raised here, too
            for of in feed_schema(self.schema).fields[-len(METADATA_COLUMNS) :]:
                kind = arrow_type(of.dataType)
                table = table.append_column(of.name, pa.array([values[of.name]] * table.num_rows, kind))
            return table

        commit = commit_of_inserts(self)
        return InMemoryWindow(
            self.table,
            self.table_id,
            self.schema,
            self.key,
            (commit,),
            rows=inserts,
        )

    def count(self) -> int:
        return int(self.collect().num_rows)

    def key_faults(self) -> KeyFaults:
        keys = Counter(tuple(row[name] for name in self.key) for row in self.collect().select(self.key).to_pylist())
        nulls = sum(count for key, count in keys.items() if None in key)
        return KeyFaults(nulls, sum(count > 1 and None not in key for key, count in keys.items()))


def _collect(of: InMemoryWindow | InMemorySnapshot, rows: Rows) -> pa.Table:
    import pyarrow as pa

    try:
        table = rows()
        return pa.Table.from_batches(of.batches(table), table.schema)
    except Exception as error:
        raise of.failure(error) from error


def _iterate(of: InMemoryWindow | InMemorySnapshot, rows: Rows) -> Iterator[dict[str, Any]]:
    try:
        for batch in of.batches(rows()):
            for row in batch.to_pylist():
                yield {name: _as_in_spark(value) for name, value in row.items()}
    except Exception as error:
        raise of.failure(error) from error


def _as_in_spark(value: Any) -> Any:
    """Spark returns instants without a zone, in the time zone of the process, and binaries as bytearray."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    return bytearray(value) if isinstance(value, bytes) else value


def _select(table: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    return table.select(list(columns)).rename_columns(list(columns.values()))


# ── Arrow tables from Python's rows ──────────────────────────────────────────────────────────────────────────────────


def feed_schema(schema: StructType) -> StructType:
    """The schema of a feed's rows."""
    from pyspark.sql.types import StructType

    feed = StructType(list(schema.fields))  # a copy: add() changes the list it was given
    return feed.add(CHANGE_TYPE, "string").add(COMMIT_VERSION, "long").add(COMMIT_TIMESTAMP, "timestamp")


def arrow_table(rows: Sequence[Sequence[Any]], schema: StructType) -> pa.Table:
    """Rows of Python values with the schema's columns, in the form of Spark's ``toArrow``."""
    import pyarrow as pa

    arrays = [
        pa.array([row[number] for row in rows], arrow_type(of.dataType)) for number, of in enumerate(schema.fields)
    ]
    names = [pa.field(of.name, array.type) for of, array in zip(schema.fields, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(names))


# ── key digests, as in cdf.changes.canonical ────────────────────────────────────────────────────────────


def key_digests(table: pa.Table, schema: StructType, key: Sequence[str]) -> list[str]:
    """``cdf.changes.canonical.key_digest`` of each row, for keys of plain types."""
    texts = [[_framed(_text(value, schema[name].dataType)) for value in table[name].to_pylist()] for name in key]
    return [
        hashlib.md5("".join(of_row).encode(), usedforsecurity=False).hexdigest() for of_row in zip(*texts, strict=True)
    ]


def _framed(text: str | None) -> str:
    return "~" if text is None else f"{len(text)}:{text}"


def _text(value: Any, kind: DataType) -> str | None:
    from pyspark.sql import types as T

    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(kind, T.DecimalType):
        return format(Decimal(value), f".{kind.scale}f")
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else str(int.from_bytes(struct.pack(">d", value), signed=True))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(kind, T.TimestampType):
        return str((value - _EPOCH) // dt.timedelta(microseconds=1))
    if isinstance(kind, T.TimestampNTZType):
        return str(value.isoformat(" ", "microseconds").rstrip("0").rstrip("."))
    if isinstance(kind, T.DateType):
        return str((value - _EPOCH.date()).days)
    if isinstance(value, int):
        return str(value)
    raise ConfigError(
        f"a key of type {kind.simpleString()} has no digest in memory", hint="a test of such a key needs Spark"
    )


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
