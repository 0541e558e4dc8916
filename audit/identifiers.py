"""Identifiers of people, such as e-mail addresses: the form in which two values are compared, and former forms of it."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, TypeAlias

__all__ = ["Spelling", "fold", "normalise", "stored_forms"]

Spelling: TypeAlias = Literal["exact", "email"]
"""How two values of an identifier are compared: as they are, or as e-mail addresses (``normalise``)."""

_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's default ignorable characters: zero-width characters, the soft hyphen, direction marks, variation selectors."""
_LONG_RUN = re.compile(r"([^\w\x00-\x7f]{64})[^\w\x00-\x7f]+")
"""More combining marks than any real text has on one letter. Sorting them takes quadratic time, so the rest is cut off."""


def fold(text: str) -> str:
    """Return Unicode's NFKC_Casefold of the text: without case, hidden characters, and differences in composition and
    width."""
    if text.isascii():
        return text.lower()
    text = _LONG_RUN.sub(r"\1", _IGNORED.sub("", text))
    for _ in range(2):  # case folding may produce text that is not composed, and composing may produce upper case
        text = unicodedata.normalize("NFKC", text).casefold()
        if unicodedata.is_normalized("NFKC", text):
            return text
    return unicodedata.normalize("NFKC", text)


def normalise(value: str, spelling: Spelling) -> str:
    """Return the form in which two values of an identifier are compared. ``find.resolve`` has the same in Spark SQL."""
    return "@".join(part.strip() for part in fold(value).split("@")) if spelling == "email" else value


def stored_forms(value: str, spelling: Spelling) -> tuple[str, ...]:
    """Return the normalised value first, then the forms under which earlier releases may have stored a mark or a lookup of
    it: those releases did not fold composition and width."""
    if spelling != "email":
        return (value,)
    composed = (value, *(unicodedata.normalize(form, value) for form in ("NFC", "NFD")))
    return tuple(dict.fromkeys((normalise(value, spelling), *(one.strip().lower() for one in composed))))
