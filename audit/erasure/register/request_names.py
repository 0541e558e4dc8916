"""How the register names requests in what it says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cdf.errors import ConfigError

__all__ = ["absent", "listed"]

_MOST = 20


def listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST:,} more" if len(words) > _MOST else ""
    return ", ".join(words[:_MOST]) + more


def absent(asked: Iterable[str], there: Collection[str]) -> None:
    """Raises ConfigError where somebody asks for requests that the register does not have."""
    if missing := sorted(set(asked).difference(there)):
        raise ConfigError(
            f"the register has no request {listed(missing)}",
            hint="`deltarelay erase status` lists those that it has",
            requests=missing,
        )
