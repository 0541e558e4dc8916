"""The report on a trail for auditors: one structure of facts, as HTML, Markdown or JSON, without row values."""

from audit.report.collect import make_report
from audit.report.html import as_html
from audit.report.markdown import as_markdown
from audit.report.model import Report

__all__ = ["Report", "as_html", "as_markdown", "make_report"]
