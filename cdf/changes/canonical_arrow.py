"""The parts of the canonical text that Spark's Python workers compute, on Arrow arrays.

A module of its own: commands without Spark import ``canonical``, and pyarrow takes a tenth of a second.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from cdf.changes.canonical import jsonb_text

__all__ = ["double_bits", "float_list_texts", "jsonb_texts"]


def double_bits(values: pa.Array) -> pa.Array:
    return values.view(pa.int64())


def float_list_texts(lists: pa.Array) -> pa.Array:
    texts = [None if values is None else "".join(map(_framed_float, values)) for values in lists.to_pylist()]
    return pa.array(texts, type=pa.string())


def _framed_float(value: str | None) -> str:
    if value is None:
        return "~"
    text = value if value == "NaN" else str(int.from_bytes(struct.pack(">d", float(value)), signed=True))
    return f"{len(text)}:{text}"


def jsonb_texts(values: pa.Array) -> pa.Array:
    return pa.array([None if text is None else jsonb_text(text) for text in values.to_pylist()], type=pa.string())
