"""CRE1: both encoders against each other, against a decoder that is written here, and against the vectors."""

from __future__ import annotations

import calendar
import datetime as dt
import json
import math
import re
import struct
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from audit.hashing.row_encoding import encode_by_halves, encode_columns, encode_rows, hash_leaves, hash_rows, row_hash
from audit.hashing.value_encoding import encode, find_unsupported_fields
from audit.proof import leaf_hash
from cdf.errors import CdfError, RowRejected, SchemaDrift, TypeNotSupported
from tests.fixtures.fix_seed import examples

VECTORS = json.loads(Path(__file__).with_name("row_encoding_vectors.json").read_text(encoding="utf-8"))
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "row-encoding.md"
random_rows = settings(
    max_examples=examples(50, full=3000),
    suppress_health_check=list(HealthCheck),
)
Normal = Any
Strategy = st.SearchStrategy[Any]
TEXT = (T.StringType, T.CharType, T.VarcharType)
WHOLE = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}


def columns(**types: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, type) for name, type in types.items()])


def arrow_type(type: T.DataType, text: pa.DataType) -> pa.DataType:
    match type:
        case T.StringType() | T.CharType() | T.VarcharType():
            return text
        case T.ArrayType():
            return pa.list_(arrow_type(type.elementType, text))
        case T.MapType():
            return pa.map_(arrow_type(type.keyType, text), arrow_type(type.valueType, text))
        case T.StructType():
            return pa.struct([(field.name, arrow_type(field.dataType, text)) for field in type.fields])
        case _:
            return to_arrow_type(type, timezone="Asia/Kathmandu")


def arrow(values: list[Any], type: T.DataType) -> pa.Array:
    """Text goes in as bytes, so that it need not be valid."""
    return pa.array(values, arrow_type(type, pa.binary())).view(arrow_type(type, pa.string()))


def table(rows: list[dict[str, Any]], schema: T.StructType) -> pa.Table:
    return pa.table([arrow([row[name] for row in rows], schema[name].dataType) for name in schema.names], schema.names)


def encoded(held: pa.Array, type: T.DataType) -> list[bytes]:
    """By ``encode_rows``, without the row around each value."""
    rows = encode_rows(pa.table({"v": held}), columns(v=type))
    nothing, one = bytes.fromhex("0c 00000000"), bytes.fromhex("0c 00000001 00000001 76")
    assert all(row == nothing or row.startswith(one) for row in rows)
    return [b"\0" if row == nothing else row.removeprefix(one) for row in rows]


# ── a decoder, and what it has to find ───────────────────────────────────────────────────────────────────────────────
# Both give (tag, what the value is). Only equal values have equal ones.


def decoded(data: bytes) -> Normal:
    """Fails on bytes that are not canonical."""
    stream = BytesIO(data)
    value = _read(stream)
    assert not stream.read()
    return value


def _number(stream: BytesIO, width: int, *, signed: bool = False) -> int:
    data = stream.read(width)
    assert len(data) == width
    return int.from_bytes(data, "big", signed=signed)


def _sized(stream: BytesIO) -> bytes:
    size = _number(stream, 4)
    data = stream.read(size)
    assert len(data) == size
    return data


def _read(stream: BytesIO) -> Normal:
    tag = _number(stream, 1)
    match tag:
        case 0x00:
            return None
        case 0x01:
            found = _number(stream, 1)
            assert found in (0, 1)
            return tag, found
        case 0x02 | 0x07 | 0x08 | 0x09:
            return tag, _number(stream, 8, signed=True)
        case 0x03:
            bits = _number(stream, 8)
            double = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
            assert bits == 0x7FF8000000000000 if math.isnan(double) else bits != 0x8000000000000000
            return tag, "NaN" if math.isnan(double) else double
        case 0x04:
            scale, data = _number(stream, 4, signed=True), _sized(stream)
            unscaled = int.from_bytes(data, "big", signed=True)
            assert unscaled % 10 or (unscaled, scale) == (0, 0)
            assert data
            if len(data) > 1:
                shorter = 2 ** (8 * len(data) - 9)
                assert not -shorter <= unscaled < shorter
            return tag, Fraction(unscaled) / Fraction(10) ** scale
        case 0x05 | 0x06:
            return tag, _sized(stream)
        case 0x0A:
            return tag, tuple(_read(stream) for _ in range(_number(stream, 4)))
        case 0x0B | 0x0C:
            keys, found = [], []
            for _ in range(_number(stream, 4)):
                start = stream.tell()
                key = _read(stream) if tag == 0x0B else _sized(stream)
                keys.append(key if tag == 0x0C else stream.getvalue()[start : stream.tell()])
                found.append((key, _read(stream)))
            assert all(one < other for one, other in pairwise(keys))
            assert tag == 0x0B or all(value is not None for _, value in found)
            return tag, frozenset(found)
    raise AssertionError(f"tag {tag}")


