"""The web application: routes, templates and headers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import jinja2
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from audit.report.formatting import format_time
from audit.report.html import build_environment
from infra.config.limits import Limits
from infra.monitoring.page.access import Access, AccessCheck, find_path
from infra.monitoring.page.overview import SYMBOLS, TONES, build_overview, format_age
from infra.monitoring.page.pipeline import build_pipeline_page

if TYPE_CHECKING:
    from infra.monitoring.page.collector import Collector

__all__ = ["build_app"]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
STATIC = {
    "base.css": ("audit.report", "page.css", "text/css"),
    "status.css": ("infra.monitoring.page", "status.css", "text/css"),
    "icon.svg": ("infra.monitoring.page", "icon.svg", "image/svg+xml"),
    "refresh.js": ("infra.monitoring.page", "refresh.js", "text/javascript"),
}
"""The whole list of files that are served: package, name of the template, type."""
MIN_REFRESH_SECONDS = 2


def build_app(collector: Collector, access: Access, limits: Limits, *, config: Path) -> ASGIApp:
    pages = _Pages(collector, access, limits, config)
    return Starlette(
        routes=[
            Route("/", pages.show_overview),
            Route("/pipelines/{name:path}", pages.show_pipeline),
            *([Route("/audit", pages.show_audit)] if collector.trails else []),
            *([Route("/erasure", pages.show_erasure)] if collector.has_erasure else []),
            Route("/static/{name}", _send_static),
            Route("/healthz", _send_health),
        ],
        middleware=[Middleware(_SecurityHeaders), Middleware(AccessCheck, access=access, refuse=pages.refuse)],
        exception_handlers={404: pages.show_missing, 500: pages.show_failure},
    )


class _Pages:
    """The endpoints are plain functions, so Starlette runs them in threads: waiting for a server stops no other request."""

    def __init__(self, collector: Collector, access: Access, limits: Limits, config: Path) -> None:
        self._collector, self._access, self._limits, self._config = collector, access, limits, config
        self._pages = [("/", "Overview")]
        self._pages += [("/audit", "Audit")] if collector.trails else []
        self._pages += [("/erasure", "Erasure")] if collector.has_erasure else []

    def show_overview(self, request: Request) -> Response:
        query = request.query_params
        state = query.get("state", "")
        text, page = query.get("q", ""), query.get("page", "")
        overview = build_overview(
            self._collector.read_pipelines(),
            self._limits,
            state=state if state in TONES else "",
            text=text,
            page=int(page) if page.isascii() and page.isdigit() else 1,
        )
        return self._render(request, "overview.html", overview=overview, state=state, text=text)

    def show_pipeline(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._collector.names:
            return self.show_missing(request)
        target = self._collector.targets[name]
        seen = self._collector.read_pipeline(name)
        page = build_pipeline_page(*seen, self._limits, target=target, config=self._config)
        return self._render(request, "pipeline.html", page=page)

    def show_audit(self, request: Request) -> Response:
        return self._render(request, "audit.html", rows=self._collector.read_trails())

    def show_erasure(self, request: Request) -> Response:
        return self._render(request, "erasure.html", page=self._collector.read_erasure())

    def show_missing(self, request: Request, _error: Exception | None = None) -> Response:
        text = "There is no such page. A pipeline that was added to the configuration appears after a restart."
        return self._render(request, "message.html", 404, title="Not found", text=text)

    def show_failure(self, request: Request, _error: Exception) -> Response:
        text = "This page cannot be shown; the log of `deltarelay serve` has the error. Other pages may work."
        return self._render(request, "message.html", 500, title="Error", text=text)

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        has_token = self._access.token is not None
        refused = "refused" in request.query_params
        response = self._render(request, "login.html", 401, has_token=has_token, refused=refused, refreshes=False)
        await response(scope, receive, send)

    def _render(self, request: Request, template: str, code: int = 200, **values: Any) -> Response:
        path = find_path(request.scope)
        depth = path.count("/") - 1
        values.setdefault("refreshes", code == 200)
        content = (
            _environment()
            .get_template(template)
            .render(
                pages=self._pages,
                symbols=SYMBOLS,
                tones=TONES,
                root="/".join([".."] * depth) or ".",  # relative, so that a reverse proxy may add a prefix
                path=path,
                now=dt.datetime.now(dt.UTC),
                refresh_seconds=max(MIN_REFRESH_SECONDS, round(self._collector.interval_seconds)),
                user=self._access.find_proxy_user(request),
                **values,
            )
        )
        return HTMLResponse(content, code)


def _send_static(request: Request) -> Response:
    if (found := STATIC.get(request.path_params["name"])) is None:
        return PlainTextResponse("not found", 404)
    package, name, kind = found
    loader = jinja2.PackageLoader(package, "templates")
    content, _, _ = loader.get_source(_environment(), name)
    return Response(content, media_type=kind, headers={"Cache-Control": "max-age=300"})


def _send_health(_request: Request) -> Response:
    return PlainTextResponse("ok")


@cache
def _environment() -> jinja2.Environment:
    environment = build_environment("infra.monitoring.page")
    environment.filters["age"] = format_age
    environment.filters["time"] = format_time
    environment.filters["query"] = _format_query
    return environment


def _format_query(values: Mapping[str, object]) -> str:
    """The query of a link, without what is empty."""
    chosen = {name: value for name, value in values.items() if value}
    return f"?{urlencode(chosen)}" if chosen else ""


class _SecurityHeaders:
    """ASGI middleware. A header that the response has already stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                added = [
                    (name.lower().encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.lower().encode() not in present
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)
