"""How messages list many names."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["list_some"]


def list_some(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
