"""``deltarelay erase plan``: receives requests, and shows what erasing would change."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from cdf.listing import list_some
from infra.cli.commands.erase.context import ErasureContext, current_time
from infra.cli.files import require_new
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.output import Output, format_count
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.erasure.find.plan import Plan

__all__ = ["plan"]


def plan(
    requests: Annotated[
        Path, typer.Argument(metavar="REQUESTS", help="A CSV or JSON file: id, identifiers, received, due, requester …")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file for the plan; an existing file is not overwritten.")
    ] = Path("erasure-plan.json"),
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Receive requests, and show what erasing would change: rows, files, sinks, holds, dates. Erases nothing.

    The requests are stored in the register, with encrypted identifiers. The plan contains no identifiers.
    """
    from audit.erasure.find.plan import make_plan
    from audit.erasure.find.plan_file import write_plan
    from audit.erasure.requests.read import read_requests

    output = Output("erase plan", as_json, debug)
    context = ErasureContext(config)
    require_new(out)
    graph = context.erasure.graph()
    received = read_requests(requests, graph.subjects, today=current_time().date())
    register = context.open_register()
    added = register.add(received, context.keys)
    ids = [request.id for request in received]
    open_ids = {request.id for request in context.read_requests(register, ids)}
    if closed := [id for id in ids if id not in open_ids]:
        output.note(f"left out, because they are completed: {list_some(closed)}")
    wanted = [request for request in received if request.id in open_ids]
    if not wanted:
        raise ConfigError(
            "every request in the file is already completed", hint="`deltarelay erase status` shows the requests"
        )
    run = f"er-{current_time():%Y%m%d}-{uuid.uuid4().hex[:8]}"
    with spark_session(output, context.project) as spark, raise_interrupt_on_signal():
        copies = context.build_copies()
        register.record_carriers(copy.carrier for copy in copies)
        result = make_plan(
            spark,
            graph,
            copies,
            wanted,
            register.learned([request.id for request in wanted], context.keys),
            run=run,
            approve_above=context.erasure.approve_above,
            now=current_time(),
        )
    write_plan(result, out)
    try:
        register.begin(run, result.requests, result.digest, result.to_dict())
    except BaseException:
        out.unlink()  # the file would look like a plan that can be run
        raise
    output.note(f"{format_count(len(added.new), 'request')} new, {len(added.known)} already known")
    _print_plan(output, result, out)
    output.result(result)


def _print_plan(output: Output, plan: Plan, out: Path) -> None:
    rows = [
        (
            table.table,
            sum(table.rows.values()),
            table.files,
            len(table.rows),
            "on hold until " + str(table.held_until) if table.held_until else table.on_erase,
            table.files_gone_on,
            table.log_gone_on,
        )
        for table in plan.tables
    ]
    output.table(
        ("table", "rows", "files", "requests", "action", "files deleted on", "log deleted on"),
        rows,
        numbers=("rows", "files", "requests"),
    )
    if plan.sinks:
        output.line()
        output.table(
            ("pipeline", "source", "position", "can erase"),
            [(sink.pipeline, sink.table, sink.position, "yes" if sink.forgets else "no") for sink in plan.sinks],
            numbers=("position",),
        )
    output.line()
    if plan.not_found:
        output.line(
            f"no row in any table: {list_some(plan.not_found)} (copies, history and files are searched in any case)"
        )
    for table in plan.tables:
        if table.held_until:
            output.line(f"on hold: {table.table} until {table.held_until} ({table.held_for})")
    for id, reason in plan.needs_approval.items():
        output.line(f"needs approval: {id}, {reason}; `deltarelay erase approve {id} --by NAME`")
    for text in plan.warnings:
        output.line(f"warning: {text}")
    for text in plan.problems:
        output.line(f"problem: {text}")
    output.line("delete the request file and its copies: it identifies people in plain text and is no longer needed")
    output.line(f"plan for {format_count(len(plan.requests), 'request')}: {out}")
    output.line(f"next: deltarelay erase run {out}")
