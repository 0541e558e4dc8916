"""Batches of keys and links, so that no statement becomes too large."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

__all__ = ["BATCH", "split"]

BATCH = 5_000
"""Maximum number of rows in one statement."""

T = TypeVar("T")


def split(items: Collection[T]) -> Iterator[list[T]]:
    listed = list(items)
    return (listed[start : start + BATCH] for start in range(0, len(listed), BATCH))
