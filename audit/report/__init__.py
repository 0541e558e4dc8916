"""A report on a trail for an auditor: one structure of facts, as HTML, Markdown or JSON. None of them has a row's values."""

from audit.report.facts import Report
from audit.report.gather import make_report
from audit.report.html_page import as_html
from audit.report.markdown import as_markdown

__all__ = ["Report", "as_html", "as_markdown", "make_report"]
