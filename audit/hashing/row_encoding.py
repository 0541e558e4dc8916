"""CRE1, the canonical encoding of rows, column by column on the executors.

Equal rows have equal bytes and different rows different ones, independent of the session, its time zone, the version of
Spark, and of columns that were added, removed or widened since. ``audit.hashing.value_encoding`` is the reference
implementation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from audit.hashing.recorded_types import BYTES, Numbers, convert_to_recorded, is_valid, to_numbers
from audit.hashing.value_encoding import (
    NULL,
    TAGS,
    count_bytes,
    find_unsupported_fields,
    join_path,
    strip_zeros,
    with_length,
)
from cdf.errors import CdfError, RowRejected, SchemaDrift, TypeNotSupported

__all__ = [
    "encode_batch",
    "encode_by_halves",
    "encode_columns",
    "encode_rows",
    "hash_leaves",
    "hash_rows",
    "row_hash",
]


def row_hash(salt: bytes, encoded: bytes) -> bytes:
    """SHA-256 of a row's encoding, 32 bytes. ``salt``: 16 random bytes of this row; without salt and row the hash reveals
    nothing."""
    if len(salt) != 16:
        raise ValueError("the salt of a row must have 16 bytes")
    return hashlib.sha256(b"CRE1" + salt + encoded).digest()


# A piece is a part of the encoding of every row: an array of large_binary, NULL where the value is NULL; or, if it has the
# same width in all rows and no value is NULL, a numpy array (rows, width) of bytes. Pieces of one width are cheap to join.
_Piece: TypeAlias = "pa.Array | Numbers"
_ROW = TAGS[T.StructType]


def encode_rows(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[bytes]:
    """The canonical bytes of every row, in order.

    ``schema``: the one recorded for the rows' commit. Columns are found by name; columns and nested fields that it does not
    have are not encoded. A column may be stored in a wider type, to which Delta widens the recorded one.

    Raises ``TypeNotSupported`` for a type without a canonical form; ``SchemaDrift`` for a recorded column that is missing
    or stored in a type that is not a wider one; ``RowRejected`` for a value that does not fit the recorded type, and for a
    map with a key twice. They name the column. To find the row, encode slices of one row each.
    """
    return [row for batch in _batches(rows, schema) for row in _split(_structs(_ROW, batch, schema, ""))]


def hash_rows(rows: pa.RecordBatch, schema: T.StructType, salts: bytes) -> list[bytes]:
    """``row_hash`` of every row. ``salts``: 16 bytes for each row, joined. Raises what ``encode_rows`` does."""
    if len(salts) != 16 * rows.num_rows:
        raise ValueError("the salt of a row must have 16 bytes")
    front = _with_front(b"CRE1", np.frombuffer(salts, np.uint8).reshape(-1, 16))
    return _hash_behind([front], rows, schema)


def hash_leaves(rows: pa.RecordBatch, schema: T.StructType) -> list[bytes]:
    """``audit.proof.leaf_hash`` of the encoding of every row. Raises what ``encode_rows`` does."""
    return _hash_behind([np.zeros((rows.num_rows, 1), np.uint8)], rows, schema)


def _hash_behind(front: list[_Piece], rows: pa.RecordBatch, schema: T.StructType) -> list[bytes]:
    """SHA-256 of these bytes and the encoding of every row."""
    (batch,) = _batches(rows, schema)
    starts, data = _offsets_and_data(_structs(_ROW, batch, schema, "", front))
    return [hashlib.sha256(data[start:end]).digest() for start, end in pairwise(starts.tolist())]


def encode_by_halves(
    encode: Callable[[int, int], Sequence[bytes]], count: int, first: int = 0
) -> Iterator[bytes | None]:
    """What ``encode`` returns for all rows, or else for each half of them, and so on; None for a row for which it raises an
    error. ``encode``: of the first row and the number of rows."""
    try:
        yield from encode(first, count)
    except CdfError:
        if count < 2:
            yield from [None] * count
            return
        yield from encode_by_halves(encode, count // 2, first)
        yield from encode_by_halves(encode, count - count // 2, first + count // 2)


def encode_columns(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[list[bytes]]:
    """The canonical bytes of every value, column by column in the order of ``schema``. Raises what ``encode_rows`` does."""
    columns: list[list[bytes]] = [[] for _ in schema.fields]
    for batch in _batches(rows, schema):
        for column, values in zip(columns, _encoded_columns(batch, schema), strict=True):
            column += _split(values)
    return columns


def encode_batch(rows: pa.RecordBatch, schema: T.StructType) -> list[pa.Array]:
    """``encode_columns`` as arrays of large_binary, without NULLs."""
    (batch,) = _batches(rows, schema)
    return _encoded_columns(batch, schema)


def _encoded_columns(batch: pa.StructArray, schema: T.StructType) -> list[pa.Array]:
    children = _children(batch, schema.fields, "")
    return [_item(values, field.dataType, field.name) for field, values in zip(schema.fields, children, strict=True)]


def _batches(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[pa.StructArray]:
    if found := find_unsupported_fields(schema):
        raise TypeNotSupported(f"no canonical form: {', '.join(found)}")
    return [batch.to_struct_array() for batch in (rows.to_batches() if isinstance(rows, pa.Table) else [rows])]


def _encoded(values: pa.Array, type: T.DataType, path: str, front: bytes = b"") -> list[_Piece]:
    """``front``, tag and body of every value, in pieces. Where the value is NULL, at least one piece is NULL, and all others
    are NULL or empty."""
    values = convert_to_recorded(values, type, path)
    front += TAGS[type.__class__]
    match type:
        case T.BooleanType():
            return [_fixed(front, to_numbers(values), ">u1", values)]
        case T.FloatType() | T.DoubleType():
            doubles = to_numbers(values)
            return [_fixed(front, np.where(np.isnan(doubles), np.nan, doubles) + 0.0, ">f8", values)]
        case T.DecimalType():
            return [_decimals(front, values)]
        case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
            return [_fixed(front, to_numbers(pc.binary_length(values)), ">u4", values), values]
        case T.ArrayType(elementType=element):
            return _lists(front, values, _item(values.flatten(), element, f"{path}.element"))
        case T.MapType():
            return _lists(front, values, _entries(values, type, path))
        case T.StructType():
            return [_structs(front, values, type, path)]
        case _:  # whole numbers, days, microseconds
            return [_fixed(front, to_numbers(values), ">i8", values)]


def _item(values: pa.Array, type: T.DataType, path: str) -> pa.Array:
    """The encoding inside an array or a map, in which NULL has an encoding as well."""
    return _join(_encoded(values, type, path)).fill_null(NULL)


def _lists(front: bytes, lists: pa.Array, items: pa.Array) -> list[_Piece]:
    """``items``: the encoded items of all lists, concatenated."""
    counts = _counts(lists)
    starts, data = _offsets_and_data(items)
    return [_fixed(front, counts, ">u4", lists), _binary(data, starts[_ends(counts)], lists)]


def _entries(maps: pa.Array, type: T.MapType, path: str) -> pa.Array:
    """Encoded key and value of every entry, map by map, in the order of the encoded keys."""
    names, items = maps.flatten().flatten()
    keys = _item(names, type.keyType, f"{path}.key")
    entries = _join([keys, _item(items, type.valueType, f"{path}.value")])
    holder = np.repeat(np.arange(len(maps)), _counts(maps))
    by = [("map", "ascending"), ("key", "ascending")]
    order = pc.sort_indices(pa.table({"map": holder, "key": keys}), sort_keys=by)
    keys = keys.take(order)
    repeats = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    if np.any(repeats & (holder[1:] == holder[:-1])):
        raise RowRejected(f"column {path!r} has a map with a key twice", column=path)
    return entries.take(order)


def _structs(front: bytes, structs: pa.Array, type: T.StructType, path: str, before: Sequence[_Piece] = ()) -> pa.Array:
    """``before``: pieces that precede the encoding."""
    fields = sorted(type.fields, key=lambda field: field.name.encode())
    counts = np.zeros(len(structs), np.int64)
    parts: list[_Piece] = []
    for field, values in zip(fields, _children(structs, fields, path), strict=True):
        counts += is_valid(values) if values.null_count else 1
        parts += _encoded(values, field.dataType, join_path(path, field.name), with_length(field.name.encode()))
    pieces = [*before, _fixed(front, counts, ">u4", structs), *parts]
    encoded = _join(pieces, null_handling="replace", null_replacement="")
    return pc.if_else(structs.is_valid(), encoded, pa.scalar(None, BYTES)) if structs.null_count else encoded


def _children(structs: pa.Array, fields: Sequence[T.StructField], path: str) -> list[pa.Array]:
    """The child arrays of these names, NULL where the struct is NULL."""
    children = structs.flatten()
    places = [structs.type.get_field_index(field.name) for field in fields]
    if -1 in places:
        missing = join_path(path, fields[places.index(-1)].name)
        raise SchemaDrift(f"column {missing!r} is recorded but missing", column=missing)
    return [children[place] for place in places]


def _decimals(front: bytes, values: pa.Array) -> pa.Array:
    """``front``, scale, length and unscaled value of each decimal128."""
    halves = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[values.offset :][: len(values)]
    unscaled, scales = halves[:, 0].copy(), np.full(len(values), values.type.scale)
    long = np.flatnonzero(halves[:, 1] != unscaled >> 63)  # more than 64 bits: one at a time
    left = np.flatnonzero(unscaled)
    while (left := left[unscaled[left] % 10 == 0]).size:
        unscaled[left] //= 10
        scales[left] -= 1
    scales[unscaled == 0] = 0
    sizes = 1 + np.searchsorted(_LARGER_SIZES, unscaled ^ (unscaled >> 63), side="right")
    digits = _big_endian(unscaled, ">i8")
    if long.size:
        digits = np.concatenate([np.zeros_like(digits), digits], axis=1)
    for at in long.tolist():
        number, scales[at] = strip_zeros(int(halves[at, 1]) << 64 | int(halves[at, 0]) % 2**64, values.type.scale)
        digits[at] = list(number.to_bytes(16, "big", signed=True))
        sizes[at] = count_bytes(number)
    head = _with_front(front, np.concatenate([_big_endian(scales, ">i4"), _big_endian(sizes, ">u4")], axis=1))
    body = np.concatenate([head, digits], axis=1)  # of the digits only the last bytes are used
    used = np.arange(body.shape[1]) >= body.shape[1] - sizes[:, np.newaxis]
    used[:, : head.shape[1]] = True
    return _binary(body[used], _ends(sizes + head.shape[1]), values)


_LARGER_SIZES = 2 ** np.arange(7, 63, 8)
"""The numbers from which on an unscaled value needs 2, 3 and up to 8 bytes."""


def _counts(lists: pa.Array) -> Numbers:
    return to_numbers(pc.list_value_length(lists))


def _ends(sizes: Numbers) -> Numbers:
    """The offsets at which values of these sizes start, and at which the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _big_endian(numbers: Numbers, form: str) -> Numbers:
    """→ bytes, (numbers, width)"""
    data = numbers.astype(form)
    return data.view(np.uint8).reshape(len(data), data.itemsize)


