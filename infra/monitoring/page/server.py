"""Runs the status page with uvicorn until the command is stopped."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from cdf.errors import ConfigError
from infra.config.limits import Limits
from infra.monitoring.page.access import Access
from infra.monitoring.page.app import build_app
from infra.monitoring.page.collector import Collector

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["serve_pages"]

GRACE_SECONDS = 2


def serve_pages(
    project: Project,
    names: Sequence[str],
    access: Access,
    limits: Limits,
    *,
    address: tuple[str, int],
    interval_seconds: float,
    config: Path,
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM. ``announce`` is called with the URL once the port is open."""
    listener = _listen(*address)
    collector = Collector(project, names, interval_seconds=interval_seconds)
    collector.start()
    settings = uvicorn.Config(
        build_app(collector, access, limits, config=config),
        log_config=None,
        access_log=False,
        server_header=False,
        # uvicorn would replace the address from which the user header is believed
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    host, port = listener.getsockname()[:2]
    announce(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
    try:
        uvicorn.Server(settings).run(sockets=[listener])
    finally:
        collector.close()
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else "the host is unknown"
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {reason.lower()}", hint="choose another one with --host and --port"
        ) from error
