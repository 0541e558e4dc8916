"""The payload of a window: rows of the feed, each with a random id, a salt and the hash of its values.

``audit.trail.events`` builds the events from the payload that is durable.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    CharType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from audit.encryption.column_groups import PersonColumns, encrypt_rows, keys_column, read_row_keys
from audit.trail.column_history import GROUPS, SEALED, Column, row_type
from audit.trail.tables import payload_schema
from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION, DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from cdf.changes.few_rows import few_rows
from cdf.changes.keys import MARK
from cdf.spark_versions import arrow_type, is_valid_utf8

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from audit.hashing.recorded_types import Numbers

__all__ = ["PayloadRows"]

_ID_BYTES = _SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class PayloadRows:
    """The payload rows of a window, not yet built."""

    feed: DataFrame
    """The live columns of the source, change type and commit version; and the keys of each of ``people``."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    times: Mapping[int, dt.datetime | None]
    """Commit times by version, as the records have them."""
    paired: bool
    """The feed may have both images of updates."""
    baseline: bool
    few_files: bool = False
    """The feed has fewer files than the tasks that are to share its rows."""
    withheld: frozenset[int] = frozenset()
    """Versions that erased a person. Of the rows before such a change only the key is stored."""
    people: tuple[PersonColumns, ...] = ()
    """The people whose columns are encrypted (``audit.encryption.encrypt``)."""

    def build_on_cluster(self, partitions: int) -> DataFrame:
        """→ rows of ``payload_schema``, built by the tasks."""
        builder = self._builder()
        return self._ordered(partitions).mapInArrow(builder.build, payload_schema(row_type(self.columns, stored=True)))

    def build_on_driver(self) -> pa.Table | None:
        """→ rows of ``payload_schema``; None if there are too many for the driver."""
        import pyarrow as pa

        rows = few_rows(self._ordered(1))
        if rows is None:
            return None
        batches = list(self._builder().build(rows.to_batches()))
        # One chunk: PySpark cannot make a DataFrame of slices in which lists of structs have NULLs
        return pa.Table.from_batches(batches).combine_chunks() if batches else rows.slice(0, 0)

    def _ordered(self, partitions: int) -> DataFrame:
        """The feed with numbered columns; if it has both images of updates, the two of one row come together. Other rows are
        shuffled only if the feed has too few files for its tasks."""
        from pyspark.sql import functions as F

        from cdf.changes.columns import quoted

        # Numbered names: PySpark cannot handle a column whose name has a dot or a backtick
        source = self._source_columns()
        names = [column.name for column in source]
        values = {name: quoted(name).alias(f"value_{at}") for at, name in enumerate(names)}
        # Delta's file statistics are text: a search by a key that is not valid UTF-8 would miss its rows, as if they were
        # forged
        for at, column in enumerate(source):
            if column.name in self.key and isinstance(column.type, (StringType, CharType, VarcharType)):
                key = quoted(column.name)
                refusal = F.raise_error(F.concat(F.lit(f"{MARK} not_utf8 "), F.col(COMMIT_VERSION).cast("string")))
                values[column.name] = (
                    F.when(is_valid_utf8(key) | key.isNull(), key).otherwise(refusal).alias(f"value_{at}")
                )
        keys = [keys_column(at) for at in range(len(self.people))]
        rows = self.feed.select(*values.values(), CHANGE_TYPE, COMMIT_VERSION, *keys)
        order = [F.col(COMMIT_VERSION), *(F.col(f"value_{names.index(name)}") for name in self.key)]
        if self.paired or self.few_files:
            rows = rows.coalesce(1) if partitions == 1 else rows.repartition(partitions, *order)
        elif not self.baseline:
            # Not a task, and a file of the payload, for each few small files; but enough tasks for the cores of a machine
            rows = rows.coalesce(max(8, 2 * partitions))
        # Descending, so that update_preimage comes before update_postimage
        return rows.sortWithinPartitions(*order, F.col(CHANGE_TYPE).desc()) if self.paired else rows

    def _source_columns(self) -> list[Column]:
        return [column for column in self.columns if column.live and column.name != SEALED]

    def _builder(self) -> _PayloadBuilder:
        schema = row_type(self._source_columns(), stored=False)
        return _PayloadBuilder(
            self.columns, schema, self.key, self.times, self.paired, self.baseline, self.withheld, self.people
        )


