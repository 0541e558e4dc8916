"""Decodes CRE1: from the canonical bytes of a row to its values (``audit.hashing.row_encoding``,
``docs/reference/row-encoding.md``).

-0.0 is decoded as 0.0, and every NaN as the same NaN. All other values are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from audit.hashing.row_encoding import encode_rows
from cdf.errors import RowRejected
from cdf.spark_versions import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decode_rows"]

_LONG, _COUNT, _SCALE, _DOUBLE = Struct(">q"), Struct(">I"), Struct(">i"), Struct(">d")
_DIGITS = Context(prec=38)


def decode_rows(data: Sequence[bytes], schema: T.StructType) -> tuple[list[pa.Array], list[bool]]:
    """→ the columns of the rows, and for each row whether it is canonical: whether its values encode to the same bytes. A
    row that is not canonical has NULLs."""
    import pyarrow as pa

    rows = [_decode_fields(encoded, schema) for encoded in data]
    try:
        columns = [
            _arrow_values([None if row is None else row[field.name] for row in rows], field.dataType)
            for field in schema.fields
        ]
        encoded_again = encode_rows(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)
        canonical = [
            row is not None and again == encoded for row, again, encoded in zip(rows, encoded_again, data, strict=True)
        ]
        has_faults = any(row is not None and not right for row, right in zip(rows, canonical, strict=True))
    except (pa.ArrowException, ArithmeticError, ValueError, RowRejected):
        has_faults, canonical = True, [False]
    if not has_faults:
        return columns, canonical
    if len(data) == 1:
        return [pa.nulls(1, _arrow(field.dataType, pa.string())) for field in schema.fields], [False]
    parts = [decode_rows([encoded], schema) for encoded in data]
    return (
        [pa.concat_arrays(column) for column in zip(*(columns for columns, _ in parts), strict=True)],
        [right for _, (right,) in parts],
    )


def _decode_fields(data: bytes, schema: T.StructType) -> dict[str, Any] | None:
    """None: the bytes cannot be decoded."""
    reader = _Reader(data)
    try:
        fields: dict[str, Any] | None = reader.value(schema)
    except (StructError, LookupError, ArithmeticError, RecursionError):
        return None
    return fields if reader.at == len(data) else None


def _arrow_values(decoded: Sequence[Any], type: T.DataType) -> pa.Array:
    """The decoded values as Arrow array."""
    import pyarrow as pa

    return pa.array(decoded, _arrow(type, pa.binary())).view(_arrow(type, pa.string()))


def _arrow(type: T.DataType, text: pa.DataType) -> pa.DataType:
    """``text``: the Arrow type for strings; they are decoded as binary first, because they need not be valid UTF-8."""
    import pyarrow as pa

    match type:
        case T.StringType() | T.CharType() | T.VarcharType():
            return text
        case T.ArrayType():
            return pa.list_(_arrow(type.elementType, text))
        case T.MapType():
            return pa.map_(_arrow(type.keyType, text), _arrow(type.valueType, text))
        case T.StructType():
            return pa.struct([(field.name, _arrow(field.dataType, text)) for field in type.fields])
        case _:
            return arrow_type(type)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def value(self, type: T.DataType) -> Any:
        tag = self._take(1)
        if tag == b"\x00":
            return None
        match type:
            case T.BooleanType():
                return self._take(1) == b"\x01"
            case T.FloatType() | T.DoubleType():
                return self._number(_DOUBLE)
            case T.DecimalType():
                scale, unscaled = self._number(_SCALE), int.from_bytes(self._sized(), "big", signed=True)
                return (
                    Decimal(unscaled).scaleb(-scale, _DIGITS).quantize(Decimal(1).scaleb(-type.scale), context=_DIGITS)
                )
            case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
                return self._sized()
            case T.ArrayType(elementType=element):
                return [self.value(element) for _ in range(self._count())]
            case T.MapType(keyType=key, valueType=item):
                return [(self.value(key), self.value(item)) for _ in range(self._count())]
            case T.StructType():
                found = dict.fromkeys(type.names)
                types = {field.name: field.dataType for field in type.fields}
                for _ in range(self._count()):
                    name = self._sized().decode(errors="replace")
                    found[name] = self.value(types[name])
                return found
            case _:  # whole numbers, days, microseconds
                return self._number(_LONG)

    def _number(self, form: Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def _count(self) -> int:
        count = int(self._number(_COUNT))
        if count > len(self.data):  # every item has at least one byte
            raise IndexError
        return count

    def _sized(self) -> bytes:
        return self._take(self._count())

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise IndexError
        part, self.at = self.data[self.at : end], end
        return part
