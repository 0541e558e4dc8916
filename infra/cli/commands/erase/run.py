"""``deltarelay erase run``: erases as planned, until every request is certified."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError
from cdf.listing import list_some
from infra.cli.commands.erase.context import ErasureContext, current_time
from infra.cli.commands.erase.findings import print_findings, suggest_actions
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.monitoring.observers import observe
from infra.output import DIFFERENCE, DONE, Output, format_count
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.erasure.run.runner import ErasureReport

__all__ = ["run"]

RUN_NAME = re.compile(r"er-[0-9]{8}-[0-9a-f]{8}")


def run(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="The file that `erase plan` wrote, or the name of its run, er-….")
    ],
    purge_immediately: Annotated[
        bool,
        typer.Option(
            "--purge-immediately",
            help="Delete old files now instead of at the end of their retention: breaks time travel, and readers of older "
            "versions of the tables.",
        ),
    ] = False,
    adopt_steps: Annotated[
        bool,
        typer.Option(
            "--adopt-steps",
            help="Trust the steps that an earlier release recorded for this run; needed once. First check who was able to "
            "write to the register.",
        ),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Erase as planned, as far as possible now; repeat the command until every request is certified.

    Exit code 75: pipelines must run first. 3: the scan found data that no later step will remove.
    """
    from audit.erasure.find.plan_file import check_plan, check_tables, read_plan
    from audit.erasure.run.context import RunContext, describe_carrier
    from audit.erasure.run.runner import ErasureRun

    output = Output("erase run", as_json, debug)
    context = ErasureContext(config)
    is_name = not plan.exists() and RUN_NAME.fullmatch(str(plan))
    given = None if is_name else read_plan(plan)
    name = str(plan if given is None else given.get("run"))
    register = context.open_register()
    document = register.plan(name)
    check_plan(register.run(name), document, given)
    if document["problems"]:
        raise ConfigError(
            "the plan has problems: " + "; ".join(document["problems"]),
            hint="correct them, then run `deltarelay erase plan` again",
        )
    with register.lease(name) as held:
        run = register.run(name)
        if run.finished_at is not None:
            raise ConfigError(f"the run of {plan} is finished", hint="`deltarelay erase status` shows its result")
        requests = context.read_requests(register, run.requests)
        graph = context.erasure.graph()
        check_tables(document, [table.table for table in graph.tables_of(*(one.subject for one in requests))])
        with (
            observe(context.project, list(context.project.pipelines)) as observers,
            spark_session(output, context.project) as spark,
            raise_interrupt_on_signal(),
        ):
            erasure_run = ErasureRun(
                RunContext(
                    spark=spark,
                    graph=graph,
                    copies=context.build_copies(),
                    register=register,
                    held=held,
                    keys=context.keys,
                    signer=context.signer,
                    run=name,
                    requests=requests,
                    approve_above=context.erasure.approve_above,
                    out_of_reach=context.erasure.out_of_reach,
                    now=current_time(),
                    watch_days=context.erasure.watch_days,
                    files=context.open_files,
                    registry=context.open_key_registry(),
                    immediate=purge_immediately,
                    adopt=adopt_steps,
                    progress=output.note,
                )
            )
            for carrier in erasure_run.context.missing_carriers():
                output.note(
                    f"warning: {describe_carrier(carrier)} is no longer configured: the certificate will list it as "
                    "not verified"
                )
            report = erasure_run.execute()
            observers.record_erasure(report)
    code = DIFFERENCE if report.finds else DONE
    _print_report(output, report, plan)
    output.finish(report, code)


def _print_report(output: Output, report: ErasureReport, plan: Path) -> None:
    for table, rows in report.deleted.items():
        output.line(f"{table}: {format_count(rows, 'row')} erased")
    for pipeline, counts in report.forgotten.items():
        removed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "nothing more to remove"
        output.line(f"{pipeline}: {removed}")
    if report.finds:
        output.line("the scan found data that no later step will remove:")
        print_findings(output, report.finds)
        blocked = sorted({finding.request for finding in report.finds})
        output.line(f"no certificate was issued for {list_some(blocked)}")
        for reason, text in suggest_actions(report.finds):
            output.line(f"next: {reason}: {text}")
        output.line(
            "next: if the data may remain, such as an address that other people have quoted: "
            f"deltarelay erase accept {blocked[0]} --by NAME --reason TEXT, then deltarelay erase run {plan}"
        )
    for text in report.waits_for:
        output.line(f"waits for {text}")
    if report.waits_until is not None:
        output.line(f"next: deltarelay erase run {plan}, on {report.waits_until:%Y-%m-%d} or later")
    for id in report.certificates:
        output.line(f"certified: deltarelay erase certificate {id}")