def normal(value: Any, type: T.DataType) -> Normal:
    if value is None:
        return None
    match type:
        case T.BooleanType():
            return 0x01, int(value)
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return 0x02, value
        case T.FloatType() | T.DoubleType():
            return 0x03, "NaN" if math.isnan(value) else value
        case T.DecimalType():
            return 0x04, Fraction(value)
        case T.StringType() | T.CharType() | T.VarcharType():
            return 0x05, value.encode() if isinstance(value, str) else value
        case T.BinaryType():
            return 0x06, value
        case T.DateType():
            return 0x07, value if isinstance(value, int) else value.toordinal() - dt.date(1970, 1, 1).toordinal()
        case T.TimestampType() | T.TimestampNTZType():
            tag = 0x08 if isinstance(type, T.TimestampType) else 0x09
            if isinstance(value, int):
                return tag, value
            return tag, calendar.timegm(value.utctimetuple()) * 1_000_000 + value.microsecond
        case T.ArrayType(elementType=element):
            return 0x0A, tuple(normal(item, element) for item in value)
        case T.MapType():
            return 0x0B, frozenset((normal(key, type.keyType), normal(item, type.valueType)) for key, item in value)
        case T.StructType():
            found = ((field.name.encode(), normal(value[field.name], field.dataType)) for field in type.fields)
            return 0x0C, frozenset((name, item) for name, item in found if item is not None)
    raise AssertionError(type)


# ── random types and rows ────────────────────────────────────────────────────────────────────────────────────────────

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(T.DecimalType, st.just(precision), st.integers(0, precision))
)
leaves = st.one_of(
    st.sampled_from([T.BooleanType(), *(whole() for whole in WHOLE), T.FloatType(), T.DoubleType(), T.BinaryType()]),
    st.sampled_from([T.StringType(), T.StringType("UTF8_LCASE"), T.CharType(3), T.VarcharType(9)]),
    st.sampled_from([T.DateType(), T.TimestampType(), T.TimestampNTZType()]),
    decimals,
)
names = st.lists(st.sampled_from(["a", "B", "bb", "ä", "x.y", " ", "￿", "🦆"]), min_size=1, max_size=4, unique=True)


def structs(inner: Strategy) -> Strategy:
    return names.flatmap(lambda chosen: st.builds(columns, **dict.fromkeys(chosen, inner)))


types = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(T.ArrayType), st.builds(T.MapType, st.one_of(leaves, leaves.map(T.ArrayType)), inner), structs(inner)
    ),
    max_leaves=4,
)


def values_of(type: T.DataType) -> Strategy:
    """In the form of the integers that Delta stores where Python's own types end too early, text also as bytes."""
    match type:
        case T.BooleanType():
            return st.booleans()
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return signed(WHOLE[type.__class__])
        case T.FloatType():
            return st.floats(width=32)
        case T.DoubleType():
            return st.floats()
        case T.DecimalType():
            digits = st.integers(0, type.precision).flatmap(lambda count: st.integers(0, 10**count - 1))
            zeros = st.integers(0, type.precision).map(lambda count: 10**count)
            unscaled = st.builds(
                lambda number, one: number // one * one, st.one_of(digits, st.just(10**type.precision - 1)), zeros
            )
            return st.builds(
                lambda number, sign: decimal(sign * number, type.scale), unscaled, st.sampled_from([1, -1])
            )
        case T.StringType() | T.CharType() | T.VarcharType():
            return st.one_of(st.text(max_size=5).map(str.encode), st.binary(max_size=5))
        case T.BinaryType():
            return st.binary(max_size=5)
        case T.DateType():
            return signed(32)
        case T.TimestampType() | T.TimestampNTZType():
            return signed(64)
        case T.ArrayType(elementType=element):
            return st.lists(maybe(element), max_size=3)
        case T.MapType(keyType=key, valueType=item):
            pairs = st.tuples(values_of(key), maybe(item))
            return st.lists(pairs, max_size=3, unique_by=lambda pair: normal(pair[0], key))
        case T.StructType():
            return st.fixed_dictionaries({field.name: maybe(field.dataType) for field in type.fields})
    raise AssertionError(type)


