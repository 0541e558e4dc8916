"""``deltarelay audit checkpoint``: signs trails and publishes the checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cdf.result import Result
from infra.cli.commands.audit.trails import process_trails
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.output import DONE, Output, format_count

if TYPE_CHECKING:
    from audit.audit_trail import Trail

__all__ = ["checkpoint"]


def checkpoint(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="Sign even if the trail's last change was not made with the signing key; inspect the trail first.",
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Sign the current state of each trail, and publish the checkpoint at its anchors."""
    output = Output("audit checkpoint", as_json, debug)

    def sign_trail(name: str, trail: Trail) -> tuple[Result, int]:
        signed = trail.checkpoint(accept=accept)
        where = ", ".join(signed.anchors) or "no anchor: none is configured, so the checkpoint proves nothing to others"
        through = "no version yet" if signed.version is None else f"version {signed.version}"
        output.line(f"{name}: signed {format_count(signed.records, 'record')}, through {through}; published at {where}")
        return signed, max((output.failure(name, missed.error) for missed in signed.missed), default=DONE)

    process_trails(output, config, pipeline, sign_trail)
