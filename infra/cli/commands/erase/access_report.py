"""``deltarelay erase access-report``: what is held on one person, to be told to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.files import reason, write_new
from cdf.errors import ConfigError
from cdf.os_user import os_user
from infra.cli.commands.erase.common import Office, now
from infra.cli.output import Output, counted
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, spark_session
from infra.signals import ctrl_c_counts

if TYPE_CHECKING:
    from audit.erasure.model import Request
    from audit.erasure.register.store import Register

__all__ = ["access_report"]

Format = Literal["html", "json"]


def access_report(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="The id of the request.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the report goes; a file that is there is kept.")],
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests", help="A file as for `erase plan` that has the request; left out: the register has it."
        ),
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="Left out: by the ending of the file's name, else html.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write down everything that is held on one person: rows, recipients, retention, history (Art. 15 GDPR).

    It takes the walk of `erase plan`, and changes nothing. The file shows personal data: it is made for you alone to read,
    and is for the person. What rows say of others stays out of it, and a request that may be about two people needs an
    approver. The register keeps that it was made, by whom, and its hash (`erase status`); where a trail is sealed, the
    person's own keys are asked for, which becomes an event of the trail.
    """
    from audit.erasure.access.html import access_page
    from audit.erasure.access.report import access_report as made_of

    output = Output("erase access-report", as_json, debug)
    office = Office(config)
    if out.exists():
        raise ConfigError(f"there is a file at {out} already", hint="name another one with --out")
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent} for the report", hint="make it, or name another one")
    register, graph = office.register(), office.erasure.graph()
    asked, known = _asked(office, register, request, requests)
    with spark_session(output, office.project) as spark, ctrl_c_counts():
        report = made_of(
            spark,
            graph,
            office.copies(),
            asked,
            known,
            targets=office.project.targets(),
            registry=office.registry(),
            reader=os_user(),
            approve_above=office.erasure.approve_above,
            now=now(),
            progress=lambda step: output.note(f"{step} …"),
        )
    chosen = format or ("json" if out.suffix.lower() == ".json" else "html")
    text = (
        json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n" if chosen == "json" else access_page(report)
    )
    # Whoever has the file has read it: what the register cannot keep is not written
    register.record_access(asked.id, asked.subject, os_user(), report.digest, report.counts())
    try:
        write_new(out, text, mode=0o600)
    except OSError as error:
        raise ConfigError(f"the report cannot be written to {out}: {reason(error)}") from error
    counts = report.counts()
    output.line(
        f"{out}: {counted(counts['rows'], 'row')} in {counted(counts['tables'], 'table')}, {counts['kept']:,} more that "
        f"copies keep, {counted(counts['events'], 'event')} of history"
    )
    output.result({"report": str(out), "format": chosen, "request": asked.id, "digest": report.digest, **counts})


def _asked(
    office: Office, register: Register, id: str, requests: Path | None
) -> tuple[Request, list[tuple[str, str, str]]]:
    """The request, and what the register has learned about the person besides."""
    from audit.erasure.requests.read import read_requests

    if requests is None:
        found = office.requests(register, [id])
        if not found:
            raise ConfigError(
                f"the identifiers of request {id} are forgotten", hint="name them again, in a file: --requests FILE"
            )
        return found[0], register.learned([id], office.keys)
    received = read_requests(requests, office.erasure.graph().subjects, today=now().date())
    wanted = next((one for one in received if one.id == id), None)
    if wanted is None:
        raise ConfigError(f"{requests} has no request {id}", hint="the column `id` names them")
    return wanted, []
