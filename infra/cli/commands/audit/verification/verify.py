"""``deltarelay audit verify``: recomputes every hash of trails, and checks their signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cdf.errors import ConfigError
from cdf.result import Result
from infra.cli.commands.audit.options import Checkpoints, Origin, StateFolder, read_checkpoints
from infra.cli.commands.audit.trails import process_trails
from infra.cli.commands.audit.verification.summary import print_verification, report_unreachable_anchors
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.diagnostics.verified_state import VerifiedStateFile
from infra.output import Output

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.verification import VerifiedState

__all__ = ["verify"]

Level = Literal["quick", "full"]


def verify(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    level: Annotated[
        Level, typer.Option("--level", help="quick: only what was added since the last verification. full: everything.")
    ] = "full",
    anchor: Checkpoints = None,
    origin: Origin = None,
    state: StateFolder = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Recompute every hash of the trails, up to their signed checkpoints, and report every altered, missing or added record.

    Exit code 0: intact. 3: something was altered, removed, added or is not signed; each finding names the place. 1: the
    verification failed, or an anchor could not be read; with several trails, 3 takes precedence over 1. The verified state
    is stored; the next verification checks that the trail continues it.
    """
    from audit.verification import NOT_COVERED

    output = Output("audit verify", as_json, debug)
    checkpoints = read_checkpoints(anchor)
    by_trail: dict[str, list[tuple[str, str]]] = {}
    verified: list[tuple[VerifiedStateFile, VerifiedState]] = []

    def assign_checkpoints(trails: Mapping[str, Trail]) -> None:
        if origin is not None and len(trails) > 1:
            raise ConfigError("--origin needs a single trail, and there are several", hint="name its pipeline with -p")
        by_trail.update(_assign_checkpoints(checkpoints, trails))

    def verify_trail(name: str, trail: Trail) -> tuple[Result, int]:
        stored = VerifiedStateFile(state, trail.path)
        known = stored.read()
        if level == "quick" and known is None:
            output.note(f"{name}: not verified before, so everything is checked")
        found, now = trail.verify(
            since=known if level == "quick" else None,
            before=known,
            extra=by_trail[name],
            origin=origin,
            progress=lambda step: output.note(f"{name}: checking the {step} …"),
        )
        if now is not None:
            verified.append((stored, now))
        print_verification(output, name, found)
        stored.report_replaced_trail(name, known, found, output)
        return found, report_unreachable_anchors(output, name, found)

    def finish() -> None:
        output.line("no verification can detect:")
        for gap in NOT_COVERED:
            output.line(f"  {gap}")
        for stored, now in verified:
            stored.write(now.to_json(), output)

    process_trails(output, config, pipeline, verify_trail, before=assign_checkpoints, after=finish)


def _assign_checkpoints(
    checkpoints: Sequence[tuple[str, str]], trails: Mapping[str, Trail]
) -> dict[str, list[tuple[str, str]]]:
    """Assign each checkpoint file to the trail that it names; a single trail gets all files."""
    if len(trails) == 1:
        return {name: list(checkpoints) for name in trails}
    origins = {name: trail.tables.origin() for name, trail in trails.items() if checkpoints and trail.tables.exist()}
    assigned = {
        name: [checkpoint for checkpoint in checkpoints if checkpoint[1].startswith(f"{origins.get(name)}\n")]
        for name in trails
    }
    for checkpoint in checkpoints:
        if not any(checkpoint in of_trail for of_trail in assigned.values()):
            raise ConfigError(
                f"the checkpoint {checkpoint[0]} belongs to none of these trails",
                hint="use -p to name the pipeline with whose trail deltarelay compares the checkpoint",
            )
    return assigned
