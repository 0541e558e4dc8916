"""CRE1 read back: from the canonical bytes of a row to its values (``audit.hashing.row_encoding``,
``docs/reference/row-encoding.md``).

A value comes back as CRE1 has it: 0.0 where -0.0 went in, and every NaN as the same one. All else is what it was.
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

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decode_rows"]

_LONG, _COUNT, _SCALE, _DOUBLE = Struct(">q"), Struct(">I"), Struct(">i"), Struct(">d")
_DIGITS = Context(prec=38)


def decode_rows(data: Sequence[bytes], schema: T.StructType) -> tuple[list[pa.Array], list[bool]]:
    """The columns of many rows, and of each row whether it is canonical: what is decoded encodes to the same bytes again.
    One that is not has NULLs."""
    import pyarrow as pa

    read = [_fields(one, schema) for one in data]
    try:
        columns = [
            _arrow_values([None if one is None else one[field.name] for one in read], field.dataType)
            for field in schema.fields
        ]
        again = encode_rows(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)
        right = [one is not None and now == was for one, now, was in zip(read, again, data, strict=True)]
        wrong = any(one is not None and not its for one, its in zip(read, right, strict=True))
    except (pa.ArrowException, ArithmeticError, ValueError, RowRejected):
        wrong, right = True, [False]
    if not wrong:
        return columns, right
    if len(data) == 1:
        return [pa.nulls(1, _arrow(field.dataType, pa.string())) for field in schema.fields], [False]
    parts = [decode_rows([one], schema) for one in data]
    return (
        [pa.concat_arrays(column) for column in zip(*(columns for columns, _ in parts), strict=True)],
        [right for _, (right,) in parts],
    )


def _fields(data: bytes, schema: T.StructType) -> dict[str, Any] | None:
    """None where nobody can read it."""
    reader = _Reader(data)
    try:
        found: dict[str, Any] | None = reader.value(schema)
    except (StructError, LookupError, ArithmeticError, RecursionError):
        return None
    return found if reader.at == len(data) else None


def _arrow_values(decoded: Sequence[Any], type: T.DataType) -> pa.Array:
    """What was read, in Arrow's form of the type."""
    import pyarrow as pa

    return pa.array(decoded, _arrow(type, pa.binary())).view(_arrow(type, pa.string()))


def _arrow(type: T.DataType, text: pa.DataType) -> pa.DataType:
    """Text goes in as bytes, for it need not be valid UTF-8."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

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
            return to_arrow_type(type, timezone="UTC")


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
        if count > len(self.data):  # every item has a byte at least
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