def _with_front(front: bytes, data: Numbers) -> Numbers:
    """``data``: bytes, (rows, width)"""
    block = np.empty((len(data), len(front) + data.shape[1]), np.uint8)
    block[:, : len(front)] = np.frombuffer(front, np.uint8)
    block[:, len(front) :] = data
    return block


def _fixed(front: bytes, numbers: Numbers, form: str, like: pa.Array) -> _Piece:
    """``front`` and a number, NULL where ``like`` is NULL."""
    block = _with_front(front, _big_endian(numbers, form))
    return _from_block(block, like) if like.null_count else block


def _from_block(block: Numbers, like: pa.Array | None = None) -> pa.Array:
    return _binary(block, np.arange(len(block) + 1) * block.shape[1], like)


def _binary(data: Any, offsets: Numbers, like: pa.Array | None) -> pa.Array:
    """The slices of ``data`` at these offsets, NULL where ``like`` is NULL."""
    has_nulls = like is not None and like.null_count
    valid = pa.py_buffer(np.packbits(is_valid(like), bitorder="little")) if has_nulls else None
    return pa.Array.from_buffers(BYTES, len(offsets) - 1, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _join(pieces: Sequence[_Piece], **on_null: str) -> pa.Array:
    """The pieces of each row, joined; by default NULL where one of them is."""
    parts: list[pa.Array] = []
    for is_block, group in groupby(pieces, lambda piece: isinstance(piece, np.ndarray)):
        run = list(group)
        parts += [_from_block(np.concatenate(run, axis=1))] if is_block else run
    if len(parts) == 1 and not parts[0].null_count:
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", BYTES), **on_null)


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