@dataclass(frozen=True, slots=True)
class _PayloadBuilder:
    """Builds payload rows from batches of the feed. It is serialised and sent to the tasks."""

    columns: tuple[Column, ...]
    schema: StructType
    key: tuple[str, ...]
    times: Mapping[int, dt.datetime | None]
    paired: bool
    baseline: bool
    withheld: frozenset[int]
    people: tuple[PersonColumns, ...]

    def build(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        keys = [keys_column(at) for at in range(len(self.people))]
        named = (batch.rename_columns([*self.schema.names, CHANGE_TYPE, COMMIT_VERSION, *keys]) for batch in batches)
        if self.paired:
            yield from self._build_paired(named)
            return
        for batch in named:
            if batch.num_rows:
                yield self._build_batch(batch, pa.nulls(batch.num_rows, pa.list_(pa.string())))

    def _build_paired(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rest: pa.Table | None = None
        for batch in batches:
            rows = (
                pa.Table.from_batches([batch])
                if rest is None
                else pa.concat_tables([rest, pa.Table.from_batches([batch])])
            )
            if rows.num_rows == 0:
                continue
            rows = rows.combine_chunks()
            starts = self._find_groups(rows)
            last = int(starts[-1])  # the last group may continue in the next batch
            if last:
                yield from self._compare_images(rows.slice(0, last), starts[:-1])
            rest = rows.slice(last)
        if rest is not None and rest.num_rows:
            yield from self._compare_images(rest, self._find_groups(rest))

    def _find_groups(self, rows: pa.Table) -> Numbers:
        """The places at which the consecutive rows of one key and version start."""
        import numpy as np

        versions = rows.column(len(self.schema) + 1).to_numpy()
        is_other = versions[1:] != versions[:-1]
        for field in self.schema.fields:
            if field.name in self.key:
                values = _comparable(rows.column(field.name), field)
                is_other |= ~_are_same(values[:-1], values[1:])
        return np.concatenate(([0], 1 + np.flatnonzero(is_other)))

    def _compare_images(self, rows: pa.Table, starts: Numbers) -> Iterator[pa.RecordBatch]:
        """Build the rows, with the names of the columns that an update changed. ``starts``: of the rows of each key."""
        changed = self._find_changed(rows, starts)
        at = 0
        for batch in rows.combine_chunks().to_batches():
            yield self._build_batch(batch, changed.slice(at, batch.num_rows))
            at += batch.num_rows

    def _find_changed(self, rows: pa.Table, starts: Numbers) -> pa.Array:
        """For each image of an update, the columns that it changed; NULL for other rows, and where it is not known which
        images belong together, because a version has several updates of one key."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        types = rows.column(len(self.schema))
        group = np.repeat(np.arange(len(starts)), np.diff(starts, append=rows.num_rows))
        images = [pc.equal(types, kind).to_numpy() for kind in (UPDATE_PREIMAGE, UPDATE_POSTIMAGE)]
        counts = [np.bincount(group[is_image], minlength=len(starts)) for is_image in images]
        is_pair = ((counts[0] == 1) & (counts[1] == 1))[group]
        before, after = (np.flatnonzero(is_image & is_pair) for is_image in images)
        differs = np.zeros((rows.num_rows, len(self.schema)), bool)
        for at, field in enumerate(self.schema.fields):
            values = _comparable(rows.column(at), field)
            differs[before, at] = ~_are_same(values.take(pa.array(before)), values.take(pa.array(after)))
        differs[after] = differs[before]
        is_unpaired = np.ones(rows.num_rows, bool)
        is_unpaired[before] = is_unpaired[after] = False
        names = pa.array(self.schema.names, pa.string()).take(pa.array(np.nonzero(differs)[1]))
        ends = np.concatenate(([0], np.cumsum(differs.sum(axis=1))))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names, mask=pa.array(is_unpaired))

    def _build_batch(self, batch: pa.RecordBatch, changed: pa.Array) -> pa.RecordBatch:
        """``changed``: for each row, the columns that an update changed."""
        import numpy as np
        import pyarrow as pa

        from audit.hashing.row_encoding import hash_rows

        count, width = batch.num_rows, len(self.schema)
        withheld = self._withheld_rows(batch) if self.withheld else []
        if withheld:
            batch = self._without_values(batch, withheld)
        ids, salts = os.urandom(_ID_BYTES * count), os.urandom(_SALT_BYTES * count)
        rows, schema, texts = batch.select(range(width)), self.schema, pa.nulls(count, pa.list_(pa.binary()))
        if any(column.live and (column.name, column.type) == (SEALED, GROUPS) for column in self.columns):
            keys = [read_row_keys(batch.column(width + 2 + at)) for at in range(len(self.people))]
            row_ids = [ids[at * _ID_BYTES : (at + 1) * _ID_BYTES] for at in range(count)]
            rows, groups, texts = encrypt_rows(rows, schema, self.people, keys, row_ids, withheld)
            rows = rows.append_column(SEALED, groups)
            schema = StructType([*schema.fields, StructField(SEALED, GROUPS)])
        hashes = hash_rows(rows, schema, salts)
        versions, at = np.unique(batch.column(width + 1).to_numpy(), return_inverse=True)
        times = pa.array([self.times[version] for version in versions.tolist()], pa.timestamp("us", tz="UTC"))
        values = dict(zip(schema.names, rows.columns, strict=True))
        # The plain type: it does not depend on nullability in the source or on the session's time zone
        types = [arrow_type(column.type) for column in self.columns]
        arrays = [
            values[column.name].cast(type) if column.live else pa.nulls(count, type)
            for column, type in zip(self.columns, types, strict=True)
        ]
        fields = [pa.field(column.stored, type) for column, type in zip(self.columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(
            [
                _binary_array(ids, _ID_BYTES),
                batch.column(width + 1),
                times.take(pa.array(at)),
                batch.column(width),
                pa.repeat(self.baseline, count),
                changed,
                pa.array(hashes, pa.binary()),
                _binary_array(salts, _SALT_BYTES),
                pa.StructArray.from_arrays(arrays, fields=fields),
                *([texts] if any(column.name == SEALED for column in self.columns) else []),
            ],
            names=payload_schema(row_type(self.columns, stored=True)).names,
        )

    def _withheld_rows(self, batch: pa.RecordBatch) -> list[int]:
        """The places of the rows before a change of a version in ``withheld``."""
        width = len(self.schema)
        changes = zip(batch.column(width).to_pylist(), batch.column(width + 1).to_pylist(), strict=True)
        return [
            at
            for at, (change_type, version) in enumerate(changes)
            if change_type in (DELETE, UPDATE_PREIMAGE) and version in self.withheld
        ]

    def _without_values(self, batch: pa.RecordBatch, withheld: Collection[int]) -> pa.RecordBatch:
        """Set all columns outside the key to NULL in these rows."""
        import pyarrow as pa

        width, left_out = len(self.schema), set(withheld)
        # ``take`` with a NULL index yields NULL for any type
        index = pa.array([None if at in left_out else at for at in range(batch.num_rows)], pa.int64())
        columns = [
            column if at >= width or self.schema.names[at] in self.key else column.take(index)
            for at, column in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _comparable(values: pa.ChunkedArray, field: StructField) -> pa.ChunkedArray:
    """Values of which equal ones are encoded as the same bytes, and different ones as different bytes."""
    import pyarrow as pa

    from audit.hashing.row_encoding import encode_batch

    if isinstance(field.dataType, (FloatType, DoubleType, ArrayType, MapType, StructType)):
        schema = StructType([field])
        batches = pa.table({field.name: values}).to_batches()
        return pa.chunked_array([encode_batch(batch, schema)[0] for batch in batches], pa.large_binary())
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return values.cast(pa.large_binary())  # with offsets of 32 bits, 2 GiB of text cannot be reordered
    return values


def _are_same(some: pa.ChunkedArray, others: pa.ChunkedArray) -> Numbers:
    """Row by row; NULL is the same as NULL."""
    import pyarrow.compute as pc

    equal = pc.fill_null(pc.equal(some, others), False)
    if some.null_count and others.null_count:
        equal = pc.or_(equal, pc.and_(some.is_null(), others.is_null()))
    found: Numbers = equal.to_numpy()
    return found


def _binary_array(joined: bytes, width: int) -> pa.Array:
    """Split ``joined`` into binary values of ``width`` bytes."""
    import numpy as np
    import pyarrow as pa

    count = len(joined) // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(joined)])
