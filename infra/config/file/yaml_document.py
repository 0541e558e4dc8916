"""The text of a configuration file as plain data, with the position of every key and value.

YAML 1.2, read strictly: an unquoted scalar is a number, a boolean or null only where JSON would read it so, and text
everywhere else. So ``no``, ``off``, ``012`` and ``2026-01-01`` stay text, and a JSON file is read unchanged.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from infra.config.file.problems import Path, Report

__all__ = ["Document", "Span", "parse_document"]

_MAX_DEPTH = 40
_MAX_NODES = 20_000  # aliases can multiply a small file without limit
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_YAML = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_YAML + name for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")}


@dataclass(frozen=True, slots=True)
class Span:
    """A position: line and column count from 1, ``start`` and ``end`` are character offsets from 0."""

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

    def locate(self, path: Path) -> Span:
        """The position of the value, or of the nearest key or value around it."""
        while path:
            if path in self.values:
                return self.values[path]
            if path in self.keys:
                return self.keys[path]
            path = path[:-1]
        return Span(1, 1, 0, 0)

    def locate_key(self, path: Path) -> Span:
        return self.keys[path] if path in self.keys else self.locate(path)


def parse_document(text: str, report: Report) -> Document:
    """Parse the text. Problems of the structure go to the report; text that is not YAML raises ConfigError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    document = Document(text)
    root: Any = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # YAML 1.2 allows an anchor to be reused
            root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message, hint = _explain_syntax_error(error.problem or "", error.context or "")
        report.add(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, (), message, hint=hint)
    except ReaderError as error:
        before = text[: error.position]
        column = len(before) - (before.rfind("\n") + 1) + 1
        report.add(before.count("\n") + 1, column, (), "contains a control character, which YAML does not allow")
    except (YAMLError, ValueError):
        report.add(1, 1, (), "is not YAML")
    except RecursionError:
        report.add(1, 1, (), "is nested too deeply for a configuration file")
    # raised outside of the handlers: the parser's error quotes the file, and a traceback would print it
    report.raise_if_any()
    if root is not None:
        document.data = _Builder(document, report).build_value(root, ())
    return document


def _explain_syntax_error(problem: str, context: str) -> tuple[str, str | None]:
    # a quoted part of the parser's message may be a piece of an unquoted password
    words = re.sub(r"'[^' <>]{2,}'", "'...'", problem)
    if "\\t" in problem:
        return "a tab is used for indentation, which YAML does not allow", "indent with spaces"
    if "another document" in problem:
        return "a second YAML document begins here; a file holds one configuration", None
    if "alias" in problem:
        return "an alias without an anchor", "put text that begins with * in quotes"
    if "cannot start any token" in problem:
        return f"is not YAML: {words}", "put the value in quotes"
    if "mapping values are not allowed" in problem:
        return "is not YAML: unexpected `:`", "put text that contains `: ` in quotes, and check the indentation"
    if "flow" in context:
        return f"is not YAML: {words} ({context})", "put values with { } [ ] or , in quotes, also ${NAME}"
    return "is not YAML: " + words + (f" ({context})" if context and "'" not in context else ""), None


class _Builder:
    """Turns ruamel's nodes into plain data and records the position of each."""

    def __init__(self, document: Document, report: Report) -> None:
        self.document = document
        self.report = report
        self.nodes = 0

    def build_value(self, node: Any, path: Path) -> Any:
        self.nodes += 1
        span = _to_span(node)
        if len(path) > _MAX_DEPTH or self.nodes > _MAX_NODES:
            reason = "nested too deeply" if len(path) > _MAX_DEPTH else "too long"
            raise self.report.fail(f"line {span.line}: {reason} for a configuration file")
        if node.tag not in _PLAIN_TAGS and node.tag not in (_YAML + "map", _YAML + "seq"):
            self.report.add(span.line, span.column, path, "has a YAML tag; write the plain value")
            return None
        # an empty value has the position of the next token, which may be lines below
        if span.end > span.start or path not in self.document.keys:
            self.document.values[path] = span
        if node.tag == _YAML + "map":
            return self.build_mapping(node, path)
        if node.tag == _YAML + "seq":
            return [self.build_value(item, (*path, index)) for index, item in enumerate(node.value)]
        self.document.scalars.add(path)
        return _to_scalar(node)

    def build_mapping(self, node: Any, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            span = _to_span(key_node)
            if not isinstance(key_node.value, str):
                self.report.add(span.line, span.column, path, "has a key that is not plain text")
                continue
            if self.is_misplaced_value(node, span, _to_span(value_node)):
                # such as `dsn, "..."` or `dsn:...`: the text may be a secret and is not repeated
                hint = "write `name: value` with a colon and a space between the two"
                self.report.add(span.line, span.column, path, "has a key without `: ` and a value", hint=hint)
                continue
            key = key_node.value
            key_path = (*path, key)
            if key in data:
                first = self.document.keys[key_path].line
                self.report.add(span.line, span.column, key_path, f"is set twice; first in line {first}")
                continue
            self.document.keys[key_path] = span
            data[key] = self.build_value(value_node, key_path)
        return data

    def is_misplaced_value(self, node: Any, key: Span, value: Span) -> bool:
        rest = self.document.text[key.end :].lstrip()
        return bool(node.flow_style) and value.start == value.end and not rest.startswith(":")


def _to_span(node: Any) -> Span:
    start, end = node.start_mark, node.end_mark
    return Span(start.line + 1, start.column + 1, start.index, max(start.index, end.index))


def _to_scalar(node: Any) -> str | int | float | bool | None:
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
