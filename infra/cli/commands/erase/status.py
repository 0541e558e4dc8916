"""``deltarelay erase status``: shows the state of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.commands.erase.context import ErasureContext, current_time
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output, format_count

if TYPE_CHECKING:
    from audit.erasure.register.records import RequestStatus

__all__ = ["status"]


def status(
    requests: Annotated[
        list[str] | None, typer.Argument(metavar="[REQUEST]...", help="Show only these requests; default: all.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the state of each request, overdue ones first, and the access reports that were made. Starts no JVM."""
    output = Output("erase status", as_json, debug)
    register = ErasureContext(config).open_register()
    states = register.requests(requests or None)
    reports = [report for report in register.accesses() if not requests or report.request in requests]
    output.table(
        ("request", "state", "received", "due", "requester", "approver", "waits until", "reappeared"),
        [
            (
                request.id,
                request.state,
                request.received,
                _format_due(request),
                request.requester,
                request.approver,
                request.waits_until and request.waits_until.date(),
                _format_reappearance(request),
            )
            for request in states
        ],
    )
    for request in states:
        for text in (request.waits_for or "").split("; ") if request.waits_for else ():
            output.line(f"{request.id} waits for {text}")
    for report in reports:
        rows = format_count(report.counts["rows"] + report.counts["kept"], "row")
        events = format_count(report.counts["events"], "event")
        output.line(
            f"{report.request}: access report of {rows} and {events}, {report.at:%Y-%m-%d %H:%M}Z by {report.reader}"
        )
    if not states:
        output.line("no requests")
    output.result({"requests": states, "access_reports": reports})


def _format_due(request: RequestStatus) -> str:
    is_overdue = request.state not in ("certified", "partial") and request.due < current_time().date()
    return f"{request.due} (overdue)" if is_overdue else str(request.due)


def _format_reappearance(request: RequestStatus) -> str | None:
    return None if request.returned_at is None else f"{request.returned_at:%Y-%m-%d %H:%M}Z in {request.returned_to}"
