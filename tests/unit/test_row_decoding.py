"""CRE1 read back: what was encoded comes back, and no other bytes are taken for it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from audit.decoding import NotCanonical, decode, decoded_column
from audit.encoding import encode, encode_rows
from tests.unit.test_row_encoding import VECTORS, columns, random_rows, rows_of, table, vector_type


@random_rows
@given(drawn=rows_of)
def test_what_was_encoded_comes_back(drawn: tuple[T.StructType, list[dict[str, Any]]]) -> None:
    schema, rows = drawn
    found = encode_rows(table(rows, schema), schema)
    assert [encode(decode(one, schema), schema) for one in found] == found
    back = decoded_column([*found, None], schema)
    assert back.null_count == 1
    assert encode_rows(pa.Table.from_struct_array(back.slice(0, len(rows))), schema) == found


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    kind, data = vector_type(vector["type"]), bytes.fromhex(vector["hex"])
    assert encode(decode(data, kind), kind) == data


def test_values_and_their_types() -> None:
    kind = columns(d=T.DecimalType(12, 2), s=T.StringType(), n=T.LongType(), gone=T.DateType())
    value = {"d": Decimal("20.50"), "s": "Ada", "n": 7, "gone": None}
    assert decode(encode(value, kind), kind) == {**value, "s": b"Ada"}
    assert str(decode(encode(Decimal(100), T.DecimalType(5, 2)), T.DecimalType(5, 2))) == "100.00"


@random_rows
@given(drawn=rows_of, cut=st.integers(0, 60), flipped=st.integers(0, 500))
def test_nothing_else_is_taken_for_it(drawn: tuple[T.StructType, list[dict[str, Any]]], cut: int, flipped: int) -> None:
    """Every change of the bytes is refused, or is the encoding of another value: never a second one of the same."""
    schema, rows = drawn
    for data in encode_rows(table(rows, schema), schema):
        at = flipped % (8 * len(data))
        other = bytearray(data)
        other[at // 8] ^= 1 << at % 8
        for changed in (bytes(other), data[:cut] if cut < len(data) else data[:-1], data + b"\x00"):
            try:
                value = decode(changed, schema)
            except NotCanonical:
                continue
            assert encode(value, schema) == changed != data
    with pytest.raises(NotCanonical):
        decode(b"\x0c\xff\xff\xff\xff", schema)


def test_a_refusal_shows_nothing() -> None:
    with pytest.raises(NotCanonical) as refused:
        decode(encode("Ada", T.StringType()), T.LongType())
    assert "Ada" not in str(refused.value)
    assert refused.value.__cause__ is None
