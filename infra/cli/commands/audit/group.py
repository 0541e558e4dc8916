"""``deltarelay audit``: trails signed, verified, proven and asked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.anchors.base import AnchorFailure
from audit.files import write_new
from cdf.errors import ConfigError
from cdf.result import Result
from infra.cli.commands.audit.common import (
    Checkpoints,
    Kept,
    One,
    Origin,
    StateFolder,
    brought,
    each_trail,
    loaded,
    reading,
    told,
    trail_of,
    verdict,
    visible,
)
from infra.cli.commands.audit.encrypt import seal
from infra.cli.commands.audit.optimize import optimize
from infra.cli.commands.audit.questions import QUESTIONS
from infra.cli.commands.audit.reconcile import reconcile
from infra.cli.commands.audit.report import report
from infra.cli.output import DONE, FAILED, Output, counted
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, spark_session
from infra.signals import ctrl_c_counts

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.verification import FoundCheckpoint, TrailVerification, VerifiedState

__all__ = ["Anchored", "AnchoredCheckpoint", "KeyMade", "app"]

app = typer.Typer(help="Sign, verify, prove and ask the audit trails.", no_args_is_help=True)
for _name, _question in QUESTIONS.items():
    app.command(_name)(_question)
app.command("reconcile")(reconcile)
app.command("optimize")(optimize)
app.command("report")(report)
app.command("seal")(seal)

Level = Literal["quick", "full"]


@dataclass(frozen=True, slots=True)
class KeyMade(Result):
    key_file: str
    verifier_key: str


# ── keys and proofs: no configuration, no Spark ──────────────────────────────────────────────────────────────────────


@app.command()
def keygen(
    name: Annotated[str, typer.Argument(help="Whose key it is, best like an address: example.org/trail.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the private key goes; a file that is there is kept.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a signing key, and print the verifier key that belongs to it. No JVM."""
    from audit.signing.signer import Signer

    output = Output("audit keygen", as_json, debug)
    signer = Signer.generate(name)
    signer.write(out)
    made = KeyMade(str(out), str(signer.verifier))
    output.line(f"private key   {out}  (only you can read it; whoever has it can sign in this name)")
    output.line(f"verifier key  {made.verifier_key}  (for everybody)")
    output.result(made)


