"""A report as Markdown, as GitHub and Pandoc read it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from audit.report.document import Block, Code, Facts, Items, Section, Table, Text, visible
from audit.report.model import Report
from audit.report.sections import build_document

__all__ = ["as_markdown"]


def as_markdown(report: Report) -> str:
    document = build_document(report)
    head = [
        f"# {_escape(document.title)}: {_escape(document.subtitle)}",
        f"**{_escape(document.verdict.words)}.** {_escape(document.verdict.details)}",
        _render_block(document.facts),
    ]
    return "\n\n".join([*head, *map(_render_section, document.sections)]) + "\n"


def _render_section(section: Section) -> str:
    return "\n\n".join([f"## {_escape(section.title)}", *map(_render_block, section.blocks)])


def _render_block(block: Block) -> str:
    match block:
        case Text(text):
            return _escape(text)
        case Items(items):
            return "\n".join(f"* {_escape(item)}" for item in items)
        case Facts(facts):
            return _render_table(Table(("", ""), facts))
        case Code(lines):
            # Indented code, because no line of it can end the block
            return "\n".join(f"    {visible(line)}" for line in lines)
        case Table():
            return _render_table(block)


def _render_table(table: Table) -> str:
    rules = ("---:" if column in table.numbers else "---" for column in table.columns)
    rows = (map(_escape, table.columns), rules, *(map(_escape, row) for row in table.rows))
    return "\n".join(map(_render_row, rows))


def _render_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape(text: str) -> str:
    """Escape markup, also characters that could begin a link in the middle of a line.

    GitHub turns addresses, mentions and references into links after it has resolved the escapes. An invisible word joiner
    breaks them."""
    escaped = re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", visible(text))
    return re.sub(r"(:(?=//)|@|#|\bwww(?=\.))", r"\1&NoBreak;", escaped, flags=re.IGNORECASE)
