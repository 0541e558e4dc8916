"""``deltarelay erase accept``: accepts the findings of a scan."""

from __future__ import annotations

from typing import Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.commands.erase.context import ErasureContext, RequestId
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output, format_count

__all__ = ["accept"]


def accept(
    request: RequestId,
    by: Annotated[
        str, typer.Option("--by", help="The name of the person who decides; stored, and shown in the certificate.")
    ],
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            help="Why the data may remain; stored, and shown in the certificate. Must not identify the person.",
        ),
    ],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Decide that the data of a person that the last scan found may remain. Starts no JVM.

    For example, an address that another person has quoted. The next `erase run` scans again and issues a certificate with
    the outcome `partial`, which lists each finding, who accepted it and why. Findings of later scans are not accepted.
    """
    from audit.erasure.run.full_scan import make_search_terms

    output = Output("erase accept", as_json, debug)
    context = ErasureContext(config)
    register = context.open_register()
    requests, known = context.read_requests(register, [request]), register.learned([request], context.keys)
    if any(True for text in (by, reason) for _ in make_search_terms(requests, known).find(text.encode())):
        raise ConfigError(
            "--by or --reason contains an identifier of the person, and the certificate shows both to others"
        )
    count = register.accept(request, by, reason)
    output.line(f"{request}: {format_count(count, 'finding')} accepted, by decision of {by}")
    output.line("next: deltarelay erase run, with the plan or the name of the run")
    output.result({"request": request, "by": by, "finds": count})
