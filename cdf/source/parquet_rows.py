"""Decodes a whole Parquet file by its columns into exactly the values that Spark reads from it, or refuses the file.

What is allowed is listed; everything else is read by Spark. ``test_parquet_rows`` compares both for random values of each
type that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cdf.changes.columns import CHANGE_TYPE, CHANGE_TYPES, COMMIT_VERSION, INSERT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = ["FileRefused", "add_change_columns", "can_decode", "decode_file"]

_MARKS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96", b"org.apache.spark.timeZone")
"""Spark converts the dates and times of such a file."""
_DAY_MICROS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31: within PostgreSQL's calendar and Python's."""
_FIRST_DAY_OF_OTHERS = -25_567
"""1900-01-01. Spark refuses earlier dates and times in files of other writers, which may mean another calendar."""


_SPARK_CALENDAR, _SPARK_CALENDAR_OF_INT96 = (3, 0), (3, 1)
"""Since these releases, Spark writes its present calendar, or a mark (``DataSourceUtils.getRebaseSpec`` of Spark)."""


class FileRefused(Exception):
    """The file must be read by Spark. The text has no value of the file."""


def can_decode(schema: StructType) -> bool:
    """Whether all columns have a type whose values are the same in the file and in Spark."""
    from pyspark.sql import types as T

    from cdf.spark_versions import has_collation

    plain: set[type[T.DataType]] = {T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType}
    plain |= {T.DoubleType, T.DecimalType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType}

    def is_plain(kind: DataType) -> bool:
        return type(kind) in plain or (type(kind) is T.StringType and not has_collation(kind))

    # Spark pads char columns while it reads them; a dot in a name would mean a field of a struct
    return all(
        is_plain(field.dataType) and "." not in field.name and "__CHAR_VARCHAR_TYPE_STRING" not in field.metadata
        for field in schema.fields
    )


def decode_file(
    path: str, content: pa.Buffer | None, columns: Sequence[str], types: Sequence[pa.DataType], rows: int
) -> Iterator[pa.RecordBatch]:
    """The columns in this order with these types, in batches of so many rows. Without content the file is opened here.
    Raises FileRefused."""
    try:
        yield from _decode(path, content, columns, types, rows)
    except FileRefused:
        raise
    except Exception as error:
        reason = type(error).__name__
    else:
        return
    raise FileRefused(reason)


def add_change_columns(rows: pa.Table, names: Sequence[str], version: int, *, has_change_type: bool) -> pa.Table:
    """The rows of a window's file with ``_change_type`` and ``_commit_version``. ``names``: those of the other columns.
    ``has_change_type``: the last of the columns is that of the file; without it all rows are inserts. Raises FileRefused for
    a change type that a feed does not have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = rows.columns
    if not has_change_type:
        columns = [*columns, pa.repeat(pa.scalar(INSERT), rows.num_rows)]
    elif not CHANGE_TYPES.issuperset(pc.unique(columns[-1]).to_pylist()):
        raise FileRefused("a change type")
    columns = [*columns, pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows)]
    return pa.Table.from_arrays(columns, names=[*names, CHANGE_TYPE, COMMIT_VERSION])


def _decode(
    path: str, content: pa.Buffer | None, columns: Sequence[str], types: Sequence[pa.DataType], rows: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = path if content is None else pa.BufferReader(content)
    file = pq.ParquetFile(
        source,
        memory_map=content is None,
        coerce_int96_timestamp_unit="us",
        pre_buffer=False,
        page_checksum_verification=True,  # Spark compares the checksums of local files, which lie beside them
    )
    footer, schema = file.metadata, file.schema_arrow  # each access converts the whole schema again
    found_types = dict(zip(schema.names, schema.types, strict=True))
    if not set(columns) <= found_types.keys():
        raise FileRefused("column missing")
    if len({name.casefold() for name in schema.names}) < len(schema.names):
        raise FileRefused("names that differ by case")
    kept = footer.metadata or {}
    if any(mark in kept for mark in _MARKS):
        raise FileRefused("old calendar")
    writer = _spark_version(kept)
    first_day = _FIRST_DAY if writer >= _SPARK_CALENDAR else _FIRST_DAY_OF_OTHERS
    physical = _read_physical_types(file)
    casts = [
        _find_cast(found_types[name], physical[name], kind, writer) for name, kind in zip(columns, types, strict=True)
    ]
    moments = [(name, kind) for name, kind in zip(columns, types, strict=True) if _is_moment(kind)]
    found = 0
    for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False):
        found += batch.num_rows
        # By name: a file may have the columns in another order than the table
        arrays = {
            name: batch.column(name).cast(kind) if cast else batch.column(name)
            for name, kind, cast in zip(columns, types, casts, strict=True)
        }
        for name, kind in moments:
            _check_moments(arrays[name], kind, first_day)
        yield pa.RecordBatch.from_arrays(list(arrays.values()), names=list(columns))
    if found != footer.num_rows:
        raise FileRefused("rows missing")


def _spark_version(kept: dict[bytes, bytes]) -> tuple[int, int]:
    """(0, 0) for the files of other writers."""
    major, minor, *_ = [*kept.get(b"org.apache.spark.version", b"0.0").split(b"."), b"", b""]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _read_physical_types(file: Any) -> dict[str, str]:
    schema = file.schema
    columns = (schema.column(at) for at in range(len(schema)))
    return {column.path: str(column.physical_type) for column in columns}


def _find_cast(found: pa.DataType, physical: str, wanted: pa.DataType, writer: tuple[int, int]) -> bool:
    """Whether the values must be converted, which changes none of them. ``writer``: the release of Spark."""
    import pyarrow as pa

    if physical == "INT96":
        # The moment in UTC; only the zone is missing
        is_moment = pa.types.is_timestamp(wanted) and wanted.tz is not None and found == pa.timestamp("us")
        if is_moment and writer >= _SPARK_CALENDAR_OF_INT96:
            return True
        raise FileRefused("INT96")
    if found == wanted:
        return False
    wider = {(pa.large_string(), pa.string()), (pa.large_binary(), pa.binary())}
    if (found, wanted) in wider:
        return True
    raise FileRefused("other type")


def _is_moment(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _check_moments(array: pa.Array, kind: pa.DataType, first_day: int) -> None:
    """Raises FileRefused for a date or time outside of the calendar."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_date = pa.types.is_date32(kind)
    ends = pc.min_max(array.view(pa.int32() if is_date else pa.int64())).as_py()
    unit = 1 if is_date else _DAY_MICROS
    if ends["min"] is not None and (ends["min"] < first_day * unit or ends["max"] >= (_LAST_DAY + 1) * unit):
        raise FileRefused("far date or time")
