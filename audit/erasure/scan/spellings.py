"""The spellings in which software writes a value: as it is, escaped, in base64, in hexadecimal digits, as a digest."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from audit.identifiers import fold

__all__ = ["ENCODED", "LEAST_BASE64", "STATISTICS_CHARACTERS", "decoded_names", "spellings"]

STATISTICS_CHARACTERS = 32
"""Length to which Spark truncates a text in a file's statistics."""
LEAST_BASE64 = 8
"""Shorter pieces would be found by chance."""
ENCODED = frozenset(("base64", "hex", "md5", "sha1", "sha256"))
"""Spellings that contain only letters, digits and ``+ / - _``."""

_URLS = ("", "@", "!'()*", ";,/?:@&=+$!'()*#")
"""Characters that are not escaped: by Python and Java, in a path, by JavaScript in a part and in a whole address."""


def spellings(value: str) -> Iterator[tuple[str, bytes]]:
    """Yield (name of the spelling, bytes), each pattern once. A spelling that equals the value is named ``value``."""
    value = value.strip()
    forms = sorted({value, value.lower(), value.upper(), value.casefold(), fold(value)})
    seen: set[bytes] = set()
    for name, text in (
        *(("value", form) for form in forms),
        *(("prefix", form[:STATISTICS_CHARACTERS]) for form in forms if len(form) > STATISTICS_CHARACTERS),
        *((name, text) for form in forms for name, text in _escaped(form)),
    ):
        pattern = text.encode("utf-8", "surrogatepass").lower()
        if pattern not in seen:
            seen.add(pattern)
            yield name, pattern
    for form in forms:
        data = form.encode("utf-8", "surrogatepass")
        for algorithm in ("md5", "sha1", "sha256"):
            digest = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest().encode()
            if digest not in seen:
                seen.add(digest)
                yield algorithm, digest
        for name, pattern in (("hex", data.hex().encode()), *(("base64", pattern) for pattern in _base64(data))):
            if pattern not in seen:
                seen.add(pattern)
                yield name, pattern


def _escaped(form: str) -> Iterator[tuple[str, str]]:
    for safe in _URLS:
        yield "url", quote(form, safe=safe, errors="surrogatepass")
    yield "url", quote_plus(form, errors="surrogatepass")
    for ascii_only in (True, False):
        text = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
        yield "json", text
        yield "json", text.replace("/", "\\/")
    yield "sql", form.replace("'", "''")
    yield "sql", form.replace("\\", "\\\\").replace("'", "\\'")


def _base64(data: bytes) -> Iterator[bytes]:
    """Yield the base64 forms inside of a longer encoded text: for the three alignments in a group, without the ends."""
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + data)
        # The first characters contain bits of the preceding text, the last ones of the following text
        begin = (0, 2, 3)[shift]
        end = len(text) - {0: 0, 1: 3, 2: 2}[(shift + len(data)) % 3]
        middle = text[begin:end]
        if len(middle) >= LEAST_BASE64:
            yield middle
            yield middle.replace(b"+", b"-").replace(b"/", b"_")


def decoded_names(part: str) -> Iterator[str]:
    """Yield a part of a path as it is, and decoded: Spark escapes a folder's name once, Delta's log a second time."""
    from urllib.parse import unquote

    for _ in range(3):
        yield part
        if (inner := unquote(part)) == part:
            return
        part = inner
