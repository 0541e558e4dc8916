"""``deltarelay serve``: the status page. Starts no JVM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cdf.errors import ConfigError
from cdf.extras import require_extra
from infra.cli.limit_options import LimitOptions
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Logs, Pipelines, expand_options
from infra.cli.project import load_project, select_pipelines
from infra.logs import LogFormat, configure
from infra.output import DONE, Output

__all__ = ["serve"]

TOKEN_VARIABLE = "DELTARELAY_SERVE_TOKEN"


@expand_options
def serve(
    *,
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", help="The address to listen on. Any other than this machine's own needs a token or proxy."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: a free one.")] = 9410,
    refresh_seconds: Annotated[
        float, typer.Option("--refresh-seconds", min=1, help="How often the status of each pipeline is read.")
    ] = 10.0,
    limits: LimitOptions,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help=f"A file with the token that visitors must know; default: the environment variable {TOKEN_VARIABLE}.",
        ),
    ] = None,
    proxy_user_header: Annotated[
        str | None,
        typer.Option(
            "--proxy-user-header",
            metavar="HEADER",
            help="Admit requests whose user a reverse proxy names in this header, such as X-Forwarded-User.",
        ),
    ] = None,
    proxy_address: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy-address",
            help="An address from which that header is believed; can be repeated. Default: this machine.",
        ),
    ] = None,
    log_format: Logs = LogFormat.auto,
    debug: Debug = False,
) -> None:
    """Serve the status page: all pipelines, those that need a person first. It changes nothing, and starts no JVM.

    A pipeline that exceeds a limit is shown as urgent.
    """
    require_extra("serve")
    from infra.monitoring.page.access import Access, check_access
    from infra.monitoring.page.server import serve_pages

    judged_by = limits.read()
    configure(log_format, debug=debug)
    output = Output("serve", False, debug)
    access = Access(
        token=_read_token(token_file),
        proxy_header=proxy_user_header,
        proxy_addresses=tuple(proxy_address or ("127.0.0.1", "::1")),
    )
    check_access(host, access)
    project = load_project(config)
    names = select_pipelines(project, pipeline)
    try:
        serve_pages(
            project,
            names,
            access,
            judged_by,
            address=(host, port),
            interval_seconds=refresh_seconds,
            config=config,
            announce=lambda url: output.line(f"the status page is at {url} (press Ctrl-C to stop)"),
        )
    except KeyboardInterrupt:
        raise typer.Exit(DONE) from None


def _read_token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read the token from {path}", hint="check --token-file") from error
    if not token:
        raise ConfigError(f"{path} is empty", hint="write the token into it")
    return token