def signed(bits: int) -> Strategy:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.one_of(st.integers(least, most), st.sampled_from([least, -1, 0, 1, most]))


def maybe(type: T.DataType) -> Strategy:
    return st.one_of(st.none(), values_of(type), values_of(type))


def decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


rows_of = structs(types).flatmap(lambda schema: st.tuples(st.just(schema), st.lists(values_of(schema), max_size=6)))


@random_rows
@given(drawn=rows_of)
def test_both_encoders_agree_and_lose_nothing(drawn: tuple[T.StructType, list[dict[str, Any]]]) -> None:
    schema, rows = drawn
    found = encode_rows(table(rows, schema), schema)
    assert found == [encode(row, schema) for row in rows]
    assert [decoded(row) for row in found] == [normal(row, schema) for row in rows]


@random_rows
@given(drawn=rows_of, cut=st.integers(0, 6))
def test_neither_pieces_nor_orders_make_a_difference(
    drawn: tuple[T.StructType, list[dict[str, Any]]], cut: int
) -> None:
    schema, rows = drawn
    whole = table(rows, schema)
    found = encode_rows(whole, schema)
    assert encode_rows(whole.slice(cut), schema) == found[cut:]
    assert encode_rows(pa.concat_tables([whole.slice(0, cut), whole.slice(cut)]), schema) == found
    other = T.StructType(schema.fields[::-1])
    assert encode_rows(whole, other) == encode_rows(table(rows, other), schema) == found
    assert encode_rows(table([turned(row, schema) for row in rows], schema), schema) == found
    by_column = encode_columns(whole, schema)
    assert by_column == [[encode(row[name], schema[name].dataType) for row in rows] for name in schema.names]


@random_rows
@given(drawn=rows_of, salt=st.binary(min_size=16, max_size=16), cut=st.integers(0, 6))
def test_columns_give_the_hashes_of_their_rows(
    drawn: tuple[T.StructType, list[dict[str, Any]]], salt: bytes, cut: int
) -> None:
    schema, rows = drawn
    if not schema.fields or not rows:
        return
    batch = table(rows, schema).combine_chunks().to_batches()[0].slice(cut)
    salts = [bytes([salt[0] ^ at, *salt[1:]]) for at in range(len(rows))][cut:]
    expected = [encode(row, schema) for row in rows][cut:]
    assert hash_rows(batch, schema, b"".join(salts)) == list(map(row_hash, salts, expected))
    assert hash_leaves(batch, schema) == list(map(leaf_hash, expected))
    with pytest.raises(ValueError, match="16 bytes"):
        hash_rows(batch, schema, b"".join(salts) + b"x")


@pytest.mark.parametrize("width", [3, 20, 200])
def test_narrow_and_wide_rows_are_encoded_as_specified(width: int) -> None:
    """With and without NULLs: columns of one width are encoded together."""
    kinds: list[tuple[T.DataType, list[Any]]] = [
        (T.LongType(), [1, -1, 2**63 - 1, 0]),
        (T.StringType(), ["", "é" * 70_000, "x", "\0"]),
        (D(38, 10), [Decimal("1.5"), Decimal("-12345678901234567890.0123456789"), Decimal("0E-10"), Decimal(100)]),
        (T.DoubleType(), [math.nan, -0.0, 0.0, math.inf]),
        (T.BooleanType(), [True, False, True, False]),
        (T.ArrayType(T.StringType()), [[], ["a", None], ["b"], [""]]),
    ]
    schema = T.StructType([T.StructField(f"c{at}", kinds[at % len(kinds)][0]) for at in range(width)])
    full = [{f"c{at}": kinds[at % len(kinds)][1][row] for at in range(width)} for row in range(4)]
    sparse = [{name: None if at % 3 == row % 3 else row_of[name] for at, name in enumerate(row_of)}
              for row, row_of in enumerate(full)]  # fmt: skip
    for rows in (full, sparse):
        assert encode_rows(table(rows, schema), schema) == [encode(row, schema) for row in rows]


def test_the_size_of_a_decimal_is_the_least_that_holds_it() -> None:
    edges = [sign * 2**bits + more for bits in range(120) for sign in (1, -1) for more in (-1, 0, 1)]
    held = [Decimal(edge) for edge in edges]
    found = encode_rows(table([{"v": value} for value in held], columns(v=D(38, 0))), columns(v=D(38, 0)))
    assert found == [encode({"v": value}, columns(v=D(38, 0))) for value in held]


