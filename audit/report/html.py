"""HTML pages from Jinja2 templates: no script, nothing from a network, for screens in light and dark and for A4 paper."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from audit.report.document import Document, visible

if TYPE_CHECKING:
    import jinja2

    from audit.report.model import Report

__all__ = ["as_html", "build_environment", "render", "render_page"]


def as_html(report: Report) -> str:
    from audit.report.sections import build_document

    return render_page(build_document(report))


def render_page(document: Document) -> str:
    return render("page.html", page=document)


def render(template: str, **values: Any) -> str:
    """Render a file of ``audit/report/templates``. Every value is escaped."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> jinja2.Environment:
    return build_environment("audit.report")


def build_environment(package: str) -> jinja2.Environment:
    """The environment for the folder ``templates`` of a package: values are escaped, a missing one is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["visible"] = visible
    return environment
