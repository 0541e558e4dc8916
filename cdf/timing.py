"""Measures the seconds per phase that sinks report in ``Applied.seconds``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["timed"]


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Store the block's duration under ``step``, also if the block fails."""
    began = time.monotonic()
    try:
        yield
    finally:
        seconds[step] = round(time.monotonic() - began, 4)
