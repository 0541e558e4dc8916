"""Where the time of a step goes: what sinks report in ``Applied.seconds``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["timed"]


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Put the seconds that the block takes under ``step``, also where it fails."""
    began = time.monotonic()
    try:
        yield
    finally:
        seconds[step] = round(time.monotonic() - began, 4)
