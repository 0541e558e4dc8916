"""The text of a configuration file as plain data, with the place of every key and value.

YAML 1.2, read narrowly: a scalar without quotes is a number, a boolean or nothing only where JSON would say the same,
and text everywhere else. So ``no``, ``off``, ``012`` and ``2026-01-01`` stay what they look like, and JSON just works.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from infra.config.problems import Path, Report

__all__ = ["Document", "Span", "parse"]

_DEEPEST = 40
_MOST_NODES = 20_000  # aliases can multiply a small file without end
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_YAML = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_YAML + name for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")}


@dataclass(frozen=True, slots=True)
class Span:
    """Where something stands: line and column count from 1, ``start`` and ``end`` from the first character."""

    line: int
    column: int
    start: int
    end: int


@dataclass
class Document:
    text: str
    data: Any = None
    keys: dict[Path, Span] = field(default_factory=dict)
    values: dict[Path, Span] = field(default_factory=dict)
    scalars: set[Path] = field(default_factory=set)
    repeated: list[tuple[Path, Span]] = field(default_factory=list)
    """Where a key stands that is there already."""
    unread: list[Span] = field(default_factory=list)
    """What was passed over, such as the value of a key that stands there twice."""

    def place(self, path: Path) -> Span:
        """Where the value stands, or else the nearest thing around it."""
        while path:
            if path in self.values:
                return self.values[path]
            if path in self.keys:
                return self.keys[path]
            path = path[:-1]
        return Span(1, 1, 0, 0)

    def place_of_key(self, path: Path) -> Span:
        return self.keys[path] if path in self.keys else self.place(path)


def parse(text: str, report: Report) -> Document:
    """Read the text; problems within the structure go to the report, a text that is no YAML ends here."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    document = Document(text)
    root: Any = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a reused anchor is allowed in YAML 1.2
            root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message, hint = _syntax(error.problem or "", error.context or "")
        report.add(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, (), message, hint=hint)
    except ReaderError as error:
        before = text[: error.position]
        column = len(before) - (before.rfind("\n") + 1) + 1
        report.add(before.count("\n") + 1, column, (), "holds a control character, which YAML does not allow")
    except (YAMLError, ValueError):
        report.add(1, 1, (), "is not YAML")
    except RecursionError:
        report.add(1, 1, (), "is nested too deeply to be a configuration file")
    # raised outside of the handlers: a parser's own error quotes the file, and a traceback would print it
    report.raise_if_any()
    if root is not None:
        document.data = _Builder(document, report).value(root, ())
    return document


def _syntax(problem: str, context: str) -> tuple[str, str | None]:
    # a quoted part of the parser's words may be a piece of a password that wanted quotes
    words = re.sub(r"'[^' <>]{2,}'", "'...'", problem)
    if "\\t" in problem:
        return "a tab where YAML wants spaces", "indent with spaces"
    if "another document" in problem:
        return "a second document begins here; one file holds one configuration", None
    if "alias" in problem:
        return "an alias without an anchor", "put text that begins with * in quotes"
    if "cannot start any token" in problem:
        return f"is not YAML: {words}", "put the value in quotes"
    if "mapping values are not allowed" in problem:
        return (
            "is not YAML: a `:` where none can be",
            "put text that contains `: ` in quotes, and check the indentation",
        )
    if "flow" in context:
        return f"is not YAML: {words} ({context})", "put values that hold { } [ ] or , in quotes, also ${NAME}"
    return "is not YAML: " + words + (f" ({context})" if context and "'" not in context else ""), None


class _Builder:
    """Turns ruamel's nodes into plain data and remembers where each stood."""

    def __init__(self, document: Document, report: Report) -> None:
        self.document = document
        self.report = report
        self.nodes = 0

    def value(self, node: Any, path: Path) -> Any:
        self.nodes += 1
        span = _span(node)
        if len(path) > _DEEPEST or self.nodes > _MOST_NODES:
            what = "nested too deeply" if len(path) > _DEEPEST else "too long"
            raise self.report.fail(f"line {span.line}: {what} to be a configuration file")
        if node.tag not in _PLAIN_TAGS and node.tag not in (_YAML + "map", _YAML + "seq"):
            self.report.add(span.line, span.column, path, "has a YAML tag; write the plain value")
            self.document.unread.append(span)
            return None
        # the place of a value that is not there would be the next token, lines below
        if span.end > span.start or path not in self.document.keys:
            self.document.values[path] = span
        if node.tag == _YAML + "map":
            return self.mapping(node, path)
        if node.tag == _YAML + "seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        self.document.scalars.add(path)
        return _scalar(node)

    def mapping(self, node: Any, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            span = _span(key_node)
            if not isinstance(key_node.value, str):
                self.report.add(span.line, span.column, path, "has a key that is not plain text")
                self.document.unread += [span, _span(value_node)]
                continue
            if self.is_stray(node, span, _span(value_node)):
                # not a key but a value behind a slip such as `dsn, "..."` or `dsn:...`: its text is not repeated
                hint = "write `name: value` with a colon and a space between the two"
                self.report.add(span.line, span.column, path, "has a key without `: ` and a value", hint=hint)
                self.document.unread.append(span)
                continue
            key = key_node.value
            here = (*path, key)
            if key in data:
                first = self.document.keys[here].line
                self.report.add(span.line, span.column, here, f"stands here twice; the first is in line {first}")
                self.document.repeated.append((here, span))
                self.document.unread.append(_span(value_node))
                continue
            self.document.keys[here] = span
            data[key] = self.value(value_node, here)
        return data

    def is_stray(self, node: Any, key: Span, value: Span) -> bool:
        rest = self.document.text[key.end :].lstrip()
        return bool(node.flow_style) and value.start == value.end and not rest.startswith(":")


def _span(node: Any) -> Span:
    start, end = node.start_mark, node.end_mark
    return Span(start.line + 1, start.column + 1, start.index, max(start.index, end.index))


def _scalar(node: Any) -> str | int | float | bool | None:
    text: str = node.value
    if node.style is not None or node.tag == _YAML + "str":
        return text
    if text.lower() in _WORDS and text in {text.lower(), text.capitalize(), text.upper()}:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
