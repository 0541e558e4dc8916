"""Durations on the command line and in the configuration: ``45s``, ``15m``, ``1h``, ``2d``."""

from __future__ import annotations

import datetime as dt
import re

__all__ = ["parse_duration"]

_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LONGEST = dt.timedelta(days=36_500)


def parse_duration(text: str) -> dt.timedelta:
    """Raises ValueError with a sentence for the user, which the caller completes with the option's name."""
    found = _FORM.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write a number and s, m, h or d, as in 15m")
    try:
        span = dt.timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        span = dt.timedelta.max
    if not dt.timedelta(0) < span <= _LONGEST:
        raise ValueError(f"{text!r} is not a possible duration: it must be more than 0 and at most 36500d")
    return span
