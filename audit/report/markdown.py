"""A report as Markdown, as GitHub and Pandoc read it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from audit.report.model import Report
from audit.report.sections import Block, Code, Facts, Items, Section, Table, Text, document, shown

__all__ = ["as_markdown"]


def as_markdown(report: Report) -> str:
    page = document(report)
    head = [
        f"# {_text(page.title)}: {_text(page.subtitle)}",
        f"**{_text(page.verdict.words)}.** {_text(page.verdict.details)}",
        _block(page.facts),
    ]
    return "\n\n".join([*head, *map(_section, page.sections)]) + "\n"


def _section(section: Section) -> str:
    return "\n\n".join([f"## {_text(section.title)}", *map(_block, section.blocks)])


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return _text(text)
        case Items(items):
            return "\n".join(f"* {_text(one)}" for one in items)
        case Facts(facts):
            return _table(Table(("", ""), facts))
        case Code(lines):
            # Indented: no line of it can end it
            return "\n".join(f"    {shown(line)}" for line in lines)
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    rules = ("---:" if column in table.numbers else "---" for column in table.columns)
    return "\n".join(_row(row) for row in (map(_text, table.columns), rules, *(map(_text, row) for row in table.rows)))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _text(text: str) -> str:
    """Also what could begin a link or markup in the middle of a line. A page makes addresses, mentions and references out of
    the text that is rendered, where no escape is left: a sign that joins, and is not seen, parts them."""
    escaped = re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", shown(text))
    return re.sub(r"(:(?=//)|@|#|\bwww(?=\.))", r"\1&NoBreak;", escaped, flags=re.IGNORECASE)
