"""CRE1, the canonical encoding of a row: equal rows become equal bytes and different rows different ones, whatever the
session, its time zone, the version of Spark, and the columns that came, went or were widened since.

``docs/reference/row-encoding.md`` is the specification. ``encode`` says the same in plain Python and is the norm;
``encode_rows`` does it column by column on the executors. The tests hold one to the other.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from cdf.errors import CdfError, RowRejected, SchemaDrift, TypeNotSupported

__all__ = ["encode", "encode_rows", "encode_columns", "encode_or_none", "find_unsupported_fields", "row_hash"]

_TAGS: dict[type[T.DataType], bytes] = {
    T.BooleanType: b"\x01",
    T.ByteType: b"\x02",
    T.ShortType: b"\x02",
    T.IntegerType: b"\x02",
    T.LongType: b"\x02",
    T.FloatType: b"\x03",
    T.DoubleType: b"\x03",
    T.DecimalType: b"\x04",
    T.StringType: b"\x05",
    T.CharType: b"\x05",
    T.VarcharType: b"\x05",
    T.BinaryType: b"\x06",
    T.DateType: b"\x07",
    T.TimestampType: b"\x08",
    T.TimestampNTZType: b"\x09",
    T.ArrayType: b"\x0a",
    T.MapType: b"\x0b",
    T.StructType: b"\x0c",
}
_NULL = b"\x00"


def row_hash(salt: bytes, encoded: bytes) -> bytes:
    """SHA-256 of a row's encoding, 32 bytes. The salt has 16 random bytes of the row's own: without it and the row the hash
    tells nothing."""
    if len(salt) != 16:
        raise ValueError("the salt of a row has 16 bytes")
    return hashlib.sha256(b"CRE1" + salt + encoded).digest()


def find_unsupported_fields(schema: T.StructType) -> list[str]:
    """The path and type of everything in the schema that has no canonical form, at any depth: ``a.element (variant)``."""
    return list(_unsupported(schema, ""))


def _unsupported(type: T.DataType, path: str) -> Iterator[str]:
    if type.__class__ not in _TAGS:
        yield f"{path} ({type.simpleString()})"
    elif isinstance(type, T.ArrayType):
        yield from _unsupported(type.elementType, f"{path}.element")
    elif isinstance(type, T.MapType):
        yield from _unsupported(type.keyType, f"{path}.key")
        yield from _unsupported(type.valueType, f"{path}.value")
    elif isinstance(type, T.StructType):
        for field in type.fields:
            yield from _unsupported(field.dataType, _below(path, field.name))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# ── the norm: one value ──────────────────────────────────────────────────────────────────────────────────────────────

_LONG = Struct(">q").pack
_COUNT = Struct(">I").pack
_SCALE = Struct(">i").pack
_DOUBLE = Struct(">d").pack
_NAN = bytes.fromhex("7ff8000000000000")
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def encode(value: Any, type: T.DataType) -> bytes:
    """The canonical bytes of one value.

    Values are those of PySpark and of Arrow's ``to_pylist``. A date and a time may also be the integer that Delta stores,
    days or microseconds since 1970; a string its bytes in UTF-8; a map a list of pairs; a struct anything with ``[name]``.
    Raises ``TypeError`` for a timestamp without an offset: it is no instant.
    """
    if value is None:
        return _NULL
    if type.__class__ not in _TAGS:
        raise TypeNotSupported(f"{type.simpleString()} has no canonical form")
    return _TAGS[type.__class__] + _body(value, type)


def _body(value: Any, type: T.DataType) -> bytes:
    match type:
        case T.BooleanType():
            return bytes([value])
        case T.FloatType() | T.DoubleType():
            return _NAN if value != value else _DOUBLE(value + 0.0)  # -0.0 + 0.0 is 0.0
        case T.DecimalType():
            return _decimal(value)
        case T.StringType() | T.CharType() | T.VarcharType():
            return _sized(value.encode() if isinstance(value, str) else value)
        case T.BinaryType():
            return _sized(bytes(value))
        case T.DateType():
            return _LONG(value if isinstance(value, int) else (value - _EPOCH.date()).days)
        case T.TimestampType():
            return _LONG(value if isinstance(value, int) else (value - _EPOCH.replace(tzinfo=dt.UTC)) // _MICROSECOND)
        case T.TimestampNTZType():
            return _LONG(value if isinstance(value, int) else (value - _EPOCH) // _MICROSECOND)
        case T.ArrayType(elementType=element):
            return _COUNT(len(value)) + b"".join(encode(item, element) for item in value)
        case T.MapType(keyType=key, valueType=item):
            held = value.items() if isinstance(value, dict) else value
            entries = sorted((encode(name, key), encode(found, item)) for name, found in held)
            if any(one[0] == next[0] for one, next in pairwise(entries)):
                raise RowRejected("a map holds a key twice")
            return _COUNT(len(entries)) + b"".join(name + found for name, found in entries)
        case T.StructType():
            present = [field for field in type.fields if value[field.name] is not None]
            fields = sorted((field.name.encode(), encode(value[field.name], field.dataType)) for field in present)
            return _COUNT(len(fields)) + b"".join(_sized(name) + found for name, found in fields)
        case _:  # the whole numbers
            return _LONG(value)


def _sized(value: bytes) -> bytes:
    return _COUNT(len(value)) + value


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # a column has no NaN and no infinities
    unscaled = int("".join(map(str, digits)))
    unscaled, scale = _stripped(-unscaled if sign else unscaled, -exponent)
    return _SCALE(scale) + _sized(unscaled.to_bytes(_width(unscaled), "big", signed=True))


def _stripped(unscaled: int, scale: int) -> tuple[int, int]:
    """Unscaled value and scale without zeros at the end; zero has the scale 0."""
    if unscaled == 0:
        return 0, 0
    while unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    return unscaled, scale


def _width(number: int) -> int:
    """Of the shortest two's complement, in bytes; that of zero has one."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


