"""The Spark session, its Java and its jars."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.spark.session_builder import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """Imported on demand: finding Java and jars needs no PySpark."""
    if name == "session":
        from infra.spark.session_builder import session

        return session
    raise AttributeError(f"module 'infra.spark' has no attribute {name!r}")
