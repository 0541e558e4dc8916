"""``deltarelay erase scan``: searches for data of people in all tables, files and copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from infra.cli.commands.erase.context import ErasureContext, current_time
from infra.cli.commands.erase.findings import print_findings
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import DIFFERENCE, DONE, Output, format_count
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.erasure.scan.results import ScanResult

__all__ = ["scan"]


def scan(
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests", help="Search for the people in this file; default: those whose erasure is not completed."
        ),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search for remaining data of people in every file, log, topic, table and trail. Changes nothing.

    Exit code 3: something was found.
    """
    from audit.erasure.requests.read import read_requests
    from audit.erasure.run.full_scan import make_search_terms, scan_everything

    output = Output("erase scan", as_json, debug)
    context = ErasureContext(config)
    graph = context.erasure.graph()
    if requests is not None:
        wanted = read_requests(requests, graph.subjects, today=current_time().date())
        known = []
    else:
        register = context.open_register()
        wanted = context.read_requests(register)
        known = register.learned([request.id for request in wanted], context.keys)
    if not wanted:
        raise ConfigError("no person to search for", hint="name a file with --requests")
    search_terms = make_search_terms(wanted, known)
    tables = [table.table for table in graph.order]
    with spark_session(output, context.project), raise_interrupt_on_signal():
        copies = [copy for copy in context.build_copies() if copy.table in tables]
        scanned = scan_everything(
            graph,
            tables,
            copies,
            search_terms,
            files=context.open_files,
            now=current_time(),
            progress=output.note,
        )
    _print_scan(output, scanned)
    output.finish(scanned, DIFFERENCE if scanned.finds else DONE)


def _print_scan(output: Output, scanned: ScanResult) -> None:
    print_findings(output, scanned.finds)
    for checked in scanned.checked:
        size = f", {checked.bytes:,} bytes" if checked.bytes else ""
        output.line(f"searched {checked.what}: {checked.count:,}{size}")
    for unseen in scanned.unseen:
        output.line(f"not verified: {unseen.place} ({unseen.why})")
    output.line("nothing found" if not scanned.finds else format_count(len(scanned.finds), "finding"))