# ── the same, column by column ───────────────────────────────────────────────────────────────────────────────────────
# An encoded column is an array of large_binary, NULL where the column is.

_BYTES = pa.large_binary()
_WHOLE = {T.ByteType: pa.int8(), T.ShortType: pa.int16(), T.IntegerType: pa.int32(), T.LongType: pa.int64()}
_DAY = 86_400_000_000


def encode_rows(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[bytes]:
    """The canonical bytes of every row, in order.

    ``schema`` is the one recorded for the rows' commit. Its columns are found by name; what it does not name, columns and
    nested fields, is not encoded. A column may be held in a wider type by now, one that Delta widens the recorded one to.

    Raises ``TypeNotSupported`` for a type without a canonical form; ``SchemaDrift`` for a recorded column that is missing or
    held in a type that is no wider one; ``RowRejected`` for a value that the recorded type cannot hold, and for a map with a
    key twice. They name the column. To find the row, encode slices of one row each.
    """
    return [row for batch in _batches(rows, schema) for row in _split(_encoded(batch, schema, ""))]


def encode_or_none(batch: pa.RecordBatch, schema: T.StructType) -> Sequence[bytes | None]:
    """Of each row; None for one that can never have been written so. What is found then is that row, and no failure."""
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
        held = _held(batch, schema.fields, "")
        for column, field, values in zip(columns, schema.fields, held, strict=True):
            column += _split(_item(values, field.dataType, field.name))
    return columns


def _batches(rows: pa.RecordBatch | pa.Table, schema: T.StructType) -> list[pa.StructArray]:
    if found := find_unsupported_fields(schema):
        raise TypeNotSupported(f"no canonical form: {', '.join(found)}")
    return [batch.to_struct_array() for batch in (rows.to_batches() if isinstance(rows, pa.Table) else [rows])]


def _encoded(values: pa.Array, type: T.DataType, path: str, front: bytes = b"") -> pa.Array:
    """``front``, tag and body of every value that is not NULL."""
    values = _as_recorded(values, type, path)
    front += _TAGS[type.__class__]
    match type:
        case T.BooleanType():
            return _join(front, _fixed(_numbers(values), ">u1", values))
        case T.FloatType() | T.DoubleType():
            doubles = _numbers(values)
            return _join(front, _fixed(np.where(np.isnan(doubles), np.nan, doubles) + 0.0, ">f8", values))
        case T.DecimalType():
            return _join(front, _decimals(values))
        case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
            return _join(front, _fixed(_numbers(pc.binary_length(values)), ">u4", values), values)
        case T.ArrayType(elementType=element):
            return _lists(front, values, _item(values.flatten(), element, f"{path}.element"))
        case T.MapType():
            return _lists(front, values, _entries(values, type, path))
        case T.StructType():
            return _structs(front, values, type, path)
        case _:  # whole numbers, days, microseconds
            return _join(front, _fixed(_numbers(values), ">i8", values))


def _item(values: pa.Array, type: T.DataType, path: str) -> pa.Array:
    """As it stands in an array or a map, where a NULL is there too."""
    return _encoded(values, type, path).fill_null(_NULL)


def _lists(front: bytes, lists: pa.Array, items: pa.Array) -> pa.Array:
    """``items``: those of all lists, encoded, one after the other."""
    counts = _counts(lists)
    starts, data = _parts(items)
    return _join(front, _fixed(counts, ">u4", lists), _binary(data, starts[_ends(counts)], lists))


def _entries(maps: pa.Array, type: T.MapType, path: str) -> pa.Array:
    """Key and value of every entry, map by map in order of the keys' bytes."""
    names, items = maps.flatten().flatten()
    keys = _item(names, type.keyType, f"{path}.key")
    entries = _join(b"", keys, _item(items, type.valueType, f"{path}.value"))
    holder = np.repeat(np.arange(len(maps)), _counts(maps))
    by = [("map", "ascending"), ("key", "ascending")]
    order = pc.sort_indices(pa.table({"map": holder, "key": keys}), sort_keys=by)
    keys = keys.take(order)
    again = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    if np.any(again & (holder[1:] == holder[:-1])):
        raise RowRejected(f"column {path!r} holds a map that has a key twice", column=path)
    return entries.take(order)


def _structs(front: bytes, structs: pa.Array, type: T.StructType, path: str) -> pa.Array:
    fields = sorted(type.fields, key=lambda field: field.name.encode())
    counts = np.zeros(len(structs), np.int64)
    parts = []
    for field, values in zip(fields, _held(structs, fields, path), strict=True):
        counts += _valid(values)
        parts.append(_encoded(values, field.dataType, _below(path, field.name), _sized(field.name.encode())))
    there = [_fixed(counts, ">u4", structs), *parts]
    encoded = _join(front, *there, null_handling="replace", null_replacement="")
    return pc.if_else(structs.is_valid(), encoded, pa.scalar(None, _BYTES)) if structs.null_count else encoded


def _held(structs: pa.Array, fields: Sequence[T.StructField], path: str) -> list[pa.Array]:
    """The children of these names, NULL where the struct is."""
    children = structs.flatten()
    places = [structs.type.get_field_index(field.name) for field in fields]
    if -1 in places:
        missing = _below(path, fields[places.index(-1)].name)
        raise SchemaDrift(f"column {missing!r} is recorded but not there", column=missing)
    return [children[place] for place in places]


def _decimals(values: pa.Array) -> pa.Array:
    """Scale, length and unscaled value of decimal128."""
    halves = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[values.offset :][: len(values)]
    unscaled, scales = halves[:, 0].copy(), np.full(len(values), values.type.scale)
    long = np.flatnonzero(halves[:, 1] != unscaled >> 63)  # more than 64 bits: one by one
    left = np.flatnonzero(unscaled)
    while (left := left[unscaled[left] % 10 == 0]).size:
        unscaled[left] //= 10
        scales[left] -= 1
    scales[unscaled == 0] = 0
    body = np.empty((len(values), 24), np.uint8)  # scale, length, 16 bytes of which the last are needed
    body[:, 8:16] = np.where(unscaled < 0, 255, 0)[:, np.newaxis]
    body[:, 16:] = _big_endian(unscaled, ">i8")
    for at in long.tolist():
        number, scales[at] = _stripped(int(halves[at, 1]) << 64 | int(halves[at, 0]) % 2**64, values.type.scale)
        body[at, 8:] = list(number.to_bytes(16, "big", signed=True))
    magnitude = body[:, 8:] ^ np.where(body[:, 8:9] > 127, 255, 0)
    magnitude[:, 15] |= 1  # zero has one byte too
    first = (magnitude > 0).argmax(axis=1)
    sizes = 16 - first + (magnitude[np.arange(len(values)), first] > 127)
    body[:, :4], body[:, 4:8] = _big_endian(scales, ">i4"), _big_endian(sizes, ">u4")
    kept = np.arange(24) >= 24 - sizes[:, np.newaxis]
    kept[:, :8] = True
    return _binary(body[kept], _ends(sizes + 8), values)


_Numbers = npt.NDArray[Any]


def _numbers(values: pa.Array) -> _Numbers:
    """0 where NULL"""
    return values.fill_null(0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _valid(values: pa.Array) -> _Numbers:
    return values.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _counts(lists: pa.Array) -> _Numbers:
    return _numbers(pc.list_value_length(lists))


def _ends(sizes: _Numbers) -> _Numbers:
    """Where values of these sizes start, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _big_endian(numbers: _Numbers, form: str) -> _Numbers:
    """→ bytes, (numbers, width)"""
    data = numbers.astype(form)
    return data.view(np.uint8).reshape(len(data), data.itemsize)


def _fixed(numbers: _Numbers, form: str, like: pa.Array) -> pa.Array:
    data = numbers.astype(form)
    return _binary(data, np.arange(len(data) + 1) * data.itemsize, like)


def _binary(data: Any, offsets: _Numbers, like: pa.Array) -> pa.Array:
    """The pieces of ``data``, NULL where ``like`` is."""
    valid = pa.py_buffer(np.packbits(_valid(like), bitorder="little")) if like.null_count else None
    return pa.Array.from_buffers(_BYTES, len(like), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _join(front: bytes, *parts: pa.Array, **on_null: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(front, _BYTES), *parts, pa.scalar(b"", _BYTES), **on_null)


def _parts(column: pa.Array) -> tuple[_Numbers, bytes]:
    """Where each value starts and the last one ends, and the bytes."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(1, np.int64), b""
    found = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1]
    return found, data.to_pybytes() if data else b""


def _split(column: pa.Array) -> list[bytes]:
    starts, data = _parts(column)
    return [data[start:end] for start, end in pairwise(starts.tolist())]


# ── from the type in which a column is held by now to the recorded one ───────────────────────────────────────────────

_is = pa.types
_HELD: dict[type[T.DataType], tuple[Callable[[pa.DataType], bool], ...]] = {
    T.BooleanType: (_is.is_boolean,),
    T.ByteType: (_is.is_signed_integer, _is.is_float64, _is.is_decimal),
    T.ShortType: (_is.is_signed_integer, _is.is_float64, _is.is_decimal),
    T.IntegerType: (_is.is_signed_integer, _is.is_float64, _is.is_decimal),
    T.LongType: (_is.is_int64, _is.is_decimal),
    T.FloatType: (_is.is_float32, _is.is_float64),
    T.DoubleType: (_is.is_float64,),
    T.DecimalType: (_is.is_decimal128,),
    T.StringType: (_is.is_string, _is.is_large_string),
    T.CharType: (_is.is_string, _is.is_large_string),
    T.VarcharType: (_is.is_string, _is.is_large_string),
    T.BinaryType: (_is.is_binary, _is.is_large_binary, _is.is_fixed_size_binary),
    T.DateType: (_is.is_date32, lambda held: _is.is_timestamp(held) and held.tz is None),
    T.TimestampType: (lambda held: _is.is_timestamp(held) and held.tz is not None,),
    T.TimestampNTZType: (lambda held: _is.is_timestamp(held) and held.tz is None,),
    T.ArrayType: (_is.is_list, _is.is_large_list),
    T.MapType: (_is.is_map,),
    T.StructType: (_is.is_struct,),
}
"""The Arrow types of each type and of those that Delta widens it to."""


def _as_recorded(values: pa.Array, type: T.DataType, path: str) -> pa.Array:
    """Booleans become uint8, floats double, whole numbers, days and microseconds int64, texts bytes, maps lists."""
    if not any(holds(values.type) for holds in _HELD[type.__class__]):
        wanted = f"is recorded as {type.simpleString()}, which Delta does not widen to {values.type}"
        raise SchemaDrift(f"column {path!r} {wanted}", column=path)
    try:
        narrow = _narrowed(values, type)
    except pa.ArrowInvalid:
        narrow = None  # and its text, which cites the value, is dropped
    if narrow is None:
        wanted = f"holds a value that the recorded type, {type.simpleString()}, does not have"
        raise RowRejected(f"column {path!r} {wanted}", column=path)
    return narrow


def _narrowed(values: pa.Array, type: T.DataType) -> pa.Array | None:
    """None or ``ArrowInvalid`` where a value would change."""
    match type:
        case T.BooleanType():
            return values.cast(pa.uint8())
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return values.cast(_WHOLE[type.__class__]).cast(pa.int64())
        case T.FloatType():
            doubles = values.cast(pa.float64())
            kept = doubles.cast(pa.float32()).cast(pa.float64())
            return doubles if np.array_equal(_numbers(doubles), _numbers(kept), equal_nan=True) else None
        case T.DecimalType():
            return values.cast(pa.decimal128(type.precision, type.scale))
        case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
            return values.cast(_BYTES)
        case T.DateType() if _is.is_timestamp(values.type):
            days, rest = np.divmod(_numbers(_micros(values)), _DAY)
            return None if rest.any() else pa.array(days, mask=~_valid(values))
        case T.DateType():
            return values.view(pa.int32()).cast(pa.int64())
        case T.TimestampType() | T.TimestampNTZType():
            return _micros(values)
        case T.MapType():
            return values.view(pa.list_(values.type.field(0).type))
        case _:
            return values


def _micros(values: pa.Array) -> pa.Array:
    return values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
