"""``deltarelay audit anchors``: lists the published checkpoints of trails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.anchors.base import AnchorFailure
from cdf.result import Result
from infra.cli.commands.audit.trails import process_trails
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.output import DONE, Output

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.verification import FoundCheckpoint

__all__ = ["AnchoredCheckpoint", "TrailAnchors", "anchors"]


@dataclass(frozen=True, slots=True)
class AnchoredCheckpoint(Result):
    """``records`` and ``root`` are None if the stored text is not a checkpoint."""

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
class TrailAnchors(Result):
    pipeline: str
    checkpoints: tuple[AnchoredCheckpoint, ...]
    missed: tuple[AnchorFailure, ...]
    """Anchors that could not be read."""


def anchors(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """List the checkpoints that the anchors of each trail store."""
    output = Output("audit anchors", as_json, debug)

    def list_anchors(name: str, trail: Trail) -> tuple[Result, int]:
        seen, missed = trail.read_checkpoints()
        checkpoints = tuple(AnchoredCheckpoint.of(checkpoint) for checkpoint in seen)
        rows = [
            (
                name,
                checkpoint.anchor,
                checkpoint.records,
                None if checkpoint.root is None else checkpoint.root[:16],
                "yes" if checkpoint.signed else "NO",
            )
            for checkpoint in checkpoints
        ]
        if rows:
            output.table(("pipeline", "anchor", "records", "root", "signed"), rows, numbers=("records",))
        elif not trail.anchors:
            output.line(f"{name}: no anchors are configured, so its checkpoints are not published")
        elif not missed:
            output.line(f"{name}: its anchors store no checkpoint of this trail")
        code = max((output.failure(name, anchor.error) for anchor in missed), default=DONE)
        return TrailAnchors(name, checkpoints, tuple(missed)), code

    process_trails(output, config, pipeline, list_anchors)
