"""Finds short identifiers in rows of a target: they match a whole cell only, in columns with the identifier's name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from connectors.postgres.staging.columns import REJECT_KEY, REJECT_ROW

if TYPE_CHECKING:
    from audit.erasure.scan.search_terms import SearchTerms
    from connectors.postgres.column_mapping import Columns
    from connectors.postgres.conversions import ColumnType

__all__ = ["Cells", "Short"]

Short: TypeAlias = Callable[[bytes], "set[tuple[str, str]]"]
"""Returns (request, spelling) of the short search terms in a line of COPY."""

_LETTERS = ("key", "row", REJECT_KEY, REJECT_ROW)
_NUMBERED = re.compile(r"c\d+\Z")
_WHOLE = re.compile(r"(-?\d+)\.0+\Z")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_SIGNS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class Cells:
    terms: SearchTerms
    columns: Columns

    def of_table(self, found: Mapping[str, ColumnType]) -> Short:
        """Match lines of a table. ``found``: the columns of the lines, with the target's names."""
        return self._short([(at, [self._source(name)], kind) for at, (name, kind) in enumerate(found.items())])

    def of_letters(self, found: Mapping[str, ColumnType]) -> Short:
        """Match lines of the dead-letter table, whose key and row are JSON with the target's names. Staging has such columns
        too."""
        at = {place for place, name in enumerate(found) if name in _LETTERS}

        def short(line: bytes) -> set[tuple[str, str]]:
            cells = _cells(line)
            return {hit for place in at for hit in self._in_members(_text(cells[place]))}

        return short

    def of_numbered(self, found: Mapping[str, ColumnType]) -> Short:
        """Match lines of staging tables whose columns have numbers instead of names: any short identifier may be meant."""
        names = sorted(self.terms.short_columns)
        return self._short(
            [(at, names, kind) for at, (name, kind) in enumerate(found.items()) if _NUMBERED.match(name)]
        )

    def of_value(self, column: str, value: str) -> set[tuple[str, str]]:
        """Match one value. ``column``: the target's name."""
        return self._in(self._source(column), value)

    def of_letter(self, column: str, value: str) -> set[tuple[str, str]]:
        """Match one value of a column of the dead-letter table. Its own columns, such as ``id``, hold no source values."""
        return self._in_members(value) if column in _LETTERS else set()

    def _short(self, columns: Iterable[tuple[int, list[str], ColumnType]]) -> Short:
        nested = ("json", "jsonb")
        searched = [
            (at, names, kind)
            for at, names, kind in columns
            if kind.base in nested or not self.terms.short_columns.isdisjoint(name.lower() for name in names)
        ]

        def short(line: bytes) -> set[tuple[str, str]]:
            cells = _cells(line)
            return {
                hit
                for at, names, kind in searched
                for value in _values(_text(cells[at]), kind)
                for name in names
                for hit in self._in(name, value)
            }

        return short

    def _source(self, name: str) -> str:
        return next((source for source, target in self.columns.rename.items() if target == name), name)

    def _in_members(self, cell: str | None) -> set[tuple[str, str]]:
        value = _parsed(cell)
        members = value.items() if isinstance(value, dict) else ()
        return {hit for name, inner in members for hit in self._in(self._source(name), inner)}

    def _in(self, name: str, value: Any) -> set[tuple[str, str]]:
        """A field of a struct is matched under its own name, an element of a list under the name of the list."""
        value = _parsed(value)
        if isinstance(value, dict):
            return {hit for field, inner in value.items() for hit in self._in(field, inner)}
        if isinstance(value, list):
            return {hit for element in value for hit in self._in(name, element)}
        return self.terms.cell(name, _WHOLE.sub(r"\1", value) if isinstance(value, str) else value)


def _parsed(value: Any) -> Any:
    """Parse a nested value, which the row of a dead letter stores as text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _values(cell: str | None, kind: ColumnType) -> list[str | None]:
    if cell is not None and kind.base.endswith("[]"):
        return [element.strip('"') for element in cell.strip("{}").split(",")]
    return [cell]


def _cells(line: bytes) -> list[bytes]:
    return line.rstrip(b"\n").split(b"\t")


def _text(cell: bytes) -> str | None:
    return (
        None
        if cell == rb"\N"
        else _ESCAPED.sub(lambda sign: _SIGNS.get(sign[1], sign[1]), cell).decode(errors="replace")
    )
