"""CRE1, the canonical encoding of rows, column by column on the executors.

Equal rows have equal bytes and different rows different ones, independent of the session, its time zone, the version of
Spark, and of columns that were added, removed or widened since. ``audit.hashing.value_encoding`` is the reference
implementation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from audit.hashing.recorded_types import BYTES, Numbers, convert_to_recorded, is_valid, to_numbers
from audit.hashing.value_encoding import NULL, TAGS, find_unsupported_fields, join_path, strip_zeros, with_length
from cdf.errors import CdfError, RowRejected, SchemaDrift, TypeNotSupported

__all__ = ["encode_columns", "encode_or_none", "encode_rows", "row_hash"]


def row_hash(salt: bytes, encoded: bytes) -> bytes:
    """SHA-256 of a row's encoding, 32 bytes. ``salt``: 16 random bytes of this row; without salt and row the hash reveals
    nothing."""
    if len(salt) != 16:
        raise ValueError("the salt of a row must have 16 bytes")
    return hashlib.sha256(b"CRE1" + salt + encoded).digest()


# An encoded column is an array of large_binary, NULL where the column is.


def encode_rows(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[bytes]:
    """The canonical bytes of every row, in order.

    ``schema``: the one recorded for the rows' commit. Columns are found by name; columns and nested fields that it does not
    have are not encoded. A column may be stored in a wider type, to which Delta widens the recorded one.

    Raises ``TypeNotSupported`` for a type without a canonical form; ``SchemaDrift`` for a recorded column that is missing
    or stored in a type that is not a wider one; ``RowRejected`` for a value that does not fit the recorded type, and for a
    map with a key twice. They name the column. To find the row, encode slices of one row each.
    """
    return [row for batch in _batches(rows, schema) for row in _split(_encoded(batch, schema, ""))]


def encode_or_none(batch: pa.RecordBatch, schema: T.StructType) -> Sequence[bytes | None]:
    """The canonical bytes of each row; None for a row that cannot be encoded, so that it is reported and does not fail the
    query."""
    try:
        return encode_rows(batch, schema)
    except CdfError:
        if batch.num_rows == 1:
            return [None]
    return [row for at in range(batch.num_rows) for row in encode_or_none(batch.slice(at, 1), schema)]


def encode_columns(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[list[bytes]]:
    """The canonical bytes of every value, column by column in the order of ``schema``. Raises what ``encode_rows`` does."""
    columns: list[list[bytes]] = [[] for _ in schema.fields]
    for batch in _batches(rows, schema):
        children = _children(batch, schema.fields, "")
        for column, field, values in zip(columns, schema.fields, children, strict=True):
            column += _split(_item(values, field.dataType, field.name))
    return columns


def _batches(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[pa.StructArray]:
    if found := find_unsupported_fields(schema):
        raise TypeNotSupported(f"no canonical form: {', '.join(found)}")
    return [batch.to_struct_array() for batch in (rows.to_batches() if isinstance(rows, pa.Table) else [rows])]


def _encoded(values: pa.Array, type: T.DataType, path: str, front: bytes = b"") -> pa.Array:
    """``front``, tag and body of every value that is not NULL, as large_binary; NULL otherwise."""
    values = convert_to_recorded(values, type, path)
    front += TAGS[type.__class__]
    match type:
        case T.BooleanType():
            return _join(front, _fixed(to_numbers(values), ">u1", values))
        case T.FloatType() | T.DoubleType():
            doubles = to_numbers(values)
            return _join(front, _fixed(np.where(np.isnan(doubles), np.nan, doubles) + 0.0, ">f8", values))
        case T.DecimalType():
            return _join(front, _decimals(values))
        case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
            return _join(front, _fixed(to_numbers(pc.binary_length(values)), ">u4", values), values)
        case T.ArrayType(elementType=element):
            return _lists(front, values, _item(values.flatten(), element, f"{path}.element"))
        case T.MapType():
            return _lists(front, values, _entries(values, type, path))
        case T.StructType():
            return _structs(front, values, type, path)
        case _:  # whole numbers, days, microseconds
            return _join(front, _fixed(to_numbers(values), ">i8", values))


def _item(values: pa.Array, type: T.DataType, path: str) -> pa.Array:
    """The encoding inside an array or a map, in which NULL has an encoding as well."""
    return _encoded(values, type, path).fill_null(NULL)


def _lists(front: bytes, lists: pa.Array, items: pa.Array) -> pa.Array:
    """``items``: the encoded items of all lists, concatenated."""
    counts = _counts(lists)
    starts, data = _offsets_and_data(items)
    return _join(front, _fixed(counts, ">u4", lists), _binary(data, starts[_ends(counts)], lists))


def _entries(maps: pa.Array, type: T.MapType, path: str) -> pa.Array:
    """Encoded key and value of every entry, map by map, in the order of the encoded keys."""
    names, items = maps.flatten().flatten()
    keys = _item(names, type.keyType, f"{path}.key")
    entries = _join(b"", keys, _item(items, type.valueType, f"{path}.value"))
    holder = np.repeat(np.arange(len(maps)), _counts(maps))
    by = [("map", "ascending"), ("key", "ascending")]
    order = pc.sort_indices(pa.table({"map": holder, "key": keys}), sort_keys=by)
    keys = keys.take(order)
    repeats = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    if np.any(repeats & (holder[1:] == holder[:-1])):
        raise RowRejected(f"column {path!r} has a map with a key twice", column=path)
    return entries.take(order)


def _structs(front: bytes, structs: pa.Array, type: T.StructType, path: str) -> pa.Array:
    fields = sorted(type.fields, key=lambda field: field.name.encode())
    counts = np.zeros(len(structs), np.int64)
    parts = []
    for field, values in zip(fields, _children(structs, fields, path), strict=True):
        counts += is_valid(values)
        parts.append(_encoded(values, field.dataType, join_path(path, field.name), with_length(field.name.encode())))
    pieces = [_fixed(counts, ">u4", structs), *parts]
    encoded = _join(front, *pieces, null_handling="replace", null_replacement="")
    return pc.if_else(structs.is_valid(), encoded, pa.scalar(None, BYTES)) if structs.null_count else encoded


def _children(structs: pa.Array, fields: Sequence[T.StructField], path: str) -> list[pa.Array]:
    """The child arrays of these names, NULL where the struct is NULL."""
    children = structs.flatten()
    places = [structs.type.get_field_index(field.name) for field in fields]
    if -1 in places:
        missing = join_path(path, fields[places.index(-1)].name)
        raise SchemaDrift(f"column {missing!r} is recorded but missing", column=missing)
    return [children[place] for place in places]


def _decimals(values: pa.Array) -> pa.Array:
    """Scale, length and unscaled value of each decimal128."""
    halves = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[values.offset :][: len(values)]
    unscaled, scales = halves[:, 0].copy(), np.full(len(values), values.type.scale)
    long = np.flatnonzero(halves[:, 1] != unscaled >> 63)  # more than 64 bits: one at a time
    left = np.flatnonzero(unscaled)
    while (left := left[unscaled[left] % 10 == 0]).size:
        unscaled[left] //= 10
        scales[left] -= 1
    scales[unscaled == 0] = 0
    body = np.empty((len(values), 24), np.uint8)  # scale, length, 16 bytes of which only the last are used
    body[:, 8:16] = np.where(unscaled < 0, 255, 0)[:, np.newaxis]
    body[:, 16:] = _big_endian(unscaled, ">i8")
    for at in long.tolist():
        number, scales[at] = strip_zeros(int(halves[at, 1]) << 64 | int(halves[at, 0]) % 2**64, values.type.scale)
        body[at, 8:] = list(number.to_bytes(16, "big", signed=True))
    magnitude = body[:, 8:] ^ np.where(body[:, 8:9] > 127, 255, 0)
    magnitude[:, 15] |= 1  # zero has one byte as well
    first = (magnitude > 0).argmax(axis=1)
    sizes = 16 - first + (magnitude[np.arange(len(values)), first] > 127)
    body[:, :4], body[:, 4:8] = _big_endian(scales, ">i4"), _big_endian(sizes, ">u4")
    used = np.arange(24) >= 24 - sizes[:, np.newaxis]
    used[:, :8] = True
    return _binary(body[used], _ends(sizes + 8), values)


def _counts(lists: pa.Array) -> Numbers:
    return to_numbers(pc.list_value_length(lists))


def _ends(sizes: Numbers) -> Numbers:
    """The offsets at which values of these sizes start, and at which the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _big_endian(numbers: Numbers, form: str) -> Numbers:
    """→ bytes, (numbers, width)"""
    data = numbers.astype(form)
    return data.view(np.uint8).reshape(len(data), data.itemsize)


def _fixed(numbers: Numbers, form: str, like: pa.Array) -> pa.Array:
    data = numbers.astype(form)
    return _binary(data, np.arange(len(data) + 1) * data.itemsize, like)


def _binary(data: Any, offsets: Numbers, like: pa.Array) -> pa.Array:
    """The slices of ``data`` at these offsets, NULL where ``like`` is NULL."""
    valid = pa.py_buffer(np.packbits(is_valid(like), bitorder="little")) if like.null_count else None
    return pa.Array.from_buffers(BYTES, len(like), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _join(front: bytes, *parts: pa.Array, **on_null: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(front, BYTES), *parts, pa.scalar(b"", BYTES), **on_null)


def _offsets_and_data(column: pa.Array) -> tuple[Numbers, bytes]:
    """The offsets of the values, and their bytes."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(1, np.int64), b""
    used = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1]
    return used, data.to_pybytes() if data else b""


def _split(column: pa.Array) -> list[bytes]:
    starts, data = _offsets_and_data(column)
    return [data[start:end] for start, end in pairwise(starts.tolist())]
