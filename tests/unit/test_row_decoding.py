"""CRE1 read back: what was encoded comes back, and no other bytes are taken for it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from audit.hashing.row_decoding import decode_rows
from audit.hashing.row_encoding import encode_rows
from audit.hashing.value_encoding import encode
from tests.unit.test_row_encoding import VECTORS, columns, random_rows, rows_of, table, vector_type


def decoded(data: list[bytes], schema: T.StructType) -> tuple[pa.RecordBatch, list[bool]]:
    values, right = decode_rows(data, schema)
    return pa.RecordBatch.from_arrays(values, names=schema.names), right


@random_rows
@given(drawn=rows_of)
def test_what_was_encoded_comes_back(drawn: tuple[T.StructType, list[dict[str, Any]]]) -> None:
    schema, rows = drawn
    found = encode_rows(table(rows, schema), schema)
    back, right = decoded(found, schema)
    assert all(right)
    assert encode_rows(back, schema) == found


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    schema = columns(v=vector_type(vector["type"]))
    front = encode({"v": True}, columns(v=T.BooleanType())).removesuffix(encode(True, T.BooleanType()))
    value = bytes.fromhex(vector["hex"])
    data = encode({"v": None}, schema) if value == b"\x00" else front + value  # a row leaves out what is NULL
    back, right = decoded([data], schema)
    assert right == [True]
    assert encode_rows(back, schema) == [data]


def test_values_and_their_types() -> None:
    kind = columns(d=T.DecimalType(12, 2), s=T.StringType(), n=T.LongType(), gone=T.DateType())
    value = {"d": Decimal("20.50"), "s": "Ada", "n": 7, "gone": None}
    back, right = decoded([encode(value, kind)], kind)
    assert (back.to_pylist(), right) == ([value], [True])


@random_rows
@given(drawn=rows_of, cut=st.integers(0, 60), flipped=st.integers(0, 500))
def test_nothing_else_is_taken_for_it(drawn: tuple[T.StructType, list[dict[str, Any]]], cut: int, flipped: int) -> None:
    """Every change of the bytes is refused, or is the encoding of another value: never a second one of the same. The rows
    beside it are read."""
    schema, rows = drawn
    for data in encode_rows(table(rows, schema), schema):
        at = flipped % (8 * len(data))
        other = bytearray(data)
        other[at // 8] ^= 1 << at % 8
        for changed in (bytes(other), data[:cut] if cut < len(data) else data[:-1], data + b"\x00"):
            back, right = decoded([data, changed, data], schema)
            assert (right[0], right[2]) == (True, True)
            again = encode_rows(back, schema)
            assert again[0] == again[2] == data
            if right[1]:
                assert again[1] == changed != data
            else:
                assert set(back.slice(1, 1).to_pylist()[0].values()) <= {None}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x0c\xff\xff\xff\xff"])
def test_what_is_no_row_is_none(data: bytes) -> None:
    back, right = decoded([data], columns(n=T.LongType()))
    assert (back.to_pylist(), right) == ([{"n": None}], [False])


def test_a_value_that_the_type_cannot_hold() -> None:
    data = encode({"n": 1 << 40}, columns(n=T.LongType()))
    back, right = decoded([data, encode({"n": 7}, columns(n=T.IntegerType()))], columns(n=T.IntegerType()))
    assert (back.to_pylist(), right) == ([{"n": None}, {"n": 7}], [False, True])
