"""Names of columns: as Spark's expressions quote them, and as a table spells them."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["column_in", "quoted"]


def quoted(name: str) -> str:
    """Quote a column for Spark's expressions."""
    return "`" + name.replace("`", "``") + "`"


def column_in(columns: Iterable[str], name: str) -> str | None:
    """Return the column as the columns spell it: Spark ignores case."""
    return next((column for column in columns if column.lower() == name.lower()), None)
