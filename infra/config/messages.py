"""Errors of pydantic in plain words. Nothing here repeats a value of the file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["explain_error", "suggest_name"]

_MESSAGES = {
    "string_type": "must be text; put it in quotes",
    "secret_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be a mapping, `name: value` per line",
    "mapping_type": "must be a mapping, `name: value` per line",
    "model_type": "must be a mapping, `name: value` per line",
    "model_attributes_type": "must be a mapping, `name: value` per line",
    "list_type": "must be a list, such as [a, b]",
    "tuple_type": "must be a list, such as [a, b]",
    "set_type": "must be a list, such as [a, b]",
}
_PATTERNS = {
    r"^[a-z0-9-]+$": "must be a region such as eu-west-1",
    r"^[A-Za-z0-9_.-]{3,255}$": "must be 3 to 255 letters, digits, _ - and .",
}


_SYNONYMS = {"version": "commit"}
"""A term of other tools, and the term used here."""


def suggest_name(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, or all of them."""
    word = word.lower()
    near = [word.replace(theirs, ours) for theirs, ours in _SYNONYMS.items() if word.replace(theirs, ours) in known]
    near = near or difflib.get_close_matches(word, known, n=1, cutoff=0.55)
    if near:
        return f"; did you mean `{near[0]}`?"
    return "; known here: " + ", ".join(known) if known else ""


def explain_error(error: Mapping[str, Any], written: object = None) -> str:
    """One pydantic error as a message. ``written``: the value in the file, compared with the known ones and not shown."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind == "missing":
        return "is missing"
    if kind == "value_error" and "error" in context:
        return str(context["error"])
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return f"must be {context.get('expected')}" + _suggest(written, known)
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(context.get("pattern")), "may consist of letters, digits, _ and - only")
    if kind == "union_tag_invalid":
        known = re.findall(r"'([^']*)'", str(context.get("expected_tags", "")))
        return f"must be {' or '.join(known)}" + _suggest(written, known)
    if kind == "greater_than_equal":
        return f"must be {context.get('ge')} or more"
    if kind == "too_short":
        return f"needs at least {context.get('min_length')} entry" + ("" if context.get("min_length") == 1 else "s")
    text = str(error["msg"]).replace("Input should", "must").removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _suggest(written: object, known: list[str]) -> str:
    near = difflib.get_close_matches(written, known, n=1) if isinstance(written, str) else []
    return f"; did you mean `{near[0]}`?" if near else ""
