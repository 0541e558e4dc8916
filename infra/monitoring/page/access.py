"""Who may see the pages: a token, a header of a reverse proxy, or, on this machine only, everyone."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cdf.errors import ConfigError

__all__ = ["Access", "AccessCheck", "check_access", "find_path", "is_loopback"]

COOKIE = "deltarelay_session"
MIN_TOKEN_LENGTH = 16
OPEN_PATHS = ("/healthz", "/static/")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
MAX_FORM_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Access:
    """``proxy_header`` is believed only from ``proxy_addresses``. Without token and header the page is open."""

    token: str | None = None
    proxy_header: str | None = None
    proxy_addresses: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.token is None and self.proxy_header is None

    @property
    def cookie(self) -> str:
        """Not the token itself: a cookie that leaks is worth nothing elsewhere, and ends with the token."""
        assert self.token is not None
        return hmac.new(self.token.encode(), b"deltarelay status page", hashlib.sha256).hexdigest()

    def knows_token(self, token: str) -> bool:
        return self.token is not None and _is_equal(token, self.token)

    def admits(self, request: Request) -> bool:
        if self.is_open:
            return True
        if self.token is not None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() == "bearer" and self.knows_token(token.strip()):
                return True
            if _is_equal(request.cookies.get(COOKIE, ""), self.cookie):
                return True
        return self.find_proxy_user(request) is not None

    def find_proxy_user(self, request: Request) -> str | None:
        """The user that the reverse proxy names; None: the request does not come from it."""
        if self.proxy_header is None or request.client is None or request.client.host not in self.proxy_addresses:
            return None
        return request.headers.get(self.proxy_header) or None


def check_access(host: str, access: Access) -> None:
    """Refuse a page that everyone in the network could read."""
    if access.token is not None and len(access.token) < MIN_TOKEN_LENGTH:
        raise ConfigError(
            f"the token has fewer than {MIN_TOKEN_LENGTH} characters",
            hint="create one: python3 -c 'import secrets; print(secrets.token_urlsafe(24))'",
        )
    if access.is_open and not is_loopback(host):
        raise ConfigError(
            f"on {host} everyone in the network could read the page",
            hint="set DELTARELAY_SERVE_TOKEN, or name the header of a reverse proxy with --proxy-user-header",
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_path(scope: Scope) -> str:
    """The path by which the routes are found. ``Request.url`` is built from the header `Host`, which a client invents."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path


def _is_equal(given: str, expected: str) -> bool:
    """In constant time, so that the time of an answer says nothing about the token."""
    return hmac.compare_digest(given.encode(), expected.encode())


class AccessCheck:
    """ASGI middleware: refuses requests without access, and accepts the token's form at ``/login``."""

    def __init__(self, app: ASGIApp, access: Access, refuse: ASGIApp) -> None:
        self._app, self._access, self._refuse = app, access, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if self._access.is_open and not _names_this_machine(request):
            # A page of another site could otherwise read this one through a name that resolves to 127.0.0.1
            await Response("unknown host", 421)(scope, receive, send)
        elif find_path(scope) == "/login" and request.method == "POST" and self._access.token is not None:
            await (await self._log_in(request))(scope, receive, send)
        elif self._access.admits(request) or find_path(scope).startswith(OPEN_PATHS):
            await self._app(scope, receive, send)
        else:
            await self._refuse(scope, receive, send)

    async def _log_in(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                return Response("too long", 413)
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not self._access.knows_token(token):
            return RedirectResponse("./?refused=1", 303)
        response = RedirectResponse("./", 303)
        response.set_cookie(COOKIE, self._access.cookie, httponly=True, samesite="strict", secure=_is_https(request))
        return response


def _names_this_machine(request: Request) -> bool:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname in LOCAL_NAMES
    except ValueError:  # not a host: an IPv6 address without its end
        return False


def _is_https(request: Request) -> bool:
    """Also where a proxy ends TLS: a visitor who invents the header only keeps the own cookie from being sent."""
    return "https" in (request.scope.get("scheme"), request.headers.get("x-forwarded-proto"))
