"""``deltarelay erase approve``: approves requests that reach many rows."""

from __future__ import annotations

from typing import Annotated

import typer

from cdf.listing import list_some
from infra.cli.commands.erase.context import ErasureContext
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output

__all__ = ["approve"]


def approve(
    requests: Annotated[list[str], typer.Argument(metavar="REQUEST...", help="Ids of requests.")],
    by: Annotated[str, typer.Option("--by", help="The name of the approver; stored, and shown in the certificate.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Approve requests that reach more than `approve_above` rows. Starts no JVM."""
    output = Output("erase approve", as_json, debug)
    register = ErasureContext(config).open_register()
    for id in requests:
        register.approve(id, by)
    output.line(f"approved by {by}: {list_some(requests)}")
    output.result({"requests": list(requests), "approver": by})
