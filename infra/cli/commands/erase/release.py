"""``deltarelay erase release``: lets pipelines replicate an erased person again."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.cli.commands.erase.context import ErasureContext, RequestId
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output

__all__ = ["release"]


def release(
    request: RequestId,
    by: Annotated[str, typer.Option("--by", help="The name of the person who decides; stored.")],
    reason: Annotated[
        str,
        typer.Option(
            "--reason", help="Why the person's data may be stored again; stored. Must not identify the person."
        ),
    ],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop watching for an erased person: pipelines replicate their rows again. Starts no JVM."""
    output = Output("erase release", as_json, debug)
    marks = ErasureContext(config).open_register().release([request], by, reason)
    output.line(f"{request}: no longer watched for, by decision of {by}")
    output.result({"request": request, "by": by, "marks": marks})