def test_rows_that_cannot_be_encoded_do_not_hide_the_others() -> None:
    wrong = {3, 4, 9}

    def hashed(first: int, count: int) -> list[bytes]:
        if wrong & set(range(first, first + count)):
            raise RowRejected("no")
        return [bytes([at]) for at in range(first, first + count)]

    assert list(encode_by_halves(hashed, 11)) == [None if at in wrong else bytes([at]) for at in range(11)]
    assert list(encode_by_halves(hashed, 0)) == []


def turned(value: Any, type: T.DataType) -> Any:
    """With the entries of every map the other way round."""
    if value is None:
        return None
    match type:
        case T.ArrayType(elementType=element):
            return [turned(item, element) for item in value]
        case T.MapType():
            return [(turned(key, type.keyType), turned(item, type.valueType)) for key, item in reversed(value)]
        case T.StructType():
            return {field.name: turned(value[field.name], field.dataType) for field in type.fields}
    return value


# ── equal values, equal bytes ────────────────────────────────────────────────────────────────────────────────────────

D = T.DecimalType
WIDENED: list[tuple[T.DataType, list[Any], list[pa.DataType]]] = [
    (T.ByteType(), [-128, -1, 0, 127], [pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.decimal128(12, 2)]),
    (T.ShortType(), [-32768, 32767], [pa.int32(), pa.int64(), pa.float64(), pa.decimal128(10, 0)]),
    (T.IntegerType(), [-(2**31), 10, 2**31 - 1], [pa.int64(), pa.float64(), pa.decimal128(38, 28)]),
    (T.LongType(), [-(2**63), 10**18, 2**63 - 1], [pa.decimal128(20, 0), pa.decimal128(38, 18)]),
    (T.FloatType(), [0.0, -0.0, 2.0**-149, math.nan, -math.inf, struct.unpack("f", struct.pack("f", 0.1))[0]],
     [pa.float64()]),
    (D(5, 2), [Decimal("-999.99"), Decimal("0.00"), Decimal("10.50")],
     [pa.decimal128(5, 2), pa.decimal128(7, 4), pa.decimal128(38, 2), pa.decimal128(38, 35)]),
    (D(38, 0), [Decimal(10**38 - 1), Decimal(10**37)], [pa.decimal128(38, 0)]),
    (T.DateType(), [-719162, -1, 0, 2932896, 100_000_000], [pa.timestamp("us")]),
]  # fmt: skip


@pytest.mark.parametrize(("recorded", "values", "held"), WIDENED, ids=lambda one: getattr(one, "simpleString", str)())
def test_a_wider_type_changes_nothing(recorded: T.DataType, values: list[Any], held: list[pa.DataType]) -> None:
    values = [*values, None]
    expected = [encode(value, recorded) for value in values]
    assert encoded(arrow(values, recorded), recorded) == expected
    for wider in held:
        days = isinstance(recorded, T.DateType)
        wide = pa.array([value * 86_400_000_000 if days and value is not None else value for value in values], wider)
        assert encoded(wide, recorded) == expected
        in_map = pa.array([[(value, [value])] for value in values[:-1]], pa.map_(wider, pa.list_(wider)))
        if not days:
            assert encoded(in_map, T.MapType(recorded, T.ArrayType(recorded))) == [
                encode([(value, [value])], T.MapType(recorded, T.ArrayType(recorded))) for value in values[:-1]
            ]


@random_rows
@given(unscaled=st.integers(1 - 10**29, 10**29 - 1), zeros=st.integers(0, 9), scale=st.integers(0, 29))
def test_the_scale_of_a_decimal_is_no_part_of_it(unscaled: int, zeros: int, scale: int) -> None:
    expected = encode(decimal(unscaled, scale), D(38, scale))
    padded, type = decimal(unscaled * 10**zeros, scale + zeros), D(38, scale + zeros)
    assert encode(padded, type) == expected
    assert encoded(arrow([padded], type), type) == [expected]


