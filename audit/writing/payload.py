"""The payload of a window: rows of the feed with a random id, a salt and a hash."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import CharType, StringType, StructField, StructType, VarcharType

from audit.encryption.column_groups import PersonColumns, encrypt_rows, keys_column, read_row_keys
from audit.trail.column_history import GROUPS, SEALED, Column, row_type
from audit.trail.tables import payload_schema
from cdf.changes.columns import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    DELETE,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)
from cdf.changes.few_rows import few_rows
from cdf.changes.keys import MARK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["PayloadRows"]

_ID_BYTES = _SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class PayloadRows:
    """What becomes the payload of a window. ``times``: of each commit, as its record has it. ``paired``: there may be both
    images of updates."""

    feed: DataFrame
    """The columns that are live, change type and version."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    times: Mapping[int, dt.datetime | None]
    paired: bool
    baseline: bool
    withheld: frozenset[int] = frozenset()
    """Versions that erased somebody: of their rows before the change only the key is kept, for the feed has them whole."""
    people: tuple[PersonColumns, ...] = ()
    """Whose columns are sealed: the feed has a column with the keys of each besides (``audit.encryption.encrypt``)."""

    def rows(self, partitions: int) -> DataFrame:
        """By the tasks."""
        work = self._work()
        return self._placed(partitions).mapInArrow(work.run, payload_schema(row_type(self.columns, stored=True)))

    def table(self) -> pa.Table | None:
        """By the driver; None if the rows are not few."""
        import pyarrow as pa

        rows = few_rows(self._placed(1))
        if rows is None:
            return None
        batches = list(self._work().run(rows.to_batches()))
        # In one piece: of slices PySpark cannot make a DataFrame where lists of structs have NULLs
        return pa.Table.from_batches(batches).combine_chunks() if batches else rows.slice(0, 0)

    def _placed(self, partitions: int) -> DataFrame:
        from pyspark.sql import functions as F

        from cdf.changes.columns import quoted

        # By place: PySpark itself cannot name a column with a dot or a backtick
        names = [column.name for column in self._of_the_source()]
        values = {name: quoted(name).alias(f"value_{at}") for at, name in enumerate(names)}
        # Delta's statistics of files are text: a search by a key that is no text would miss its rows, as if they were forged
        for at, column in enumerate(self._of_the_source()):
            if column.name in self.key and isinstance(column.type, (StringType, CharType, VarcharType)):
                key = quoted(column.name)
                refusal = F.raise_error(F.concat(F.lit(f"{MARK} not_utf8 "), F.col(COMMIT_VERSION).cast("string")))
                values[column.name] = (
                    F.when(F.is_valid_utf8(key) | key.isNull(), key).otherwise(refusal).alias(f"value_{at}")
                )
        keys = [keys_column(at) for at in range(len(self.people))]
        rows = self.feed.select(*values.values(), CHANGE_TYPE, COMMIT_VERSION, *keys)
        if not self.paired and partitions == 1:
            return rows
        placed = [F.col(COMMIT_VERSION), *(F.col(f"value_{names.index(name)}") for name in self.key)]
        rows = rows.coalesce(1) if partitions == 1 else rows.repartition(partitions, *placed)
        # The image before comes first: of the two names it is the later one
        return rows.sortWithinPartitions(*placed, F.col(CHANGE_TYPE).desc())

    def _of_the_source(self) -> list[Column]:
        return [column for column in self.columns if column.live and column.name != SEALED]

    def _work(self) -> _PayloadWork:
        schema = row_type(self._of_the_source(), stored=False)
        return _PayloadWork(
            self.columns, schema, self.key, self.times, self.paired, self.baseline, self.withheld, self.people
        )


