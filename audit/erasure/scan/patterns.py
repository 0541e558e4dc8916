"""Many patterns of bytes, looked for in one pass.

Digests and base64 are kept apart from the rest. There are many, they begin with anything, and among tens of thousands of
them each byte of a text costs three times as much. But they stand only in long runs of letters, digits and ``+ / - _``,
which names and addresses hardly have: the cells with such runs are found first, at a cost that does not depend on who is
looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Patterns", "cells_with_runs"]

_INSIDE = bytes(byte in b"abcdefghijklmnopqrstuvwxyz0123456789+/-_" for byte in range(256))
"""1 for each byte that a run can have."""
_SMALL = 400_000
"""Bytes of patterns for which an automaton that is as fast as for one, and takes 256 bytes of memory for each of them, is
made. Left to itself the library makes one for a hundred patterns."""


class Patterns:
    """Patterns are compared without the case of the letters A to Z; base64 then with it. Picklable."""

    def __init__(self) -> None:
        self._patterns: list[bytes] = []
        self._found: list[tuple[str, str]] = []
        self._exact: list[bytes | None] = []
        self._automaton: Any = None
        self.least = 0
        """Length of the shortest one."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_automaton": None}

    def __len__(self) -> int:
        return len(self._patterns)

    def add(self, request: str, spelling: str, pattern: bytes) -> None:
        self.least = min(self.least or len(pattern), len(pattern))
        self._patterns.append(pattern.lower())
        self._found.append((request, spelling))
        self._exact.append(pattern if spelling == "base64" else None)
        self._automaton = None

    def matches(self, data: bytes, lowered: bytes) -> Iterator[tuple[tuple[str, str], int, int]]:
        """((request, spelling), start, end), also of patterns within others. ``lowered``: the data in lower case."""
        if not self._patterns or not data:
            return
        if self._automaton is None:
            from ahocorasick_rs import BytesAhoCorasick, Implementation

            small = sum(map(len, self._patterns)) <= _SMALL
            self._automaton = BytesAhoCorasick(self._patterns, implementation=Implementation.DFA if small else None)
        for pattern, start, end in self._automaton.find_matches_as_indexes(lowered, overlapping=True):
            exact = self._exact[pattern]
            if exact is None or data[start:end] == exact:
                yield self._found[pattern], start, end


def cells_with_runs(lowered: bytes, bounds: np.ndarray[Any, Any], least: int) -> np.ndarray[Any, Any]:
    """Cells in which a run of ``least`` bytes can be, and few others. ``bounds``: where each cell begins, and the last one
    ends."""
    import numpy as np

    none = np.zeros(0, dtype=np.int64)
    if int(np.diff(bounds).max()) < least:
        return none
    # Wherever such a run begins, it fills so many words of four bytes: quick to see, and many shorter runs do too
    inside, words = lowered.translate(_INSIDE), (least - 3) // 4
    full = np.frombuffer(inside[: len(inside) // 4 * 4], dtype=np.uint32) == 0x01010101
    place, size = np.flatnonzero(_in_a_row(full, words)) * 4, 4 * words
    if place.size * 8 > bounds.size:
        place, size = np.flatnonzero(_in_a_row(np.frombuffer(inside, dtype=np.bool_), least)), least
    if place.size > bounds.size:  # then to tell the cells apart costs more than to search all
        return np.arange(bounds.size - 1)
    cells = np.searchsorted(bounds, place, side="right") - 1
    return np.unique(cells[place + size <= bounds[cells + 1]])


def _in_a_row(given: np.ndarray[Any, Any], many: int) -> np.ndarray[Any, Any]:
    """Where so many true ones begin."""
    width = 1
    while width < many:
        step = min(width, many - width)
        given = given[: max(given.size - step, 0)] & given[step:]
        width += step
    return given