def test_what_the_recorded_schema_does_not_name_is_not_encoded() -> None:
    before = columns(id=T.LongType(), place=columns(city=T.StringType()), tags=T.ArrayType(columns(t=T.StringType())))
    rows = [
        {"id": 1, "place": {"city": "Bern"}, "tags": [{"t": "x"}]},
        {"id": 2, "place": {"city": None}, "tags": [None]},
    ]
    later = columns(
        new=T.DoubleType(),
        tags=T.ArrayType(columns(n=T.LongType(), t=T.StringType())),
        id=T.LongType(),
        place=columns(zip=T.StringType(), city=T.StringType()),
    )

    def grown(row: dict[str, Any], new: Any) -> dict[str, Any]:
        tags = [tag and {**tag, "n": new} for tag in row["tags"]]
        return {**row, "new": new, "place": {**row["place"], "zip": new and str(new)}, "tags": tags}

    expected = [encode(row, before) for row in rows]
    assert encode_rows(table([grown(row, 3) for row in rows], later), before) == expected
    # And a row from before them reads NULL in the columns that were added since: nothing.
    unset = [grown(row, None) for row in rows]
    assert encode_rows(table(unset, later), later) == [encode(row, later) for row in unset] == expected


@pytest.fixture(params=["UTC", "Asia/Kathmandu", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_no_time_zone_changes_anything(zone: str) -> None:
    # 2024-11-03T05:30Z and 06:30Z are both half past one in New York
    moments = [0, 1_730_611_800_000_000, 1_730_615_400_000_000, 1_710_055_799_999_999, -1]
    far = [-(2**63), 2**63 - 1, 253_402_300_799_999_999, -62_135_596_800_000_000]
    expected = [b"\x08" + struct.pack(">q", moment) for moment in moments + far]
    assert encoded(pa.array(moments + far, pa.timestamp("us", zone)), T.TimestampType()) == expected
    named = pa.array(moments, pa.timestamp("us", zone)).to_pylist()
    assert [moment.tzinfo for moment in named] == [ZoneInfo(zone)] * len(moments)
    assert [encode(moment, T.TimestampType()) for moment in named] == expected[: len(moments)]
    clock = [moment.replace(tzinfo=None) for moment in named]
    assert [encode(reading, T.TimestampNTZType()) for reading in clock] == encoded(
        pa.array(clock, pa.timestamp("us")), T.TimestampNTZType()
    )


# ── different values, different bytes ────────────────────────────────────────────────────────────────────────────────


def test_nothing_absent_and_empty_are_three_things() -> None:
    inner = columns(x=T.StringType(), y=T.ArrayType(T.StringType()), z=T.MapType(T.StringType(), T.StringType()))
    schema = columns(s=inner, t=T.StringType())
    nothing = {"x": None, "y": None, "z": None}
    insides = [None, nothing, *({**nothing, **one} for one in ({"x": ""}, {"y": []}, {"y": [None]}, {"y": [""]}, {"z": []},
                                                               {"z": [("", None)]}, {"z": [("", "")]}))]  # fmt: skip
    rows = [{"s": inside, "t": text} for inside in insides for text in (None, "", "\0", "x")]
    found = encode_rows(table(rows, schema), schema)
    assert len(set(found)) == len(rows)
    assert found == [encode(row, schema) for row in rows]


def test_borders_between_values_count() -> None:
    schema = columns(a=T.StringType(), b=T.StringType())
    rows = [{"a": "xy"[:cut], "b": "xy"[cut:]} for cut in range(3)] + [{"a": "xy", "b": None}, {"a": None, "b": "xy"}]
    assert len(set(encode_rows(table(rows, schema), schema))) == len(rows)


def test_the_type_is_part_of_a_value() -> None:
    types = [T.BooleanType(), T.LongType(), T.DoubleType(), T.DateType(), T.TimestampType(), T.TimestampNTZType()]
    found = [encode(1, type) for type in types]
    found += [encode(Decimal(1), D(1, 0)), encode(b"1", T.StringType()), encode(b"1", T.BinaryType())]
    assert len(set(found)) == len(found)


# ── both encoders at the edges ───────────────────────────────────────────────────────────────────────────────────────


def test_there_is_one_nan_and_one_zero() -> None:
    bits = [0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF]
    held = pa.Array.from_buffers(pa.float64(), 4, [None, pa.py_buffer(struct.pack("<4Q", *bits))])
    assert set(encoded(held, T.DoubleType())) == {bytes.fromhex("03 7ff8000000000000")}
    assert {encode(value, T.DoubleType()) for value in struct.unpack("<4d", struct.pack("<4Q", *bits))} == {
        bytes.fromhex("03 7ff8000000000000")
    }
    single = pa.Array.from_buffers(
        pa.float32(), 2, [None, pa.py_buffer(struct.pack("<2L", 0x7F800001, 0xFFC00000)[:8])]
    )
    assert set(encoded(single, T.FloatType())) == {bytes.fromhex("03 7ff8000000000000")}
    assert set(encoded(pa.array([0.0, -0.0]), T.DoubleType())) == {bytes.fromhex("03 0000000000000000")}


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    under = [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<2d", 1e300, 7.0))]
    held = pa.Array.from_buffers(pa.float64(), 2, under)
    assert encoded(held, T.IntegerType()) == [b"\0", encode(7, T.IntegerType())]
    under = [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<4q", 7, 2**60, 70_000, 0))]
    assert encoded(pa.Array.from_buffers(pa.decimal128(38, 4), 2, under), D(10, 2)) == [
        b"\0",
        encode(Decimal(7), D(10, 2)),
    ]
    held = pa.StructArray.from_arrays([pa.array([1e300, 7.0])], ["x"], mask=pa.array([True, False]))
    inside = columns(x=T.IntegerType())
    assert encoded(held, inside) == [b"\0", encode({"x": 7}, inside)]
    held = pa.ListArray.from_arrays([0, 1, 2], pa.array([1e300, 7.0]), mask=pa.array([True, False]))
    assert encoded(held, T.ArrayType(T.IntegerType())) == [b"\0", encode([7], T.ArrayType(T.IntegerType()))]


def test_large_texts_and_rows_of_pyspark() -> None:
    schema = columns(a=T.StringType(), b=T.BinaryType(), m=T.MapType(T.StringType(), T.IntegerType()))
    row = Row(a="é", b=bytearray(b"\xff"), m={"y": 1, "x": None})
    expected = encode({"a": "é", "b": b"\xff", "m": [("x", None), ("y", 1)]}, schema)
    assert encode(row, schema) == expected
    held = [
        pa.array(["é"], pa.large_string()),
        pa.array([b"\xff"], pa.large_binary()),
        arrow([row.m], schema["m"].dataType),
    ]
    assert encode_rows(pa.RecordBatch.from_arrays(held, schema.names), schema) == [expected]


def test_no_rows_and_no_columns() -> None:
    schema = columns(
        a=D(38, 2),
        b=T.MapType(T.StringType(), T.IntegerType()),
        c=T.ArrayType(columns(x=T.DateType())),
        d=T.BooleanType(),
    )
    assert encode_rows(table([], schema), schema) == []
    empty = dict.fromkeys(schema.names)
    assert encode_rows(table([empty] * 2, schema), schema) == [bytes.fromhex("0c 00000000")] * 2
    assert encode_rows(table([empty] * 2, schema), T.StructType()) == [bytes.fromhex("0c 00000000")] * 2


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_types_without_a_canonical_form_are_listed_with_their_paths() -> None:
    schema = columns(
        ok=T.ArrayType(T.MapType(T.VarcharType(3), columns(x=T.StringType("UNICODE")))),
        v=T.VariantType(),
        a=T.ArrayType(columns(t=T.TimeType(), n=T.NullType())),
        m=T.MapType(T.DayTimeIntervalType(), T.YearMonthIntervalType()),
        g=T.GeometryType(4326),
    )
    found = ["v (variant)", "a.element.t (time(6))", "a.element.n (void)", "m.key (interval day to second)",
             "m.value (interval year to month)", "g (geometry(4326))"]  # fmt: skip
    assert find_unsupported_fields(schema) == found
    with pytest.raises(TypeNotSupported, match=re.escape(", ".join(found))):
        encode_rows(pa.table({"ok": [1]}), schema)
    with pytest.raises(TypeNotSupported, match="variant"):
        encode({"v": 1}, columns(v=T.VariantType()))


REFUSED: list[tuple[str, pa.Array, T.DataType, type[CdfError]]] = [
    ("v", pa.array([4711], pa.int64()), T.ByteType(), RowRejected),
    ("v", pa.array([4711.5]), T.IntegerType(), RowRejected),
    ("v", pa.array([4711.0e9]), T.IntegerType(), RowRejected),
    ("v", pa.array([math.nan]), T.IntegerType(), RowRejected),
    ("v", pa.array([Decimal("4711.50")], pa.decimal128(12, 2)), T.LongType(), RowRejected),
    ("v", pa.array([Decimal(2**63)], pa.decimal128(38, 0)), T.LongType(), RowRejected),
    ("v", pa.array([4711.1]), T.FloatType(), RowRejected),
    ("v", pa.array([4711e300]), T.FloatType(), RowRejected),
    ("v", pa.array([Decimal("4.711")], pa.decimal128(12, 3)), D(12, 2), RowRejected),
    ("v", pa.array([Decimal("4711.00")], pa.decimal128(12, 2)), D(5, 2), RowRejected),
    ("v", pa.array([4711], pa.timestamp("us")), T.DateType(), RowRejected),
    ("v", pa.array([4711], pa.timestamp("ns")), T.TimestampNTZType(), RowRejected),
    ("v", pa.array([[(4711, 1), (4711, 1)]], pa.map_(pa.int32(), pa.int32())),
     T.MapType(T.IntegerType(), T.IntegerType()), RowRejected),
    ("v", pa.array([[(0.0, 4711), (-0.0, 4711)]], pa.map_(pa.float64(), pa.int32())),
     T.MapType(T.DoubleType(), T.IntegerType()), RowRejected),
    ("v.element.x", pa.array([[{"x": 4711.5}]]), T.ArrayType(columns(x=T.IntegerType())), RowRejected),
    ("v.key", pa.array([[(4711, 1)]], pa.map_(pa.int32(), pa.int32())),
     T.MapType(T.ByteType(), T.IntegerType()), RowRejected),
    ("v.value", pa.array([[(1, 4711)]], pa.map_(pa.int32(), pa.int32())),
     T.MapType(T.IntegerType(), T.ByteType()), RowRejected),
    ("v", pa.array(["4711"]), T.LongType(), SchemaDrift),
    ("v", pa.array(["4711"]), T.BinaryType(), SchemaDrift),
    ("v", pa.array([b"4711"]), T.StringType(), SchemaDrift),
    ("v", pa.array([4711.0]), T.LongType(), SchemaDrift),
    ("v", pa.array([4711]), T.DoubleType(), SchemaDrift),
    ("v", pa.array([4711], pa.timestamp("us", "UTC")), T.TimestampNTZType(), SchemaDrift),
    ("v", pa.array([4711], pa.timestamp("us")), T.TimestampType(), SchemaDrift),
    ("v", pa.array([4711], pa.timestamp("us", "UTC")), T.DateType(), SchemaDrift),
    ("v", pa.array([[4711]]), T.MapType(T.LongType(), T.LongType()), SchemaDrift),
    ("v.x", pa.array([{"y": 4711}]), columns(x=T.LongType()), SchemaDrift),
]  # fmt: skip


@pytest.mark.parametrize(("path", "held", "recorded", "error"), REFUSED)
def test_what_the_recorded_type_cannot_hold_is_refused_by_column(
    path: str, held: pa.Array, recorded: T.DataType, error: type[CdfError]
) -> None:
    with pytest.raises(error) as caught:
        encoded(held, recorded)
    assert f"column {path!r} " in caught.value.message
    assert caught.value.fields == {"column": path}
    assert "4711" not in caught.value.message
    assert caught.value.__context__ is None


def test_a_recorded_column_must_be_there() -> None:
    with pytest.raises(SchemaDrift, match="column 'b' is recorded but missing"):
        encode_rows(pa.table({"a": [1], "B": [2]}), columns(a=T.LongType(), b=T.LongType()))


def test_the_norm_refuses_what_has_no_one_form() -> None:
    with pytest.raises(TypeError, match="naive"):
        encode(dt.datetime(2024, 1, 1), T.TimestampType())
    with pytest.raises(TypeError, match="naive"):
        encode(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), T.TimestampNTZType())
    with pytest.raises(RowRejected, match="twice"):
        encode([(1.0, "a"), (1.0, "b")], T.MapType(T.DoubleType(), T.StringType()))
    with pytest.raises(ValueError, match="16 bytes"):
        row_hash(b"short", b"")


# ── vectors, and the specification that shows some of them ───────────────────────────────────────────────────────────


def vector_type(said: Any) -> T.DataType:
    field = {"name": "v", "type": said, "nullable": True, "metadata": {}}
    return T.StructType.fromJson({"type": "struct", "fields": [field]})["v"].dataType


def vector_value(said: Any, type: T.DataType) -> Any:
    if said is None:
        return None
    reads: dict[type[T.DataType], Callable[[Any], Any]] = {
        T.BooleanType: bool,
        T.FloatType: _double,
        T.DoubleType: _double,
        T.DecimalType: Decimal,
        T.BinaryType: bytes.fromhex,
        T.DateType: lambda text: int(text) if _integer(text) else dt.date.fromisoformat(text),
        T.TimestampType: lambda text: int(text) if _integer(text) else dt.datetime.fromisoformat(text),
        T.TimestampNTZType: lambda text: int(text) if _integer(text) else dt.datetime.fromisoformat(text),
        **dict.fromkeys(WHOLE, int),
        **dict.fromkeys(TEXT, lambda text: text.encode() if isinstance(text, str) else bytes.fromhex(text["utf8"])),
    }
    match type:
        case T.ArrayType(elementType=element):
            return [vector_value(item, element) for item in said]
        case T.MapType():
            return [(vector_value(key, type.keyType), vector_value(item, type.valueType)) for key, item in said]
        case T.StructType():
            return {field.name: vector_value(said[field.name], field.dataType) for field in type.fields}
    return reads[type.__class__](said)


def _integer(text: str) -> bool:
    return re.fullmatch(r"-?\d+", text) is not None


def _double(text: str) -> float:
    bits = text.removeprefix("bits:")
    return float(text) if bits == text else float(struct.unpack(">d", bytes.fromhex(bits))[0])


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    type, expected = vector_type(vector["type"]), bytes.fromhex(vector["hex"])
    value = vector_value(vector["value"], type)
    assert encode(value, type) == expected
    assert encoded(arrow([value], type), type) == [expected]
    assert encoded(arrow([None, value], type)[1:], type) == [expected]
    lists = arrow([[value], [None], None, [value, value]], T.ArrayType(type))
    one, two = bytes.fromhex("0a 00000001"), bytes.fromhex("0a 00000002")
    assert encoded(lists[1:], T.ArrayType(type)) == [one + b"\0", b"\0", two + 2 * expected]
    assert decoded(expected) == normal(value, type)


def test_vectors_differ_where_their_values_do() -> None:
    meant: dict[str, Normal] = {}
    for vector in VECTORS["values"]:
        type = vector_type(vector["type"])
        value = normal(vector_value(vector["value"], type), type)
        assert meant.setdefault(vector["hex"], value) == value
    assert len(set(meant.values())) == len(meant)
    assert {bytes.fromhex(found)[0] for found in meant} == set(range(13))


@pytest.mark.parametrize("vector", VECTORS["row_hashes"], ids=lambda vector: vector["name"])
def test_vector_of_a_row_hash(vector: dict[str, str]) -> None:
    salt, row = bytes.fromhex(vector["salt"]), bytes.fromhex(vector["row"])
    assert row_hash(salt, row).hex() == vector["hash"]
    assert sha256(b"CRE1" + salt + row).hexdigest() == vector["hash"]
    assert decoded(row)[0] == 0x0C


def test_the_document_shows_the_vectors() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    by_name = {vector["name"]: vector for vector in VECTORS["values"]}
    shown = re.findall(r"^\| ([^|]+) \| `([^`]+)` \| `([^`]+)` \| `([0-9a-f ]+)` \|$", text, re.MULTILINE)
    assert len(shown) > 20
    for name, type, value, found in shown:
        vector = by_name[name]
        assert type == vector_type(vector["type"]).simpleString()
        assert value == json.dumps(vector["value"], ensure_ascii=False)
        assert found.replace(" ", "") == vector["hex"]
    known = {
        vector["hex"][start:] for vector in VECTORS["values"] for start in (0, 2)
    }  # with the tag, and the body alone
    known |= {vector[part] for vector in VECTORS["row_hashes"] for part in ("salt", "row", "hash")}
    blocks = re.findall(r"^```hex\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([0-9a-f ]{9,})`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    assert blocks
    for found in [re.sub(r"#.*", "", block) for block in blocks] + spans:
        assert "".join(found.split()) in known


def test_the_document_has_every_type_and_its_tag() -> None:
    tags: dict[str, str] = {}
    for tag, said in re.findall(
        r"^\| `([0-9a-f]{2})` \| ([^|]+) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    ):
        tags |= dict.fromkeys(re.findall(r"`([^`]+)`", said), tag)
    examples = [(True, T.BooleanType()), *((1, whole()) for whole in WHOLE), (1.0, T.FloatType()), (1.0, T.DoubleType()),
                (Decimal(1), T.DecimalType(10, 2)), ("", T.StringType()), ("", T.StringType("UNICODE")), ("", T.CharType(5)),
                ("", T.VarcharType(5)), (b"", T.BinaryType()), (0, T.DateType()), (0, T.TimestampType()),
                (0, T.TimestampNTZType()), ([], T.ArrayType(T.IntegerType())),
                ({}, T.MapType(T.StringType(), T.IntegerType())), ({"a": 1}, columns(a=T.IntegerType()))]  # fmt: skip
    assert tags == {type.simpleString(): f"{encode(value, type)[0]:02x}" for value, type in examples}
