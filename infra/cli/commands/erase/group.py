"""``deltarelay erase``: people deleted everywhere, with evidence that it happened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.errors import ConfigError, VerificationError
from cdf.result import Result
from infra.cli.commands.erase.access_report import access_report
from infra.cli.commands.erase.common import Office, now
from infra.cli.output import DIFFERENCE, DONE, FAILED, Output, counted
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, spark_session
from infra.signals import ctrl_c_counts

if TYPE_CHECKING:
    from audit.erasure.find.plan import Plan
    from audit.erasure.register.records import RequestStatus
    from audit.erasure.run.runner import ErasureReport
    from audit.erasure.scan.results import Finding, ScanResult
    from audit.proof import VerifierKey

__all__ = ["app"]

app = typer.Typer(help="Delete people everywhere, and show what is left of them.", no_args_is_help=True)
app.command("access-report")(access_report)

RUN = re.compile(r"er-[0-9]{8}-[0-9a-f]{8}")
Requests = Annotated[
    Path, typer.Argument(metavar="REQUESTS", help="A CSV or JSON file: id, identifiers, received, due, requester …")
]


@dataclass(frozen=True, slots=True)
class ErasureKeyMade(Result):
    key_file: str
    verifier_key: str


@dataclass(frozen=True, slots=True)
class KeysSplit(Result):
    watch_key_file: str
    seal_key_file: str
    watch_key: str
    """Its id; tells nothing of the key."""
    seal_key: str


@dataclass(frozen=True, slots=True)
class ErasureRegisterMade(Result):
    schema_name: str
    identity: str


@app.command()
def keygen(
    name: Annotated[str, typer.Argument(help="Who signs certificates, best like an address: example.org/erasure.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the key goes; a file that is there is kept.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make the key that signs certificates and seals identifiers in the register. No JVM."""
    from audit.signing.signer import Signer

    output = Output("erase keygen", as_json, debug)
    signer = Signer.generate(name)
    signer.write(out)
    made = ErasureKeyMade(str(out), str(signer.verifier))
    output.line(f"private key   {out}  (only you can read it; without it the register's identifiers are lost)")
    output.line(f"verifier key  {made.verifier_key}  (for whoever checks certificates)")
    output.result(made)


