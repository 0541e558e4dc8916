"""CRE1 read back: from the canonical bytes of a row to its values (``audit.encoding``, ``docs/reference/row-encoding.md``).

A value comes back as CRE1 has it: 0.0 where -0.0 went in, and every NaN as the same one. All else is what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from audit.encoding import encode
from cdf.errors import RowRejected

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NotCanonical", "arrow_values", "decode", "decoded_column"]

_LONG, _COUNT, _SCALE, _DOUBLE = Struct(">q"), Struct(">I"), Struct(">i"), Struct(">d")
_DIGITS = Context(prec=38)


class NotCanonical(ValueError):
    """The bytes are not those of a value of that type. It does not show them."""


def decode(data: bytes, type: T.DataType) -> Any:
    """The value: a text as its bytes in UTF-8, a date and a time as the integer that Delta stores (days or microseconds
    since 1970), a map as a list of pairs, a struct as a dictionary of all its fields. Raises NotCanonical, also where only
    the values could be read: what is decoded encodes to the same bytes again."""
    reader = _Reader(data)
    try:
        value = reader.value(type)
        whole = reader.at == len(data) and encode(value, type) == data
    except (StructError, LookupError, ArithmeticError, RowRejected, RecursionError):
        whole = False
    if not whole:
        raise NotCanonical(f"no encoding of {type.simpleString()}")
    return value


def decoded_column(values: Sequence[bytes | None], type: T.DataType) -> pa.Array:
    """Many values in Arrow's form of the type; None is NULL."""
    return arrow_values([None if value is None else decode(value, type) for value in values], type)


def arrow_values(decoded: Sequence[Any], type: T.DataType) -> pa.Array:
    """What ``decode`` gave, in Arrow's form of the type."""
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
