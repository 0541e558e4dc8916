"""Converts stored columns to the types recorded for their commit.

Delta can widen the type of a column after rows were written. The encoding uses the recorded type, so values are converted
back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import types as T

from cdf.errors import RowRejected, SchemaDrift

__all__ = ["BYTES", "Numbers", "convert_to_recorded", "is_valid", "to_numbers"]

BYTES = pa.large_binary()
Numbers = npt.NDArray[Any]
_WHOLE = {T.ByteType: pa.int8(), T.ShortType: pa.int16(), T.IntegerType: pa.int32(), T.LongType: pa.int64()}
_DAY_MICROS = 86_400_000_000


def to_numbers(values: pa.Array) -> Numbers:
    """The values as numpy array, 0 for NULL."""
    return values.fill_null(0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def is_valid(values: pa.Array) -> Numbers:
    return values.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


_is = pa.types
_STORED_TYPES: dict[type[T.DataType], tuple[Callable[[pa.DataType], bool], ...]] = {
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
    T.DateType: (_is.is_date32, lambda type: _is.is_timestamp(type) and type.tz is None),
    T.TimestampType: (lambda type: _is.is_timestamp(type) and type.tz is not None,),
    T.TimestampNTZType: (lambda type: _is.is_timestamp(type) and type.tz is None,),
    T.ArrayType: (_is.is_list, _is.is_large_list),
    T.MapType: (_is.is_map,),
    T.StructType: (_is.is_struct,),
}
"""For each recorded type, its Arrow types and those of the types to which Delta widens it."""


def convert_to_recorded(values: pa.Array, type: T.DataType, path: str) -> pa.Array:
    """Convert values to their recorded type, in the form that the encoding needs: booleans as uint8, floats as double, whole
    numbers, days and microseconds as int64, texts as bytes, maps as lists. Raises SchemaDrift, RowRejected."""
    if not any(matches(values.type) for matches in _STORED_TYPES[type.__class__]):
        fault = f"is recorded as {type.simpleString()}, which Delta does not widen to {values.type}"
        raise SchemaDrift(f"column {path!r} {fault}", column=path)
    try:
        narrow = _narrow(values, type)
    except pa.ArrowInvalid:
        narrow = None  # its message, which quotes the value, is dropped
    if narrow is None:
        fault = f"has a value that does not fit the recorded type, {type.simpleString()}"
        raise RowRejected(f"column {path!r} {fault}", column=path)
    return narrow


def _narrow(values: pa.Array, type: T.DataType) -> pa.Array | None:
    """→ None, or raises ``ArrowInvalid``, if a value would change."""
    match type:
        case T.BooleanType():
            return values.cast(pa.uint8())
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return values.cast(_WHOLE[type.__class__]).cast(pa.int64())
        case T.FloatType():
            doubles = values.cast(pa.float64())
            floats = doubles.cast(pa.float32()).cast(pa.float64())
            return doubles if np.array_equal(to_numbers(doubles), to_numbers(floats), equal_nan=True) else None
        case T.DecimalType():
            return values.cast(pa.decimal128(type.precision, type.scale))
        case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
            return values.cast(BYTES)
        case T.DateType() if _is.is_timestamp(values.type):
            days, rest = np.divmod(to_numbers(_micros(values)), _DAY_MICROS)
            return None if rest.any() else pa.array(days, mask=~is_valid(values))
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
