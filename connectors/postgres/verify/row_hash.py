"""A 64-bit hash of each row, which PostgreSQL and numpy compute alike.

It is taken over the bytes of ``record_send``: the type, the length and the binary form of every value, so that different
rows have different bytes. The hash is Bob Jenkins' lookup3 with a seed, as ``hash_record_extended`` of PostgreSQL 14 and
newer has it. It must detect accidents, not attacks. A difference between the two implementations, on a machine with another
order of bytes for example, makes rows look different that are equal, never the reverse.

Of a long value its MD5 is taken instead, with a salt: numpy hashes many rows at a time, each in steps of 12 bytes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["BYTES", "LONG", "RowHash", "can_hash"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Words = np.ndarray[Any, np.dtype[np.uint32]]
Lengths = np.ndarray[Any, np.dtype[np.int64]]

_BLOCK = 12
"""Bytes that each step of the hash takes."""
LONG = 512
"""Bytes of a value above which its MD5 is hashed."""
_FIXED = {
    "boolean": (16, "u1"),
    "smallint": (21, "i2"),
    "integer": (23, "i4"),
    "bigint": (20, "i8"),
    "real": (700, "i4"),
    "double precision": (701, "i8"),
    "date": (1082, "i4"),
    "timestamp without time zone": (1114, "i8"),
    "timestamp with time zone": (1184, "i8"),
}
"""The type's oid, and the values as numbers, which are sent with the highest byte first."""
BYTES = {"text": 25, "bytea": 17}
_NUMERIC = 1700
_EPOCH_DAYS = 10_957
"""2000-01-01, from which PostgreSQL counts."""
_EPOCHS = {"date": _EPOCH_DAYS, **dict.fromkeys(_FIXED.keys() & {"timestamp without time zone", "timestamp with time zone"},
                                                _EPOCH_DAYS * 86_400_000_000)}  # fmt: skip


def can_hash(kind: str) -> bool:
    """Whether all values of this type of PostgreSQL that the source can have are equal only if their bytes are."""
    return kind in _FIXED or kind in BYTES or kind.startswith("numeric(")