@app.command("split-keys")
def split_keys(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where watch.key and seal.key go; files are kept.")],
    new: Annotated[
        bool, typer.Option("--new", help="Make new keys; those of today stay in the configuration as former ones.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the watch key and the seal key to files of their own, so that each can be kept apart and replaced. No JVM.

    Without --new they are those in use: what was recorded and sealed before stays valid.
    """
    from audit.erasure.register.secrets import SealKey, WatchKey

    output = Output("erase split-keys", as_json, debug)
    office = Office(config)
    watch, seal = (WatchKey.generate(), SealKey.generate()) if new else office.keys.in_use
    made = KeysSplit(str(folder / "watch.key"), str(folder / "seal.key"), watch.id, seal.id)
    watch.write(folder / "watch.key")
    seal.write(folder / "seal.key")
    output.line(f"watch key  {made.watch_key_file}  (erasure.watch_key: all that a machine which runs pipelines needs)")
    output.line(
        f"seal key   {made.seal_key_file}  (erasure.seal_key: where people are erased; without it the register's"
    )
    output.line("           identifiers are lost)")
    if new:
        output.line(
            "next: move the configured keys to former_watch_keys and former_seal_keys; everywhere, before a run"
        )
    output.result(made)


# ── plan, approve, run ───────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def init(config: Config = DEFAULT_CONFIG, as_json: Json = False, debug: Debug = False) -> None:
    """Make the erasure register, and show its identity; again it changes nothing. No JVM.

    Until there is one no pipeline with a table of `erasure.tables` runs: a register that is missing says nothing of who was
    erased.
    """
    output = Output("erase init", as_json, debug)
    office = Office(config)
    made = ErasureRegisterMade(office.erasure.state.schema_name, office.make_register())
    output.line(f"erasure register {made.schema_name}: ready")
    if office.erasure.state.identity is None:
        output.line(f"for `erasure.state` of the configuration: identity: {made.identity}")
    output.result(made)


@app.command()
def plan(
    requests: Requests,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the plan goes; a file that is there is kept.")] = Path(
        "erasure-plan.json"
    ),
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Receive requests and show what erasing would reach: rows, files, sinks, holds, dates. Erases nothing.

    The requests stand in the register from then on, their identifiers sealed. The plan names nobody.
    """
    import uuid

    from audit.erasure.find.plan import make_plan
    from audit.erasure.find.plan_file import write_plan
    from audit.erasure.requests.read import read_requests

    output = Output("erase plan", as_json, debug)
    office = Office(config)
    if out.exists():
        raise ConfigError(f"there is a file at {out} already", hint="name another one with --out")
    graph = office.erasure.graph()
    received = read_requests(requests, graph.subjects, today=now().date())
    register = office.register()
    added = register.add(received, office.keys)
    ids = [one.id for one in received]
    open_ones = {one.id for one in office.requests(register, ids)}
    if closed := [id for id in ids if id not in open_ones]:
        output.note(f"done with already, left out: {_some(closed)}")
    wanted = [one for one in received if one.id in open_ones]
    if not wanted:
        raise ConfigError("every request of the file is done with already", hint="`deltarelay erase status`")
    run = f"er-{now():%Y%m%d}-{uuid.uuid4().hex[:8]}"
    with spark_session(output, office.project) as spark, ctrl_c_counts():
        copies = office.copies()
        register.record_carriers(copy.carrier for copy in copies)
        made = make_plan(
            spark,
            graph,
            copies,
            wanted,
            register.learned([one.id for one in wanted], office.keys),
            run=run,
            approve_above=office.erasure.approve_above,
            now=now(),
        )
    write_plan(made, out)
    try:
        register.begin(run, made.requests, made.digest, made.to_dict())
    except BaseException:
        out.unlink()  # or it would be taken for a plan that can be run
        raise
    output.note(f"{counted(len(added.new), 'request')} new, {len(added.known)} known")
    _show_plan(output, made, out)
    output.result(made)


def _show_plan(output: Output, made: Plan, out: Path) -> None:
    rows = [
        (
            one.table,
            sum(one.rows.values()),
            one.files,
            len(one.rows),
            "held until " + str(one.held_until) if one.held_until else one.on_erase,
            one.files_gone_on,
            one.log_gone_on,
        )
        for one in made.tables
    ]
    output.table(
        ("table", "rows", "files", "requests", "what happens", "files gone", "log gone"),
        rows,
        numbers=("rows", "files", "requests"),
    )
    if made.sinks:
        output.line()
        output.table(
            ("pipeline", "of", "stands at", "forgets"),
            [(one.pipeline, one.table, one.position, "yes" if one.forgets else "no") for one in made.sinks],
            numbers=("stands at",),
        )
    output.line()
    if made.not_found:
        output.line(
            f"no row in any table: {_some(made.not_found)} (copies, history and files are looked through anyway)"
        )
    for one in made.tables:
        if one.held_until:
            output.line(f"held: {one.table} until {one.held_until} ({one.held_for})")
    for id, why in made.needs_approval.items():
        output.line(f"needs approval: {id}, {why}; `deltarelay erase approve {id} --by NAME`")
    for text in made.warnings:
        output.line(f"warning: {text}")
    for text in made.problems:
        output.line(f"problem: {text}")
    output.line("the file of the requests names people in clear, and is no longer needed: delete it and its copies")
    output.line(f"plan for {counted(len(made.requests), 'request')}: {out}")
    output.line(f"next: deltarelay erase run {out}")


@app.command()
def approve(
    requests: Annotated[list[str], typer.Argument(metavar="REQUEST...", help="Ids of requests.")],
    by: Annotated[str, typer.Option("--by", help="Who approves: kept, and told in the certificate.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Approve requests that reach more than `approve_above` rows. No JVM."""
    output = Output("erase approve", as_json, debug)
    office = Office(config)
    register = office.register()
    for id in requests:
        register.approve(id, by)
    output.line(f"approved by {by}: {_some(requests)}")
    output.result({"requests": list(requests), "approver": by})


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="What `erase plan` wrote; or the name of its run, er-…")],
    purge_immediately: Annotated[
        bool,
        typer.Option(
            "--purge-immediately",
            help="Remove former files now instead of when retention ends: breaks time travel and whoever still reads "
            "older versions of the tables.",
        ),
    ] = False,
    adopt_steps: Annotated[
        bool,
        typer.Option(
            "--adopt-steps",
            help="Once, for a run that an earlier release has begun: take the steps that it has recorded as they are. Look "
            "before who could write to the register.",
        ),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Erase as planned, as far as today allows; again until every request is certified.

    Ends with 75 where pipelines have to run first, with 3 where the scan found something that nothing will clear.
    """
    from audit.erasure.find.plan_file import check_plan, check_tables, read_plan
    from audit.erasure.run.context import RunContext, describe_carrier
    from audit.erasure.run.runner import ErasureRun

    output = Output("erase run", as_json, debug)
    office = Office(config)
    named = not plan.exists() and RUN.fullmatch(str(plan))
    given = None if named else read_plan(plan)
    name = str(plan if given is None else given.get("run"))
    register = office.register()
    document = register.plan(name)
    check_plan(register.run(name), document, given)
    if document["problems"]:
        raise ConfigError(
            "the plan has problems: " + "; ".join(document["problems"]), hint="mend them, then plan again"
        )
    with register.lease(name) as held:
        run = register.run(name)
        if run.finished_at is not None:
            raise ConfigError(f"the run of {plan} has ended", hint="`deltarelay erase status` shows how")
        requests = office.requests(register, run.requests)
        graph = office.erasure.graph()
        check_tables(document, [one.table for one in graph.tables_of(*(one.subject for one in requests))])
        with spark_session(output, office.project) as spark, ctrl_c_counts():
            erasing = ErasureRun(
                RunContext(
                    spark=spark,
                    graph=graph,
                    copies=office.copies(),
                    register=register,
                    held=held,
                    keys=office.keys,
                    signer=office.signer,
                    run=name,
                    requests=requests,
                    approve_above=office.erasure.approve_above,
                    out_of_reach=office.erasure.out_of_reach,
                    now=now(),
                    watch_days=office.erasure.watch_days,
                    files=office.files,
                    registry=office.registry(),
                    immediate=purge_immediately,
                    adopt=adopt_steps,
                    progress=output.note,
                )
            )
            for carrier in erasing.context.missing_carriers():
                output.note(
                    f"warning: {describe_carrier(carrier)} is configured no more: the certificate will call it not verified"
                )
            report = erasing.execute()
    code = DIFFERENCE if report.finds else DONE
    _show_report(output, report, plan)
    output.result(report, exit_code=code)
    raise typer.Exit(code)


def _show_report(output: Output, report: ErasureReport, plan: Path) -> None:
    for table, rows in report.deleted.items():
        output.line(f"{table}: {counted(rows, 'row')} erased")
    for pipeline, counts in report.forgotten.items():
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing more to remove"
        output.line(f"{pipeline}: {told}")
    if report.finds:
        output.line("the scan found what nothing will clear:")
        _show_finds(output, report.finds)
        held_up = sorted({one.request for one in report.finds})
        output.line(f"no certificate was issued for {_some(held_up)}")
        for reason, text in _what_next(report.finds):
            output.line(f"next: {reason}: {text}")
        output.line(
            "next: if it may stay, such as somebody's address that others have quoted: "
            f"deltarelay erase accept {held_up[0]} --by NAME --reason TEXT, then deltarelay erase run {plan}"
        )
    for text in report.waits_for:
        output.line(f"waits for {text}")
    if report.waits_until is not None:
        output.line(f"next: deltarelay erase run {plan}, on {report.waits_until:%Y-%m-%d} or later")
    for id in report.certificates:
        output.line(f"certified: deltarelay erase certificate {id}")


@app.command()
def release(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="The id of the request.")],
    by: Annotated[str, typer.Option("--by", help="Who decides; kept.")],
    reason: Annotated[str, typer.Option("--reason", help="Why the person may be kept again; kept. Name nobody in it.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop watching for a person who was erased: pipelines let them pass again. No JVM."""
    output = Output("erase release", as_json, debug)
    released = Office(config).register().release([request], by, reason)
    output.line(f"{request}: no longer watched for, by decision of {by}")
    output.result({"request": request, "by": by, "marks": released})


@app.command()
def accept(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="The id of the request.")],
    by: Annotated[str, typer.Option("--by", help="Who decides; kept, and in the certificate.")],
    reason: Annotated[
        str, typer.Option("--reason", help="Why it may stay; kept, and in the certificate. Name nobody in it.")
    ],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Decide that what the last scan has found of a person may stay where it is. No JVM.

    For instance somebody's address that another person has quoted. The next `erase run` scans again and issues a certificate
    with the outcome `partial`, which lists each find, who has accepted it and why. This accepts no find of a later scan.
    """
    from audit.erasure.run.full_scan import make_search_terms

    output = Output("erase accept", as_json, debug)
    office = Office(config)
    register = office.register()
    asked, known = office.requests(register, [request]), register.learned([request], office.keys)
    if any(True for text in (by, reason) for _ in make_search_terms(asked, known).find(text.encode())):
        raise ConfigError("--by or --reason holds an identifier of the person, and both are shown to others")
    count = register.accept(request, by, reason)
    output.line(f"{request}: {counted(count, 'find')} accepted, by decision of {by}")
    output.line("next: deltarelay erase run, with the plan or the name of the run")
    output.result({"request": request, "by": by, "finds": count})


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def status(
    requests: Annotated[
        list[str] | None, typer.Argument(metavar="[REQUEST]...", help="Only these; left out: all.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show where each request stands, overdue ones first, and which access reports were made. No JVM."""
    output = Output("erase status", as_json, debug)
    register = Office(config).register()
    found = register.requests(requests or None)
    reports = [one for one in register.accesses() if not requests or one.request in requests]
    today = now().date()

    def due(one: RequestStatus) -> str:
        late = one.state not in ("certified", "partial") and one.due < today
        return f"{one.due} (overdue)" if late else str(one.due)

    output.table(
        ("request", "state", "received", "due", "requester", "approver", "waits until", "came back"),
        [
            (
                one.id,
                one.state,
                one.received,
                due(one),
                one.requester,
                one.approver,
                one.waits_until and one.waits_until.date(),
                _returned(one),
            )
            for one in found
        ],
    )
    for one in found:
        for text in (one.waits_for or "").split("; ") if one.waits_for else ():
            output.line(f"{one.id} waits for {text}")
    for report in reports:
        events = counted(report.counts["events"], "event")
        what = f"{counted(report.counts['rows'] + report.counts['kept'], 'row')} and {events}"
        output.line(f"{report.request}: access report of {what}, {report.at:%Y-%m-%d %H:%M}Z by {report.reader}")
    if not found:
        output.line("no requests")
    output.result({"requests": found, "access_reports": reports})


def _returned(one: RequestStatus) -> str | None:
    return None if one.returned_at is None else f"{one.returned_at:%Y-%m-%d %H:%M}Z in {one.returned_to}"


@app.command()
def scan(
    requests: Annotated[
        Path | None,
        typer.Option("--requests", help="Look for the people in this file; left out: those whose erasure is not over."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Look for what is left of people in every file, log, topic, table and trail; 3 where something is. Changes nothing."""
    from audit.erasure.requests.read import read_requests
    from audit.erasure.run.full_scan import make_search_terms, scan_everything

    output = Output("erase scan", as_json, debug)
    office = Office(config)
    graph = office.erasure.graph()
    if requests is not None:
        wanted = read_requests(requests, graph.subjects, today=now().date())
        known = []
    else:
        register = office.register()
        wanted = office.requests(register)
        known = register.learned([one.id for one in wanted], office.keys)
    if not wanted:
        raise ConfigError("nobody to look for", hint="name a file with --requests")
    terms = make_search_terms(wanted, known)
    tables = [one.table for one in graph.order]
    with spark_session(output, office.project), ctrl_c_counts():
        copies = [copy for copy in office.copies() if copy.table in tables]
        found = scan_everything(graph, tables, copies, terms, files=office.files, now=now(), progress=output.note)
    _show_scan(output, found)
    code = DIFFERENCE if found.finds else DONE
    output.result(found, exit_code=code)
    raise typer.Exit(code)


def _show_scan(output: Output, found: ScanResult) -> None:
    _show_finds(output, found.finds)
    for one in found.checked:
        size = f", {one.bytes:,} bytes" if one.bytes else ""
        output.line(f"looked through {one.what}: {one.count:,}{size}")
    for unseen in found.unseen:
        output.line(f"not verified: {unseen.place} ({unseen.why})")
    output.line("nothing found" if not found.finds else f"{counted(len(found.finds), 'find')}")


def _show_finds(output: Output, finds: Sequence[Finding]) -> None:
    if finds:
        output.table(
            ("request", "place", "reason", "written as", "count", "clears on"),
            [
                (one.request, one.place, one.reason, one.spelling, one.count, one.clears_on or "not by itself")
                for one in finds
            ],
            numbers=("count",),
        )


def _what_next(finds: Sequence[Finding]) -> list[tuple[str, str]]:
    from audit.erasure.scan.findings import NEXT

    return [(reason, NEXT[reason]) for reason in sorted({one.reason for one in finds})]


# ── certificates ─────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def certificate(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="The id of the request.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the signed JSON here.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page for people here.")] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="The verifier key to check it with, where another key than the configured one signed it."
        ),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the certificate of a request, or write it into files. No JVM."""
    from audit.erasure.evidence.certificate import as_file
    from audit.erasure.evidence.certificate import check as check_certificate
    from audit.erasure.evidence.certificate_html import certificate_page
    from audit.files import write_new
    from audit.proof import ProofError

    output = Output("erase certificate", as_json, debug)
    office = Office(config)
    register = office.register()
    found = register.certificate(request)
    if found is None:
        standing = register.requests([request])
        raise ConfigError(
            f"there is no certificate of {request}: "
            + (f"the request is {standing[0].state}" if standing else "no such request was received"),
            hint="`deltarelay erase status` shows what it waits for",
        )
    if key is not None:
        verifier = _verifier(key)
    elif office.erasure.signing_key is not None:
        verifier = office.signer.verifier
    else:
        raise ConfigError("there is no key to check the certificate with", hint=_OTHER_KEY)
    try:
        check_certificate(found, verifier)
        if found["request"].get("id") != request:
            raise ProofError("file", f"it is of request {found['request'].get('id')}")
    except ProofError as error:
        raise VerificationError(
            f"the certificate of {request} in the register is not one that this key has signed: {error}",
            hint=f"{_OTHER_KEY}; otherwise the register was altered: restore it from its backup",
        ) from None
    text = as_file(found)
    for path, content in ((out, text), (html, None)):
        if path is None:
            continue
        try:
            write_new(path, certificate_page(found) if content is None else content, mode=0o644)
        except FileExistsError as error:
            raise ConfigError(f"there is a file at {path} already", hint="choose another name") from error
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        output.note(f"written: {path}")
    if out is None and html is None:
        output.line(text.rstrip())
    output.result(found)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="What `erase certificate --out` wrote.")],
    key: Annotated[str, typer.Option("--key", help="The verifier key that `erase keygen` printed.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check a certificate, offline: exit code 0 genuine, 1 not. No JVM."""
    from audit.erasure.evidence import certificate as certificates
    from audit.proof import ProofError

    output = Output("erase check", as_json, debug)
    verifier = _verifier(key)
    try:
        document = certificates.read_certificate(file.read_bytes())
        certificates.check(document, verifier)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except ProofError as error:
        output.line(f"NOT GENUINE: {error}")
        output.result({"genuine": False, "reason": str(error)}, exit_code=FAILED)
        raise typer.Exit(FAILED) from None
    output.line(f"genuine: {document['request']['id']}, {document['outcome']}, issued {document['issued_at']}")
    output.result({"genuine": True, "request": document["request"]["id"], "outcome": document["outcome"]})


_OTHER_KEY = "`--key` takes the verifier key that `erase keygen` printed for the key that signed it"


def _verifier(key: str) -> VerifierKey:
    from audit.proof import ProofError, VerifierKey

    try:
        return VerifierKey.parse(key)
    except ProofError:
        raise ConfigError("--key is no verifier key", hint="`deltarelay erase keygen` printed it") from None


def _some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")
