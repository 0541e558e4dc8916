"""Serves ``/metrics``, ``/healthz`` and ``/readyz`` of a follower, in threads of its own."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from cdf.errors import ConfigError
from infra.monitoring.metrics import MetricsObserver

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["ServedMetrics"]

REQUEST_SECONDS = 10.0
"""A client that sends nothing for this long is disconnected."""


class ServedMetrics(MetricsObserver):
    """Raises ConfigError if the port cannot be used, before any pipeline begins."""

    def __init__(self, project: Project, pipelines: Sequence[str], *, host: str, port: int, **options: Any) -> None:
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, self._answer, server_class=kind, handler_class=_Handler)
        except OSError as error:
            raise ConfigError(
                f"--metrics-port: cannot listen on {host}:{port} ({error.strerror})",
                hint="another process uses this port, or the address is not of this machine: choose another one",
            ) from None
        try:
            super().__init__(project, pipelines, **options)
        except BaseException:
            self._server.server_close()
            raise
        threading.Thread(target=self._server.serve_forever, name="metrics-server", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        super().close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _respond(start_response, "405 Method Not Allowed", "only GET and HEAD\n")
        if path == "/metrics":
            from prometheus_client import make_wsgi_app

            answer: Iterable[bytes] = make_wsgi_app(self.store.build_registry())(environ, start_response)
            return answer
        if path == "/healthz":
            return _respond(start_response, "200 OK", "ok\n")
        if path == "/readyz":
            unready = self.find_unready()
            text = "".join(f"not ready: {name}\n" for name in unready) or "ok\n"
            return _respond(start_response, "503 Service Unavailable" if unready else "200 OK", text)
        return _respond(start_response, "404 Not Found", "/metrics, /healthz, /readyz\n")


def _respond(start_response: Any, status: str, text: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
    return [text.encode()]


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""