@dataclass(frozen=True, slots=True)
class RowHash:
    """``kinds``: the types of the columns in PostgreSQL. ``seed``: above 0 and below 2^63."""

    kinds: tuple[str, ...]
    seed: int

    @property
    def salt(self) -> str:
        """Of the MD5 of long values: no stored value is such an MD5."""
        return f"{self.seed}:"

    def of_batch(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The hash of every row. Raises ValueError for a date or time that PostgreSQL does not have."""
        pieces = _Pieces(batch.num_rows)
        pieces.add_number("i4", len(self.kinds))
        for array, kind in zip(batch.columns, self.kinds, strict=True):
            if kind in BYTES:
                pieces.add_number("i4", BYTES[kind])
                self._add_bytes(pieces, array, kind)
            elif kind in _FIXED:
                oid, form = _FIXED[kind]
                pieces.add_number("i4", oid)
                _add_fixed(pieces, array, form, _EPOCHS.get(kind))
            else:
                pieces.add_number("i4", _NUMERIC)
                _add_numeric(pieces, array)
        return _hash(*pieces.join(), self.seed).view(np.int64)

    def _add_bytes(self, pieces: _Pieces, array: pa.Array, kind: str) -> None:
        values = array.cast(pa.binary())
        lengths = _lengths(values)
        if len(lengths) and lengths.max() > LONG:
            listed = values.to_pylist()
            for place in np.flatnonzero(lengths > LONG).tolist():
                digest = hashlib.md5(self.salt.encode() + listed[place], usedforsecurity=False)
                listed[place] = digest.digest() if kind == "bytea" else digest.hexdigest().encode()
            values = pa.array(listed, pa.binary())
            lengths = _lengths(values)
        if values.null_count:
            lengths = np.where(_nulls(values), -1, lengths)
        pieces.add_number("i4", lengths)
        pieces.add(values)


# ── the bytes of a row ───────────────────────────────────────────────────────────────────────────────────────────────


class _Pieces:
    """What the rows are made of, in this order: numbers at fixed places, which are kept together, and arrays of bytes."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._numbers: list[tuple[str, Any]] = []
        self._arrays: list[pa.Array] = []

    def add_number(self, form: str, value: Any) -> None:
        """The same number for all rows, or one for each."""
        self._numbers.append((form, value))

    def add(self, array: pa.Array) -> None:
        """Bytes; none where there is a null."""
        self._flush()
        self._arrays.append(array)

    def join(self) -> tuple[Words, Lengths]:
        """→ the rows' bytes as blocks of three words, and the length of each row in bytes.

        Each row is padded with zeros to whole blocks, by at least one byte: lookup3 ends with a block that is not full, even
        if that has no bytes of the row.
        """
        self._flush()
        lengths = np.zeros(self._rows, np.int64)
        for array in self._arrays:
            lengths += _lengths(array)
        padding = (_BLOCK - lengths % _BLOCK).astype(np.int32)
        zeros = _binary(np.zeros(int(padding.sum()), np.uint8), padding)
        rows = pc.binary_join_element_wise(*self._arrays, zeros, b"", null_handling="replace", null_replacement=b"")
        size = int((lengths + padding).sum())
        return _numbers(rows.buffers()[2], "<u4", 0, size // 4).reshape(-1, 3), lengths

    def _flush(self) -> None:
        if not self._numbers:
            return
        content = _to_bytes(self._numbers, self._rows)
        self._numbers = []
        self._arrays.append(_binary(content, np.full(self._rows, content.shape[1], np.int32)))


def _to_bytes(numbers: list[tuple[str, Any]], rows: int) -> Bytes:
    """A matrix with one line for each row: the bytes of these numbers, one number after the other."""
    line = np.dtype([(f"f{place}", f">{form}") for place, (form, _) in enumerate(numbers)])
    matrix = np.empty(rows, line)
    for name, (_, value) in zip(line.names or (), numbers, strict=True):
        matrix[name] = value
    return matrix.view(np.uint8).reshape(rows, line.itemsize)


def _binary(content: Bytes, lengths: np.ndarray[Any, Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(content)])


def _numbers(buffer: pa.Buffer | None, form: str, first: int, count: int) -> np.ndarray[Any, Any]:
    if buffer is None or not count:
        return np.zeros(count, form)
    return np.frombuffer(buffer, form, first + count)[first:]


def _lengths(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Bytes of each value, 0 of a null."""
    lengths = np.diff(_numbers(array.buffers()[1], "i4", array.offset, len(array) + 1))
    return np.where(_nulls(array), np.int32(0), lengths) if array.null_count else lengths


def _nulls(array: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(array.is_null(), np.bool_)


def _add_fixed(pieces: _Pieces, array: pa.Array, form: str, epoch: int | None) -> None:
    if pa.types.is_boolean(array.type):
        values = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    else:
        if pa.types.is_int8(array.type):
            array = array.cast(pa.int16())
        values = _numbers(array.buffers()[1], form, array.offset, len(array))
    width = int(form[1])
    if epoch is not None:
        least = pc.min(array.view(pa.int32() if form == "i4" else pa.int64())).as_py()
        if least is not None and least <= np.iinfo(form).min + epoch:
            raise ValueError("a date or time is before PostgreSQL's calendar")
        values = values - epoch
    _add_value(pieces, array, width, [(form, values)])


def _add_value(pieces: _Pieces, array: pa.Array, lengths: Any, fields: list[tuple[str, Any]]) -> None:
    """Add the length and the ``fields`` of each value (form and values, as in ``add_number``), and of a null only the length
    -1. ``lengths`` also counts what the caller adds after the fields, which is nothing for a null."""
    numbers = [("i4", lengths), *fields]
    if not array.null_count:
        for form, value in numbers:
            pieces.add_number(form, value)
        return
    nulls = _nulls(array)
    numbers[0] = ("i4", np.where(nulls, -1, lengths))
    content = _to_bytes(numbers, len(array))
    stop = np.where(nulls, 4, content.shape[1])
    pieces.add(_binary(content[np.arange(content.shape[1]) < stop[:, None]], stop))


def _add_numeric(pieces: _Pieces, array: pa.Array) -> None:
    """Digits of base 10,000 on both sides of the point, without zeros at either end."""
    count, scale = len(array), array.type.scale
    after = -(-scale // 4)
    digits = -(-(array.type.precision + 4 * after - scale) // 4)
    words = _numbers(array.buffers()[1], "u4", array.offset * 4, count * 4).reshape(count, 4)
    negative = words[:, 3] >> 31 == 1
    limbs = _times(_absolute(words, negative), 10 ** (4 * after - scale), digits)
    found = np.empty((count, digits), ">u2")
    for place in range(digits - 1, -1, -1):
        rest = np.zeros(count, np.uint64)
        for limb in range(len(limbs) - 1, -1, -1):
            rest = (rest << np.uint64(32)) | limbs[limb]
            limbs[limb] = rest // np.uint64(10_000)
            rest -= limbs[limb] * np.uint64(10_000)  # faster than a second division
        found[:, place] = rest
    if array.null_count:
        found[_nulls(array)] = 0
    filled = found != 0
    some = filled.any(axis=1)
    first = np.where(some, filled.argmax(axis=1), 0)
    last = np.where(some, digits - filled[:, ::-1].argmax(axis=1), 0)
    weight, sign = np.where(some, digits - after - 1 - first, 0), np.where(negative, 0x4000, 0)
    fields = [("i2", last - first), ("i2", weight), ("u2", sign), ("i2", scale)]  # in the order of numeric_send
    _add_value(pieces, array, 8 + 2 * (last - first), fields)
    places = np.arange(digits)
    kept = found[(places >= first[:, None]) & (places < last[:, None])]
    pieces.add(_binary(kept.view(np.uint8), 2 * (last - first)))


def _absolute(words: Words, negative: np.ndarray[Any, Any]) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
    """The number without its sign as four limbs of 32 bits, the lowest first: in two's complement, inverted plus one."""
    limbs, carry = [], negative.astype(np.uint64)
    mask = np.where(negative, np.uint32(0xFFFFFFFF), np.uint32(0))
    for place in range(4):
        total = (words[:, place] ^ mask).astype(np.uint64) + carry
        limbs.append(total & np.uint64(0xFFFFFFFF))
        carry = total >> np.uint64(32)
    return limbs


def _times(
    limbs: list[np.ndarray[Any, np.dtype[np.uint64]]], factor: int, digits: int
) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
    """The product, with as many limbs as a number of so many digits can have."""
    carry = np.zeros(len(limbs[0]), np.uint64)
    found = []
    for limb in [*limbs, carry]:
        total = limb * np.uint64(factor) + carry
        found.append(total & np.uint64(0xFFFFFFFF))
        carry = total >> np.uint64(32)
    return found[: math.ceil(digits * 4 * math.log2(10) / 32)]


# ── the hash ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _hash(blocks: Words, lengths: Lengths, seed: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """lookup3: http://burtleburtle.net/bob/c/lookup3.c; the seed is mixed in first."""
    steps = lengths // _BLOCK
    most = int(steps.max(initial=0))
    # The rows that take part in a step come first; numbers of 16 bits are sorted in a third of the time
    order = np.argsort((most - steps).astype(np.uint16 if most < 2**16 else np.int64), kind="stable")
    sizes = steps + 1
    next_blocks = (np.cumsum(sizes) - sizes)[order]
    lengths, steps = lengths[order], steps[order]
    state = _State(lengths, seed)
    taking_part = np.searchsorted(-steps, -np.arange(most), side="left")
    for active in taking_part.tolist():
        state.add(blocks.take(next_blocks[:active], axis=0))
        next_blocks[:active] += 1
    found = np.empty(len(lengths), np.uint64)
    found[order] = state.finish(blocks.take(next_blocks, axis=0))
    return found


class _State:
    """Three words for each row."""

    def __init__(self, lengths: Lengths, seed: int) -> None:
        self._words = [(lengths + (0x9E3779B9 + 3_923_095)).astype(np.uint32) for _ in range(3)]
        self._spare = [np.empty(len(lengths), np.uint32) for _ in range(2)]
        self._words[0] += np.uint32(seed >> 32)
        self._words[1] += np.uint32(seed & 0xFFFFFFFF)
        self._mix(len(lengths))

    def add(self, blocks: Words) -> None:
        """A block of three words to each of the first rows."""
        for place, word in enumerate(self._words):
            word[: len(blocks)] += blocks[:, place]
        self._mix(len(blocks))

    def finish(self, tail: Words) -> np.ndarray[Any, np.dtype[np.uint64]]:
        a, b, c = self._words
        a += tail[:, 0]
        b += tail[:, 1]
        c += tail[:, 2] << np.uint32(8)
        for one, other, bits in ((c, b, 14), (a, c, 11), (b, a, 25), (c, b, 16), (a, c, 4), (b, a, 14), (c, b, 24)):
            one ^= other
            one -= self._rotate(other, bits)
        return (b.astype(np.uint64) << np.uint64(32)) | c

    def _mix(self, active: int) -> None:
        a, b, c = (word[:active] for word in self._words)
        for bits in (4, 6, 8, 16, 19, 4):
            a -= c
            a ^= self._rotate(c, bits)
            c += b
            a, b, c = b, c, a

    def _rotate(self, words: Words, bits: int) -> Words:
        high, low = (spare[: len(words)] for spare in self._spare)
        np.left_shift(words, bits, out=high)
        np.right_shift(words, 32 - bits, out=low)
        high |= low
        return high
