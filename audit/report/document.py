"""The document that HTML and Markdown pages are rendered from: sections of text, lists, facts, tables and code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

__all__ = ["Block", "Code", "Document", "Facts", "Items", "Section", "Table", "Text", "Verdict", "visible"]

Tone = Literal["good", "open", "bad"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    kind: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class Items:
    items: Sequence[str]
    kind: ClassVar[str] = "items"


@dataclass(frozen=True, slots=True)
class Facts:
    """Pairs of a name and a value."""

    facts: Sequence[tuple[str, str]]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[str] = frozenset()
    """Columns that are aligned to the right."""
    total: bool = False
    """The last row is the sum of the others."""
    kind: ClassVar[str] = "table"


@dataclass(frozen=True, slots=True)
class Code:
    lines: Sequence[str]
    kind: ClassVar[str] = "code"


Block: TypeAlias = Text | Items | Facts | Table | Code


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Verdict:
    tone: Tone
    words: str
    details: str


@dataclass(frozen=True, slots=True)
class Document:
    """Texts are stored as they were read. A renderer passes each through ``visible`` and escapes it."""

    title: str
    subtitle: str
    verdict: Verdict
    facts: Facts
    sections: Sequence[Section]


def visible(text: str) -> str:
    """Spell out characters that would control a terminal or change the reading direction."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
