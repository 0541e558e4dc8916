"""The report on a trail for auditors: one structure of facts, as HTML, Markdown or JSON, without row values."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.report.collect import make_report
    from audit.report.html import as_html
    from audit.report.markdown import as_markdown
    from audit.report.model import Report

__all__ = ["Report", "as_html", "as_markdown", "make_report"]

_MODULES = {"Report": "model", "as_html": "html", "as_markdown": "markdown", "make_report": "collect"}


def __getattr__(name: str) -> Any:
    """Import on demand: pages of certificates and access reports need no PySpark, but the facts of a trail do."""
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(f"audit.report.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'audit.report' has no attribute {name!r}")
