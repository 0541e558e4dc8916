"""The PostgreSQL sink."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]


def __getattr__(name: str) -> Any:
    """Import the sink on first use, because reading a configuration needs no driver."""
    if name == "PostgresSink":
        from connectors.postgres.sink import PostgresSink

        return PostgresSink
    raise AttributeError(f"module 'connectors.postgres' has no attribute {name!r}")
