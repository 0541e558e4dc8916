"""One line of the file as it may be shown under a message: keys as written, values only where they hold no secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from infra.config.known_keys import sight
from infra.config.problems import Path
from infra.config.yaml_document import Document

__all__ = ["mask_syntax", "quoter", "shown_key"]

_LONGEST = 160
_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # what YAML's reader counts as the end of a line
_NAME = re.compile(r"[\w.\-/ <]{1,80}")
_UP_TO_KEY = re.compile(r"\s*(?:- +)*[\w.-]{1,80}\s*:(?=\s|$)")
_CREDENTIALS = re.compile(r"://[^@\s]*:[^@\s]*@")


def shown_key(key: str) -> str:
    """A key that looks like a name; anything else may be a password that lost its place."""
    return key if _NAME.fullmatch(key) else "***"


def mask_syntax(text: str) -> Callable[[int], str | None]:
    """Quotes lines of a text that could not be parsed: nothing after the first key."""
    lines = _BREAK.split(text)

    def quote(line: int) -> str | None:
        found = _UP_TO_KEY.match(lines[line - 1]) if line <= len(lines) else None
        if found is None:
            return None
        rest = lines[line - 1][found.end() :].strip()
        return found[0] + (" ***" if rest else "")

    return quote


def quoter(document: Document, data: Any) -> Callable[[int], str | None]:
    """Quotes lines of a parsed file. ``data`` is the file before secrets were filled in."""
    starts = [0, *(found.end() for found in _BREAK.finditer(document.text))]
    ends = [*(found.start() for found in _BREAK.finditer(document.text)), len(document.text)]

    def quote(line: int) -> str | None:
        if not 1 <= line <= len(starts):
            return None
        start, end = starts[line - 1], ends[line - 1]
        kept = _between(document, data, start, end)
        text = _CREDENTIALS.sub("://***@", kept).rstrip()
        return (text[:_LONGEST] + " ...") if len(text) > _LONGEST else text or None

    return quote


def _between(document: Document, data: Any, start: int, end: int) -> str:
    spans: dict[tuple[int, int], bool] = {}
    for path, span in (*document.keys.items(), *document.repeated):
        if span.start < end and span.end > start:
            _note(spans, span.start, span.end, shown=_key_is_shown(data, path))
    for path in document.scalars:
        value = document.values.get(path)
        if value is not None and value.start < end and value.end > start:
            _note(spans, value.start, value.end, shown=_value_is_shown(data, path))
    for span in document.unread:
        if span.start < end and span.end > start:
            _note(spans, span.start, span.end, shown=False)
    text, at = "", start
    for (first, last), shown in sorted(spans.items()):
        text += _punctuation(document.text[at : max(at, first)])
        text += document.text[max(at, first) : min(last, end)] if shown else "***"
        at = max(at, min(last, end))
    return text + _punctuation(document.text[at:end])


def _punctuation(text: str) -> str:
    # between keys and values stand punctuation and comments, and a comment may be an old password
    return re.sub(r"[^\s{}\[\],:?|>-]", "", re.sub(r"(^|\s)#.*", "", text))


def _note(spans: dict[tuple[int, int], bool], start: int, end: int, *, shown: bool) -> None:
    # an alias gives one place several paths: shown only if each of them may be
    spans[start, end] = spans.get((start, end), True) and shown


def _value_is_shown(data: Any, path: Path) -> bool:
    # also a single value where a list of such values belongs
    return sight(data, path) == "plain" or sight(data, (*path, 0)) == "plain"


def _key_is_shown(data: Any, path: Path) -> bool:
    return sight(data, path[:-1]) == "branch" and isinstance(path[-1], str) and shown_key(path[-1]) == path[-1]
