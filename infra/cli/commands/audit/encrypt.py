"""``deltarelay audit seal``: rows from before a class of columns was named are sealed, under a record that tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from cdf.result import Result
from infra.cli.commands.audit.common import each_trail, loaded
from infra.cli.output import DIFFERENCE, DONE, Output, counted
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.reencryption.plaintext_rows import PlaintextRows

__all__ = ["SealedEarlier", "seal"]

Check = Annotated[
    bool, typer.Option("--check", help="Change nothing: tell which rows are not sealed, with exit code 3 if any are.")
]
Ticket = Annotated[str | None, typer.Option("--ticket", help="Why: it stands in the record for good.")]


@dataclass(frozen=True, slots=True)
class SealedEarlier(Result):
    rows: int
    """That were written before their class was named, as they were found."""
    first_version: int | None
    last_version: int | None
    classes: Mapping[str, int] = field(default_factory=dict)
    """Rows by class; one may be of several."""
    sealed: int = 0
    """Rows that are sealed now."""


def seal(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    check: Check = False,
    ticket: Ticket = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Seal the rows that a trail has from before a class was named, in `classes` of `erasure.tables`.

    Each is held against its event before, and verified by the record after. Their old files, which can be read, go with
    VACUUM once delta.deletedFileRetentionDuration of the payload is over, or with the next `erase run`. Without it no
    erasure begins: what a certificate tells of sealed columns would not hold.
    """
    output = Output("audit seal", as_json, debug)
    project = loaded(config)

    def work(name: str, _: Trail) -> tuple[Result, int]:
        from connectors.delta_audit.sink import DeltaAuditSink

        sink, source = project.build_sink(name), project.pipeline(name).source
        assert isinstance(sink, DeltaAuditSink)  # else there was no trail
        found = sink.unsealed()
        output.line(f"{name}: {_told(found)}")
        told = SealedEarlier(found.rows, found.first_version, found.last_version, found.classes)
        if not found.rows or check:
            return told, DIFFERENCE if found.rows else DONE

        def progress(done: int) -> None:
            output.note(f"{name}: {done:,} of {found.rows:,} rows sealed …")

        output.note(f"{name}: verifying the trail first …")
        reasons = {"purpose": "sealing", **({} if ticket is None else {"ticket": ticket})}
        sink.seal_earlier(source.table, tuple(source.key), reasons, progress=progress)
        output.line(f"{name}: sealed, under a record of the trail")
        return SealedEarlier(found.rows, found.first_version, found.last_version, found.classes, found.rows), DONE

    each_trail(output, config, pipeline, work)


def _told(found: PlaintextRows) -> str:
    if not found.rows:
        return "nothing is there from before a class was named"
    classes = ", ".join(f"{name} {count:,}" for name, count in found.classes.items())
    return (
        f"{counted(found.rows, 'row')} of version {found.first_version} to {found.last_version} from before a class was "
        f"named ({classes})"
    )