@dataclass(frozen=True, slots=True)
class _PayloadWork:
    """What a task does; it is sent there."""

    columns: tuple[Column, ...]
    schema: StructType
    key: tuple[str, ...]
    times: Mapping[int, dt.datetime | None]
    paired: bool
    baseline: bool
    withheld: frozenset[int]
    people: tuple[PersonColumns, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = [keys_column(at) for at in range(len(self.people))]
        named = (batch.rename_columns([*self.schema.names, CHANGE_TYPE, COMMIT_VERSION, *keys]) for batch in batches)
        if self.paired:
            yield from self._in_groups(named)
            return
        for batch in named:
            if batch.num_rows:
                yield self._out(batch, [None] * batch.num_rows)

    def _in_groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        kept: pa.Table | None = None
        for batch in batches:
            rows = (
                pa.Table.from_batches([batch])
                if kept is None
                else pa.concat_tables([kept, pa.Table.from_batches([batch])])
            )
            if rows.num_rows == 0:
                continue
            groups = self._groups(rows)
            last = groups[-1][0]  # it may go on in the next batch
            if last:
                yield from self._matched(rows.slice(0, last), groups[:-1])
            kept = rows.slice(last)
        if kept is not None and kept.num_rows:
            yield from self._matched(kept, self._groups(kept))

    def _groups(self, rows: pa.Table) -> list[tuple[int, int]]:
        """The rows of one key and version stand together: from, to."""
        from pyspark.sql.types import StructType

        from audit.hashing.row_encoding import encode_rows

        keys = encode_rows(rows, StructType([field for field in self.schema.fields if field.name in self.key]))
        versions = rows.column(len(self.schema) + 1).to_pylist()
        starts = [
            at for at in range(len(keys)) if at == 0 or keys[at] != keys[at - 1] or versions[at] != versions[at - 1]
        ]
        return list(zip(starts, [*starts[1:], len(keys)], strict=True))

    def _matched(self, rows: pa.Table, groups: Sequence[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        from audit.hashing.row_encoding import encode_columns

        types = rows.column(len(self.schema)).to_pylist()
        values = encode_columns(rows, self.schema)
        changed: list[list[str] | None] = [None] * rows.num_rows
        for start, end in groups:
            before = [at for at in range(start, end) if types[at] == UPDATE_PREIMAGE]
            after = [at for at in range(start, end) if types[at] == UPDATE_POSTIMAGE]
            if len(before) == len(after) == 1:  # else nobody can tell which belongs to which
                one, other = before[0], after[0]
                names = [
                    name for name, column in zip(self.schema.names, values, strict=True) if column[one] != column[other]
                ]
                changed[one] = changed[other] = names
        for batch in rows.combine_chunks().to_batches():
            yield self._out(batch, changed)

    def _out(self, batch: pa.RecordBatch, changed: Sequence[Sequence[str] | None]) -> pa.RecordBatch:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        from audit.hashing.row_encoding import encode_rows, row_hash

        count, width = batch.num_rows, len(self.schema)
        gone = self._withheld(batch) if self.withheld else []
        if gone:
            batch = self._without_images(batch, gone)
        ids, salts = os.urandom(_ID_BYTES * count), os.urandom(_SALT_BYTES * count)
        rows, schema, texts = batch.select(range(width)), self.schema, pa.nulls(count, pa.list_(pa.binary()))
        if any(column.live and (column.name, column.type) == (SEALED, GROUPS) for column in self.columns):
            held = [read_row_keys(batch.column(width + 2 + at)) for at in range(len(self.people))]
            each = [ids[at * _ID_BYTES : (at + 1) * _ID_BYTES] for at in range(count)]
            rows, groups, texts = encrypt_rows(rows, schema, self.people, held, each, gone)
            rows = rows.append_column(SEALED, groups)
            schema = StructType([*schema.fields, StructField(SEALED, GROUPS)])
        encoded = encode_rows(rows, schema)
        hashes = [row_hash(salts[at * _SALT_BYTES : (at + 1) * _SALT_BYTES], encoded[at]) for at in range(count)]
        versions = batch.column(width + 1)
        values = dict(zip(schema.names, rows.columns, strict=True))
        # In the plain type: what is not nullable in the source is no other type here, nor is the session's time zone
        types = [to_arrow_type(column.type, timezone="UTC") for column in self.columns]
        arrays = [
            values[column.name].cast(type) if column.live else pa.nulls(count, type)
            for column, type in zip(self.columns, types, strict=True)
        ]
        fields = [pa.field(column.stored, type) for column, type in zip(self.columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(
            [
                _fixed(ids, _ID_BYTES),
                versions,
                pa.array([self.times[version] for version in versions.to_pylist()], pa.timestamp("us", tz="UTC")),
                batch.column(width),
                pa.array([self.baseline] * count),
                pa.array(changed, pa.list_(pa.string())),
                pa.array(hashes, pa.binary()),
                _fixed(salts, _SALT_BYTES),
                pa.StructArray.from_arrays(arrays, fields=fields),
                *([texts] if any(column.name == SEALED for column in self.columns) else []),
            ],
            names=payload_schema(row_type(self.columns, stored=True)).names,
        )

    def _withheld(self, batch: pa.RecordBatch) -> list[int]:
        """The places of rows before a change that erased somebody."""
        width = len(self.schema)
        told = zip(batch.column(width).to_pylist(), batch.column(width + 1).to_pylist(), strict=True)
        return [
            at
            for at, (kind, version) in enumerate(told)
            if kind in (DELETE, UPDATE_PREIMAGE) and version in self.withheld
        ]

    def _without_images(self, batch: pa.RecordBatch, gone: Collection[int]) -> pa.RecordBatch:
        import pyarrow as pa

        width, left_out = len(self.schema), set(gone)
        # Taken from nowhere a value is null, whatever its type
        kept = pa.array([None if at in left_out else at for at in range(batch.num_rows)], pa.int64())
        columns = [
            column if at >= width or self.schema.names[at] in self.key else column.take(kept)
            for at, column in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _fixed(joined: bytes, width: int) -> pa.Array:
    """Binary values of one width, out of one piece."""
    import numpy as np
    import pyarrow as pa

    count = len(joined) // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(joined)])
