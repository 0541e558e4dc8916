"""Searches many byte patterns in one pass.

Digests and base64 are searched separately. There are many of them, with any first byte, and with tens of thousands of
patterns each byte of a text costs three times as much. But they occur only in long runs of letters, digits and ``+ / - _``,
which names and addresses hardly have: the cells with such runs are selected first, at a cost that does not depend on the
patterns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Patterns", "cells_with_runs"]

_INSIDE = bytes(byte in b"abcdefghijklmnopqrstuvwxyz0123456789+/-_" for byte in range(256))
"""1 for each byte that a run can contain."""
_SMALL = 400_000
"""Total bytes of patterns up to which the faster automaton (DFA) is used, which needs 256 bytes of memory for each. By
default the library uses it for up to a hundred patterns."""


class Patterns:
    """Patterns are compared ignoring the case of the letters A to Z; for base64 the case is then compared as well.
    Picklable."""

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
        """Yield ((request, spelling), start, end), also for overlapping patterns. ``lowered``: the data in lower case."""
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
    """Return the cells in which a run of ``least`` bytes can be, and few others. ``bounds``: where each cell begins and the
    last one ends."""
    import numpy as np

    none = np.zeros(0, dtype=np.int64)
    if int(np.diff(bounds).max()) < least:
        return none
    # Such a run fills this number of words of four bytes, wherever it begins. That is quick to check; shorter runs may too
    inside, words = lowered.translate(_INSIDE), (least - 3) // 4
    full = np.frombuffer(inside[: len(inside) // 4 * 4], dtype=np.uint32) == 0x01010101
    place, size = np.flatnonzero(_in_a_row(full, words)) * 4, 4 * words
    if place.size * 8 > bounds.size:
        place, size = np.flatnonzero(_in_a_row(np.frombuffer(inside, dtype=np.bool_), least)), least
    if place.size > bounds.size:  # then selecting cells costs more than searching all
        return np.arange(bounds.size - 1)
    cells = np.searchsorted(bounds, place, side="right") - 1
    return np.unique(cells[place + size <= bounds[cells + 1]])


def _in_a_row(given: np.ndarray[Any, Any], many: int) -> np.ndarray[Any, Any]:
    """Return where ``many`` consecutive true values begin."""
    width = 1
    while width < many:
        step = min(width, many - width)
        given = given[: max(given.size - step, 0)] & given[step:]
        width += step
    return given