@app.command()
def check(
    proof: Annotated[Path, typer.Argument(help="The file that `audit prove` wrote.")],
    key: Annotated[list[str], typer.Option("--key", help="The trail's verifier key; may be given several times.")],
    origin: Annotated[str | None, typer.Option("--origin", help="The trail that it has to be.")] = None,
    show_row: Annotated[
        bool, typer.Option("--show-row", help="Print the row's values, where the proof has them.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check a proof, offline: exit code 0 proven, 1 not. The same as `python -m audit.proof`. No JVM."""
    from audit import proof as proofs

    output = Output("audit check", as_json, debug)
    try:
        proven = proofs.report(proofs.check(proof.read_bytes(), key, origin=origin), show_row=show_row)
    except OSError as error:
        raise ConfigError(
            f"{proof} cannot be read: {error.strerror}", hint="`deltarelay audit prove` writes one"
        ) from None
    except proofs.ProofError as error:
        if error.step == "key":
            raise ConfigError(f"--key {error}", hint="`deltarelay audit keygen` printed it") from None
        output.line(f"NOT PROVEN ({error.step}): {error}")
        output.result({"proven": False, "step": error.step, "reason": str(error)}, exit_code=FAILED)
        raise typer.Exit(FAILED) from None
    output.line(proofs.as_text(proven))
    output.result(proven)


# ── of each trail ────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def checkpoint(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Also where nobody with the signing key left the trail as it is: after a look at it."
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Sign what each trail holds now, and publish it at its anchors."""
    output = Output("audit checkpoint", as_json, debug)

    def work(name: str, trail: Trail) -> tuple[Result, int]:
        sealed = trail.checkpoint(accept=accept)
        where = ", ".join(sealed.anchors) or "nowhere: no anchors are set, and it proves nothing to others"
        through = "no version yet" if sealed.version is None else f"version {sealed.version}"
        output.line(f"{name}: signed {counted(sealed.records, 'record')}, through {through}; published at {where}")
        return sealed, max((output.failure(name, one.error) for one in sealed.missed), default=DONE)

    each_trail(output, config, pipeline, work)


@app.command()
def verify(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    level: Annotated[
        Level, typer.Option("--level", help="quick: what is new since the last verification. full: everything.")
    ] = "full",
    anchor: Checkpoints = None,
    origin: Origin = None,
    state: StateFolder = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compute every hash of the trails anew, up to their signed checkpoints, and name what is not what it was.

    Exit code 0: intact. 3: something was altered, removed, added or is not signed; each finding says where. 1: it could
    not be verified, or an anchor could not be asked; of several trails 3 counts before 1. What was found intact is kept for
    the next verification, which has to find its continuation.
    """
    from audit.verification import NOT_COVERED

    output = Output("audit verify", as_json, debug)
    extra = [(str(path), brought(path)) for path in anchor or ()]
    of_trail: dict[str, list[tuple[str, str]]] = {}
    verified: list[tuple[Kept, VerifiedState]] = []

    def before(trails: Mapping[str, Trail]) -> None:
        if origin is not None and len(trails) > 1:
            raise ConfigError("--origin is of one trail, and there are several", hint="name its pipeline with -p")
        of_trail.update(_shared(extra, trails))

    def work(name: str, trail: Trail) -> tuple[Result, int]:
        kept = Kept(state, trail.path)
        known = kept.read()
        if level == "quick" and known is None:
            output.note(f"{name}: not verified before: looking at everything")
        found, now = trail.verify(
            since=known if level == "quick" else None,
            before=known,
            extra=of_trail[name],
            origin=origin,
            progress=lambda step: output.note(f"{name}: looking at the {step} …"),
        )
        if now is not None:
            verified.append((kept, now))
        _show(output, name, found)
        kept.compare(name, known, found, output)
        return found, verdict(output, name, found)

    def after() -> None:
        output.line("no verification can see:")
        for gap in NOT_COVERED:
            output.line(f"  {gap}")
        for kept, now in verified:
            kept.write(now.to_json(), output)

    each_trail(output, config, pipeline, work, before=before, after=after)


def _shared(extra: Sequence[tuple[str, str]], trails: Mapping[str, Trail]) -> dict[str, list[tuple[str, str]]]:
    """Each checkpoint to the trail that it is of; where there is one trail alone it gets all."""
    if len(trails) == 1:
        return {name: list(extra) for name in trails}
    origins = {name: trail.tables.origin() for name, trail in trails.items() if extra and trail.tables.exist()}
    shared = {name: [one for one in extra if one[1].startswith(f"{origins.get(name)}\n")] for name in trails}
    for where, note in extra:
        if not any((where, note) in ones for ones in shared.values()):
            raise ConfigError(
                f"the checkpoint {where} is of none of these trails",
                hint="name with -p the pipeline whose trail it is to be held against",
            )
    return shared


def _show(output: Output, name: str, found: TrailVerification) -> None:
    from audit.verification import NOT_COVERED

    last = f"version {found.last_version} ({told(found.last_committed_at)})"
    sealed = f"sealed through version {found.sealed_version} ({told(found.sealed_committed_at)})"
    if found.sealed_version is None:
        sealed = "not sealed by any checkpoint that was had"
    if not found.intact:
        more = " and more" if found.more_findings else ""
        output.line(f"{name}: NOT INTACT: {counted(len(found.findings), 'finding')}{more}")
        for finding in found.findings:
            output.line(f"  {finding.kind}: {visible(finding.text)}")
        _lead(output, name, found)
        output.line(f"  its ledger by itself is {sealed}")
    elif found.last_version is None:
        output.line(f"{name}: the trail is empty")
    elif found.sealed_version == found.last_version:
        output.line(f"{name}: intact and sealed through {last}")
    else:
        output.line(f"{name}: intact through {last}, {sealed}")
    seen = (
        f"{counted(found.records, 'record')}, {counted(found.events, 'event')}, "
        f"{counted(found.values, 'row')} of values and {counted(found.checkpoints, 'checkpoint')}"
    )
    new = " that came after what was verified before" if found.level == "quick" else ""
    output.line(f"  looked at {seen}{new} ({found.seconds:.1f} s)")
    if found.removed:
        output.line(f"  the values of {counted(found.removed, 'event')} were removed, as the ledger tells")
    if found.resealed:
        output.line(f"  those of {counted(found.resealed, 'event')} were sealed later, as the ledger tells")
    if found.unfinished:
        output.line(
            f"  the values of {counted(found.unfinished, 'event')}, which the last record removes, are there still: that is "
            "being done now, or it broke off, and the next run finishes it"
        )
    if found.unrecorded:
        output.line(
            f"  {counted(found.unrecorded, 'event')} not in the ledger yet: a window that is being written, or broke off"
        )
    for one in found.unreachable:
        output.line(f"  NOT COMPARED with what {one.anchor} keeps: it could not be asked")
    for gap in found.not_covered:
        if gap not in NOT_COVERED:  # that is said once, of all trails
            output.line(f"  not seen: {gap}")


def _lead(output: Output, name: str, found: TrailVerification) -> None:
    """To the rows of the first finding that has some."""
    for one in found.findings:
        if one.first is not None:
            index = f" --param index={one.first}" if one.first == one.last else ""
            command = f"deltarelay audit query events-of -p {shlex.quote(name)} --param version={one.version}{index}"
            output.line(f"  see what is there: {command}")
            return


@app.command()
def anchors(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """List the checkpoints that stand at the anchors of each trail."""
    output = Output("audit anchors", as_json, debug)

    def work(name: str, trail: Trail) -> tuple[Result, int]:
        seen, missed = trail.read_checkpoints()
        listed = tuple(AnchoredCheckpoint.of(one) for one in seen)
        rows = [
            (name, one.anchor, one.records, None if one.root is None else one.root[:16], "yes" if one.signed else "NO")
            for one in listed
        ]
        if rows:
            output.table(("pipeline", "anchor", "records", "root", "signed"), rows, numbers=("records",))
        elif not trail.anchors:
            output.line(f"{name}: no anchors are set: its checkpoints are kept nowhere")
        elif not missed:
            output.line(f"{name}: no checkpoint of this trail stands at its anchors")
        code = max((output.failure(name, one.error) for one in missed), default=DONE)
        return Anchored(name, listed, tuple(missed)), code

    each_trail(output, config, pipeline, work)


@dataclass(frozen=True, slots=True)
class AnchoredCheckpoint(Result):
    """``records`` and ``root`` are None where what stands there is no checkpoint."""

    anchor: str
    records: int | None
    root: str | None
    signed: bool

    @classmethod
    def of(cls, seen: FoundCheckpoint) -> AnchoredCheckpoint:
        if seen.checkpoint is None:
            return cls(seen.where, None, None, seen.signed)
        return cls(seen.where, seen.checkpoint.size, seen.checkpoint.root.hex(), seen.signed)


@dataclass(frozen=True, slots=True)
class Anchored(Result):
    pipeline: str
    checkpoints: tuple[AnchoredCheckpoint, ...]
    missed: tuple[AnchorFailure, ...]
    """Anchors that could not be asked."""


@app.command()
def prove(
    pipeline: One,
    version: Annotated[int, typer.Argument(help="The version of the source.")],
    index: Annotated[int, typer.Argument(help="The place of the event in it; `audit history` shows both.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the proof goes.")],
    show_row: Annotated[bool, typer.Option("--show-row", help="Disclose the row's values in the proof.")] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a proof of one event, a small text file that anybody can check offline with the verifier key."""
    output = Output("audit prove", as_json, debug)
    project = loaded(config)
    if os.path.lexists(out):
        raise _there_already(out)
    with spark_session(output, project), ctrl_c_counts():
        trail = trail_of(project, pipeline)
        with reading(trail):
            text = trail.prove(version, index, show_row=show_row)
    try:
        write_new(out, text, mode=0o600 if show_row else 0o644)
    except FileExistsError as error:
        raise _there_already(out) from error
    except OSError as error:
        raise ConfigError(f"the proof cannot be written to {out}: {error.strerror}") from error
    output.line(f"{out}: event {index} of version {version}" + (", with the values of its row" if show_row else ""))
    output.line("check it with: deltarelay audit check --key VERIFIER_KEY " + str(out))
    output.result({"proof": str(out), "version": version, "index": index, "discloses_row": show_row})


def _there_already(out: Path) -> ConfigError:
    return ConfigError(f"there is a file at {out} already", hint="choose another name for the proof")
