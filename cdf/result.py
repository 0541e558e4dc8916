"""Results that can be printed on a terminal, shown in a notebook, and converted to JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
from collections.abc import Mapping
from typing import Any

__all__ = ["Result", "plain"]


def plain(value: Any) -> Any:
    """Convert a value for JSON: ISO-8601 dates, times in UTC, dataclasses as objects."""
    if isinstance(value, Result):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner) for inner in value]
    return value


class Result:
    """Base class of the frozen dataclasses that public methods return."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            field.name: plain(getattr(self, field.name))
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if not field.name.startswith("_")
        }

    def __str__(self) -> str:
        rows = self.to_dict()
        width = max((len(name) for name in rows), default=0)
        lines = [f"{name:<{width}}  {_short(value)}" for name, value in rows.items()]
        return "\n".join([type(self).__name__, *("  " + line for line in lines)])

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(_short(value))}</td></tr>"
            for name, value in self.to_dict().items()
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{cells}</table>"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_short(inner)}" for key, inner in value.items()) or "-"
    if isinstance(value, list):
        shown = "; ".join(_short(inner) for inner in value[:5])
        return (shown + (f"; … {len(value) - 5} more" if len(value) > 5 else "")) or "-"
    return str(value)
