"""How messages list requests."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["list_some"]


def list_some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")
