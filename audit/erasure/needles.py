"""What a scan looks for: every identifier in the spellings in which software writes it down, all of them in one pass.

A value of some length is looked for anywhere in the bytes, without regard to case. A short or a plain number would be found
everywhere: it is looked for as a whole cell, in the columns that hold that identifier.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Needle", "Needles"]

LEAST_BYTES = 6
"""Shorter ones are cells only."""
STATISTICS_CHARACTERS = 32
"""Of a text Spark keeps so many in a file's statistics."""
_LEAST_BASE64 = 12


@dataclass(frozen=True, slots=True)
class Needle:
    """One value to look for; its ``repr`` does not show it."""

    request: str
    value: str = field(repr=False)
    name: str = ""
    """Of the identifier."""


class Needles:
    """All needles of a scan. Picklable: tasks look for them too."""

    def __init__(self, needles: Iterable[Needle], columns: Mapping[str, Iterable[str]] | None = None) -> None:
        """``columns``: those that hold an identifier, by its name; its own name is always one of them."""
        self.needles = tuple(needles)
        self._columns = {name: {column.lower() for column in held} for name, held in (columns or {}).items()}
        self._found: list[tuple[str, str]] = []
        self._patterns: list[bytes] = []
        self._short: dict[str, dict[str, set[str]]] = {}
        """By column and value: requests."""
        for needle in self.needles:
            if _is_short(needle.value):
                for column in {needle.name.lower(), *self._columns.get(needle.name, ())}:
                    self._short.setdefault(column, {}).setdefault(needle.value.strip(), set()).add(needle.request)
            else:
                for spelling, pattern in sorted(_spellings(needle.value)):
                    self._patterns.append(pattern)
                    self._found.append((needle.request, spelling))
        self._automaton: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_automaton": None}

    def __bool__(self) -> bool:
        return bool(self.needles)

    def find(self, data: bytes) -> Iterator[tuple[str, str]]:
        """(request, spelling) of each needle in the bytes, each pair once."""
        return iter(sorted(_longest({self._found[pattern] for pattern, _, _ in self._matches(data)})))

    def text(self, values: pa.Array) -> Counter[tuple[str, str]]:
        """In how many cells of a column of texts or bytes each needle is."""
        import numpy as np
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            return self._of_dictionary(values)
        wide = pa.large_binary()
        cells = values.cast(wide) if pa.types.is_binary(values.type) else values.cast(pa.large_string()).cast(wide)
        offsets = np.frombuffer(cells.buffers()[1], dtype=np.int64)[cells.offset : cells.offset + len(cells) + 1]
        held = cells.buffers()[2]
        if held is None or not len(cells):
            return Counter()
        first, last = int(offsets[0]), int(offsets[-1])
        found: dict[tuple[str, str], set[int]] = {}
        for pattern, start, end in self._matches(held[first:last].to_pybytes()):
            cell = int(np.searchsorted(offsets, start + first, side="right")) - 1
            if end + first <= offsets[cell + 1]:  # else it begins in one cell and ends in another
                found.setdefault(self._found[pattern], set()).add(cell)
        return Counter({one: len(found[one]) for one in _longest(set(found))})

    def _of_dictionary(self, values: pa.Array) -> Counter[tuple[str, str]]:
        import pyarrow.compute as pc

        counts = {row["values"]: row["counts"] for row in pc.value_counts(values.indices).to_pylist()}
        total: Counter[tuple[str, str]] = Counter()
        if not self.text(values.dictionary):
            return total
        for index in range(len(values.dictionary)):
            for one in self.text(values.dictionary.slice(index, 1)):
                total[one] += counts.get(index, 0)
        return +total

    def cells(self, column: str, values: pa.Array) -> Counter[tuple[str, str]]:
        """In how many cells of the column a short needle is the whole of it. ``column``: its name alone."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = self._short.get(column.lower())
        total: Counter[tuple[str, str]] = Counter()
        if not wanted or pa.types.is_nested(values.type):
            return total
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        try:
            asked = pa.array(sorted(wanted), pa.string()).cast(values.type)
        except pa.ArrowInvalid:  # some are no numbers
            asked, values = pa.array(sorted(wanted), pa.string()), values.cast(pa.string())
        met = values.filter(pc.is_in(values, value_set=asked))
        for value in met.cast(pa.string()).to_pylist():
            for request in wanted.get(value, ()):
                total[request, "value"] += 1
        return total

    def cell(self, column: str, value: Any) -> set[tuple[str, str]]:
        """``cells``, of one value."""
        wanted = self._short.get(column.lower())
        if not wanted or value is None or isinstance(value, dict | list):
            return set()
        return {(request, "value") for request in wanted.get(str(value).strip(), ())}

    @property
    def short_columns(self) -> frozenset[str]:
        """Names, in lower case, of columns in which a whole cell counts."""
        return frozenset(self._short)

    def _matches(self, data: bytes) -> Iterable[tuple[int, int, int]]:
        if not self._patterns or not data:
            return ()
        if self._automaton is None:
            from ahocorasick_rs import BytesAhoCorasick

            self._automaton = BytesAhoCorasick(self._patterns)
        # All spellings are in lower case: this alone makes every other case of the letters A to Z count
        found: list[tuple[int, int, int]] = self._automaton.find_matches_as_indexes(data.lower(), overlapping=True)
        return found


def _is_short(value: str) -> bool:
    return len(value.strip().encode()) < LEAST_BYTES or value.strip().isdecimal()


def _longest(found: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Whoever is there with the whole value is not told of by its beginning besides."""
    return {
        (request, spelling) for request, spelling in found if spelling != "prefix" or (request, "value") not in found
    }


def _spellings(value: str) -> set[tuple[str, bytes]]:
    """(what it is called, its bytes in lower case)."""
    value = value.strip()
    plain = {value, value.lower(), value.upper(), value.casefold()}
    found = {("value", one.encode()) for one in plain}
    for one in plain:
        for name, text in (
            ("url", quote(one, safe="")),
            ("url", quote_plus(one)),
            ("json", json.dumps(one)[1:-1]),
        ):
            found.add((name, text.encode()))
        if len(one) > STATISTICS_CHARACTERS:
            found.add(("prefix", one[:STATISTICS_CHARACTERS].encode()))
        data = one.encode()
        for algorithm in ("md5", "sha1", "sha256"):
            found.add((algorithm, hashlib.new(algorithm, data, usedforsecurity=False).hexdigest().encode()))
        for pattern in _base64(data):
            found.add(("base64", pattern))
    lowered = {(name, pattern.lower()) for name, pattern in found}
    written = {pattern for name, pattern in lowered if name == "value"}
    # What does not differ from the value itself is told as the value
    return {(name, pattern) for name, pattern in lowered if name == "value" or pattern not in written}


def _base64(data: bytes) -> Iterator[bytes]:
    """As it stands inside of a longer text in base64: at one of three places in a group, without its ends."""
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + data)
        # The first characters have bits of what stands before, the last ones of what follows
        begin = (0, 2, 3)[shift]
        end = len(text) - {0: 0, 1: 3, 2: 2}[(shift + len(data)) % 3]
        middle = text[begin:end]
        if len(middle) >= _LEAST_BASE64:
            yield middle
            yield middle.replace(b"+", b"-").replace(b"/", b"_")
