"""The parameters of queries, from the text on the command line. No error message repeats a value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from cdf.errors import ConfigError

__all__ = ["parse_pairs", "parse_parameter"]

_NUMBERS = ("version", "index")
_MOMENTS = ("when", "first", "second")
"""A version or a time."""
_TIMES = (*_MOMENTS, "since", "until")
_OPTIONAL = ("since", "until", "index")


def parse_parameter(parameter: str, texts: Sequence[str] | None) -> Any:
    """Return the value of a parameter. ``texts``: as given, once or several times; None if it was not given."""
    if texts is None:
        if parameter in _OPTIONAL:
            return None
        raise ConfigError(
            f"--param {parameter}=… is missing", hint="`deltarelay audit queries` lists the parameters of each query"
        )
    if parameter == "record":
        return dict(parse_pairs(texts, "--key"))
    if parameter == "key":
        return list(texts)
    if len(texts) > 1:
        raise ConfigError(f"--param {parameter}=… is given more than once", hint="give it once")
    if parameter in (*_MOMENTS, *_NUMBERS) and texts[0].isascii() and texts[0].isdecimal():
        return int(texts[0])
    if parameter in _NUMBERS:
        raise ConfigError(f"--param {parameter}=… is not a whole number", hint="findings and answers show it")
    return _parse_time(parameter, texts[0]) if parameter in _TIMES else texts[0]


def parse_pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Split ``NAME=VALUE`` texts. The error does not repeat the text, which may be a value only."""
    pairs = [text.partition("=") for text in texts]
    if not all(equals and name for name, equals, _ in pairs):
        raise ConfigError(f"the argument of {option} is not a NAME=VALUE pair", hint=f"write {option} NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def _parse_time(parameter: str, text: str) -> dt.datetime:
    from cdf.source.bounds import parse_timestamp

    return parse_timestamp(text, name=parameter)
