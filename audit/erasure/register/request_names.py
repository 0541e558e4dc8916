"""How messages of the register name requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cdf.errors import ConfigError

__all__ = ["check_present", "list_ids"]

_MOST = 20


def list_ids(words: Sequence[str]) -> str:
    """Return the first ids, and how many more there are."""
    more = f" and {len(words) - _MOST:,} more" if len(words) > _MOST else ""
    return ", ".join(words[:_MOST]) + more


def check_present(asked: Iterable[str], found: Collection[str]) -> None:
    """Raises ConfigError where the register does not have all requests that were asked for."""
    if missing := sorted(set(asked).difference(found)):
        raise ConfigError(
            f"the register has no request {list_ids(missing)}",
            hint="`deltarelay erase status` lists those that it has",
            requests=missing,
        )
