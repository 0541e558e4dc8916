"""``deltarelay erase access-report``: writes a report of all data about one person, for that person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cdf.errors import ConfigError
from cdf.os_user import os_user
from infra.cli.commands.erase.context import ErasureContext, RequestId, current_time
from infra.cli.files import require_folder, require_new, write_output
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output, format_count
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.erasure.model import Request
    from audit.erasure.register.store import Register

__all__ = ["access_report"]

Format = Literal["html", "json"]


def access_report(
    request: RequestId,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file for the report; an existing file is not overwritten.")
    ],
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests",
            help="A file as for `erase plan` that contains the request; default: the request in the register.",
        ),
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="Default: according to the file name's extension, else html.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report of all data about one person: rows, recipients, retention, history (Art. 15 GDPR).

    The command searches as `erase plan` does, and changes no table. The file contains personal data and is readable only by
    you; it is meant for the person. Data about other people in the same rows is left out. A request that may concern two
    people needs an approver. The register stores that the report was made, by whom, and its hash (`erase status`). To read
    encrypted data in a trail, the person's own keys are used; this becomes an event of the trail.
    """
    from audit.erasure.access.html import access_page
    from audit.erasure.access.report import access_report as make_report

    output = Output("erase access-report", as_json, debug)
    context = ErasureContext(config)
    require_new(out)
    require_folder(out, "the report")
    register, graph = context.open_register(), context.erasure.graph()
    found, known = _find_request(context, register, request, requests)
    with spark_session(output, context.project) as spark, raise_interrupt_on_signal():
        report = make_report(
            spark,
            graph,
            context.build_copies(),
            found,
            known,
            targets=context.project.targets(),
            registry=context.open_key_registry(),
            reader=os_user(),
            approve_above=context.erasure.approve_above,
            now=current_time(),
            progress=lambda step: output.note(f"{step} …"),
        )
    chosen = format or ("json" if out.suffix.lower() == ".json" else "html")
    text = (
        json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n" if chosen == "json" else access_page(report)
    )
    # Recorded before the file is written: no report may exist that the register does not list
    register.record_access(found.id, found.subject, os_user(), report.digest, report.counts())
    write_output(out, text, mode=0o600, what="the report")
    counts = report.counts()
    output.line(
        f"{out}: {format_count(counts['rows'], 'row')} in {format_count(counts['tables'], 'table')}, {counts['kept']:,} "
        f"more that copies keep, {format_count(counts['events'], 'event')} of history"
    )
    output.result({"report": str(out), "format": chosen, "request": found.id, "digest": report.digest, **counts})


def _find_request(
    context: ErasureContext, register: Register, id: str, requests: Path | None
) -> tuple[Request, list[tuple[str, str, str]]]:
    """Return the request, and the other identifiers of the person that the register knows."""
    from audit.erasure.requests.read import read_requests

    if requests is None:
        stored = context.read_requests(register, [id])
        if not stored:
            raise ConfigError(
                f"the register no longer has the identifiers of request {id}",
                hint="provide them in a file: --requests FILE",
            )
        return stored[0], register.learned([id], context.keys)
    received = read_requests(requests, context.erasure.graph().subjects, today=current_time().date())
    wanted = next((request for request in received if request.id == id), None)
    if wanted is None:
        raise ConfigError(f"{requests} has no request {id}", hint="the column `id` contains the ids")
    return wanted, []
