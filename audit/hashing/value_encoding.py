"""The reference implementation of CRE1: the canonical bytes of one value, in plain Python.

``docs/reference/row-encoding.md`` is the specification. ``audit.hashing.row_encoding`` encodes columns; tests compare both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from struct import Struct
from typing import Any

from pyspark.sql import types as T

from cdf.errors import RowRejected, TypeNotSupported

__all__ = [
    "NULL",
    "TAGS",
    "count_bytes",
    "encode",
    "find_unsupported_fields",
    "join_path",
    "strip_zeros",
    "with_length",
]

TAGS: dict[type[T.DataType], bytes] = {
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
NULL = b"\x00"


def find_unsupported_fields(schema: T.StructType) -> list[str]:
    """List path and type of each field that has no canonical form, at any depth: ``a.element (variant)``."""
    return list(_find_unsupported(schema, ""))


def _find_unsupported(type: T.DataType, path: str) -> Iterator[str]:
    if type.__class__ not in TAGS:
        yield f"{path} ({type.simpleString()})"
    elif isinstance(type, T.ArrayType):
        yield from _find_unsupported(type.elementType, f"{path}.element")
    elif isinstance(type, T.MapType):
        yield from _find_unsupported(type.keyType, f"{path}.key")
        yield from _find_unsupported(type.valueType, f"{path}.value")
    elif isinstance(type, T.StructType):
        for field in type.fields:
            yield from _find_unsupported(field.dataType, join_path(path, field.name))


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_LONG = Struct(">q").pack
_COUNT = Struct(">I").pack
_SCALE = Struct(">i").pack
_DOUBLE = Struct(">d").pack
_NAN = bytes.fromhex("7ff8000000000000")
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def encode(value: Any, type: T.DataType) -> bytes:
    """The canonical bytes of one value.

    Values are those of PySpark and of Arrow's ``to_pylist``. A date or timestamp may also be the integer that Delta stores,
    days or microseconds since 1970; a string its bytes in UTF-8; a map a list of pairs; a struct any object with ``[name]``.
    Raises ``TypeError`` for a timestamp without time zone where the type has one.
    """
    if value is None:
        return NULL
    if type.__class__ not in TAGS:
        raise TypeNotSupported(f"{type.simpleString()} has no canonical form")
    return TAGS[type.__class__] + _body(value, type)


def _body(value: Any, type: T.DataType) -> bytes:
    match type:
        case T.BooleanType():
            return bytes([value])
        case T.FloatType() | T.DoubleType():
            return _NAN if value != value else _DOUBLE(value + 0.0)  # -0.0 + 0.0 is 0.0
        case T.DecimalType():
            return _decimal(value)
        case T.StringType() | T.CharType() | T.VarcharType():
            return with_length(value.encode() if isinstance(value, str) else value)
        case T.BinaryType():
            return with_length(bytes(value))
        case T.DateType():
            return _LONG(value if isinstance(value, int) else (value - _EPOCH.date()).days)
        case T.TimestampType():
            return _LONG(value if isinstance(value, int) else (value - _EPOCH.replace(tzinfo=dt.UTC)) // _MICROSECOND)
        case T.TimestampNTZType():
            return _LONG(value if isinstance(value, int) else (value - _EPOCH) // _MICROSECOND)
        case T.ArrayType(elementType=element):
            return _COUNT(len(value)) + b"".join(encode(item, element) for item in value)
        case T.MapType(keyType=key, valueType=item):
            pairs = value.items() if isinstance(value, dict) else value
            entries = sorted((encode(name, key), encode(content, item)) for name, content in pairs)
            if any(entry[0] == following[0] for entry, following in pairwise(entries)):
                raise RowRejected("a map has a key twice")
            return _COUNT(len(entries)) + b"".join(name + content for name, content in entries)
        case T.StructType():
            present = [field for field in type.fields if value[field.name] is not None]
            fields = sorted((field.name.encode(), encode(value[field.name], field.dataType)) for field in present)
            return _COUNT(len(fields)) + b"".join(with_length(name) + content for name, content in fields)
        case _:  # whole numbers
            return _LONG(value)


def with_length(value: bytes) -> bytes:
    return _COUNT(len(value)) + value


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # a column has neither NaN nor infinities
    unscaled = int("".join(map(str, digits)))
    unscaled, scale = strip_zeros(-unscaled if sign else unscaled, -exponent)
    return _SCALE(scale) + with_length(unscaled.to_bytes(count_bytes(unscaled), "big", signed=True))


def strip_zeros(unscaled: int, scale: int) -> tuple[int, int]:
    """→ unscaled value and scale without trailing zeros; zero has the scale 0."""
    if unscaled == 0:
        return 0, 0
    while unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    return unscaled, scale


def count_bytes(number: int) -> int:
    """Number of bytes of the shortest two's complement; 1 for zero."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1
