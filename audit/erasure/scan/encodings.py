"""Decodes text in the encodings of mail, markup and programs: a scan searches the decoded text as well as the bytes.

Mail headers, quoted-printable, percent encoding, HTML, escapes of JSON and programs, also nested; all of it folded
(``audit.identifiers.fold``), with "(at)" and blanks around an @ read as @. Each encoding needs bytes that most data does not
have, and only data with these bytes is decoded.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from audit.identifiers import fold

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PIECE", "addresses", "cells_with_hints", "readings"]

PIECE = 256 * 1024
"""Bytes that are decoded at a time: each decoding makes a copy."""
_DEPTH = 3
"""Nesting that is decoded, such as HTML within quoted-printable within JSON."""
_MOST = 24
"""Greatest number of readings of one piece."""

_HINTS = bytes(byte >= 0x80 or byte in b"&=%\\" for byte in range(256))
_BESIDE_AT = bytes(byte in b" \t\r\n()[]{}<>_-" for byte in range(256))

_QUOTED = re.compile(rb"=(?:([2-9A-Fa-f][0-9A-Fa-f])|[ \t]*\r?\n)")
_PERCENT = re.compile(rb"%([2-9A-Fa-f][0-9A-Fa-f])")
_HEADER = re.compile(
    r"=\?([A-Za-z0-9_.:-]{1,40})(?:\*[A-Za-z-]{1,40})?\?([BbQq])\?([!->@-~]{0,2000})\?=(?:\s+(?==\?))?"
)
"""The length of a word is limited, because some codecs take quadratic time."""
_HTML = re.compile("&(?:#0{0,20}[0-9]{1,7};?|#[Xx]0{0,20}[0-9A-Fa-f]{1,6};?|[A-Za-z][0-9A-Za-z]{1,31};)")
_ESCAPE = re.compile(r"((?:\\u[0-9A-Fa-f]{4})+)|\\x([0-9A-Fa-f]{2})|\\([0-7]{3})|\\(.)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_AT = re.compile(r" ?[(\[{<] ?(?:at|@) ?[)\]}>] ?| at |[_-]at[_-]| ?@ ?")
_DOT = re.compile(r" ?[(\[{<] ?(?:dot|\.) ?[)\]}>] ?| dot |[_-]dot[_-]")
_LATIN_1 = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}


def cells_with_hints(lowered: bytes, bounds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the cells whose decoded text may differ. ``bounds``: where each cell begins and the last one ends."""
    import numpy as np

    places = [np.flatnonzero(np.frombuffer(lowered.translate(_HINTS), dtype=np.bool_))]
    data, beside = (
        np.frombuffer(one, dtype=kind) for one, kind in ((lowered, "u1"), (lowered.translate(_BESIDE_AT), "?"))
    )
    if (at := np.flatnonzero(data == ord("@"))).size:
        places.append(at[beside[np.maximum(at - 1, 0)] | beside[np.minimum(at + 1, data.size - 1)]])
    if data.size > 3 and b"at" in lowered:
        word = beside[:-3] & (data[1:-2] == ord("a")) & (data[2:-1] == ord("t")) & beside[3:]
        places.append(np.flatnonzero(word))
    return np.unique(np.searchsorted(bounds, np.concatenate(places), side="right") - 1)


def readings(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield (names of the decodings, folded text). The first is the text as it is."""
    text = _text(data)
    seen, now = {text}, {text: "unicode"}
    yield "unicode", _folded(text)
    for _ in range(_DEPTH):
        new: dict[str, str] = {}
        for text, way in now.items():
            for name, decode in _DECODERS.items():
                read = decode(text)
                if read not in seen and len(seen) < _MOST:
                    seen.add(read)
                    new[read] = name if way == "unicode" else f"{way}, {name}"
                    yield new[read], _folded(read)
        now = new


def addresses(text: str) -> str:
    """Return the text with addresses that are written out, such as "anna (at) example dot org", in their usual form."""
    return _DOT.sub(".", _AT.sub("@", " ".join(text.split())))  # with single blanks the time is linear


def _folded(text: str) -> str:
    return fold(text if text.isascii() else text.translate(_LATIN_1))  # bytes that are not UTF-8 are read as Latin-1


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _from_hex(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode()) if match[1] else b""


def _quoted_printable(text: str) -> str:
    return _text(_QUOTED.sub(_from_hex, _bytes(text))) if "=" in text else text


def _header(text: str) -> str:
    """Encoded words of mail headers (RFC 2047); words that follow each other are one text."""
    return _HEADER.sub(_word, text) if "=?" in text else text


def _word(match: re.Match[str]) -> str:
    charset, way, said = match.groups()
    try:
        if way in "Bb":
            data = base64.b64decode(said + "=" * (-len(said) % 4))
        else:
            data = _QUOTED.sub(_from_hex, said.replace("_", " ").encode())
        # A letter may be cut in two by the end of a word
        return _text(data) if charset.lower() in ("utf-8", "us-ascii") else data.decode(charset, "replace")
    except (ValueError, LookupError):
        return match[0]


def _percent(text: str) -> str:
    return _text(_PERCENT.sub(_from_hex, _bytes(text))) if "%" in text else text


def _html(text: str) -> str:
    return _HTML.sub(lambda one: html.unescape(one[0]), text) if "&" in text else text


def _escapes(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    units, byte, octal, sign = match.groups()
    if units:
        return bytes.fromhex(units.replace("\\u", "")).decode("utf-16-be", "replace")
    if byte or octal:
        code = int(byte, 16) if byte else int(octal, 8) & 0xFF
        return chr(code if code < 0x80 else 0xDC00 + code)
    return _CONTROL.get(sign, sign)


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a pair of surrogates that an escape wrote
        return text.encode("utf-8", "replace")


_DECODERS: dict[str, Callable[[str], str]] = {
    "quoted-printable": _quoted_printable,
    "url": _percent,
    "html": _html,
    "json": lambda text: _text(_bytes(_escapes(text))),  # bytes that were escaped one by one make characters
    "header": lambda text: _text(_bytes(_header(text))),
}
