"""``deltarelay audit report``: what a trail holds and whether it is intact, for an auditor."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.files import write_new
from cdf.errors import ConfigError
from infra.cli.commands.audit.common import (
    Checkpoints,
    Kept,
    One,
    Origin,
    StateFolder,
    brought,
    loaded,
    trail_of,
    verdict,
)
from infra.cli.output import Output, counted
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.report import Report
    from infra.config.models import Project

__all__ = ["report"]

Format = Literal["html", "md", "json"]


def report(
    pipeline: One,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the report goes; a file that is there is replaced.")],
    format: Annotated[
        Format | None, typer.Option("--format", help="Left out: by the ending of the file's name, else html.")
    ] = None,
    anchor: Checkpoints = None,
    origin: Origin = None,
    state: StateFolder = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report for an auditor: scope, counts, actors, what can hide data, verification, checkpoints, how to check it.

    The trail is verified in full on the way, also as the continuation of what `audit verify` has kept. The report shows no
    value of any row. Exit code 0: written, intact. 3: written, and the trail is not intact. 1: it could not be made, or an
    anchor could not be asked.
    """
    from audit.report import as_html, as_markdown, make_report

    output = Output("audit report", as_json, debug)
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent} for the report", hint="make it, or name another one")
    project = loaded(config)
    extra = [(str(path), brought(path)) for path in anchor or ()]
    with spark_session(output, project), raise_interrupt_on_signal():
        trail = trail_of(project, pipeline)
        kept = Kept(state, trail.path)
        known = kept.read()
        made = make_report(
            trail,
            pipeline=pipeline,
            source=project.pipeline(pipeline).source.table,
            keys=_keys(project, pipeline),
            before=known,
            extra=extra,
            origin=origin,
            progress=lambda step: output.note(f"{pipeline}: looking at the {step} …"),
        )
    chosen = format or _BY_ENDING.get(out.suffix.lower(), "html")
    _write(out, {"html": as_html, "md": as_markdown, "json": _as_json}[chosen](made))
    found = made.verification
    output.line(f"{out}: " + ("intact" if found.intact else f"NOT INTACT: {counted(len(found.findings), 'finding')}"))
    kept.compare(pipeline, known, found, output)
    code = verdict(output, pipeline, found)
    output.result(
        {
            "report": str(out),
            "format": chosen,
            "pipeline": pipeline,
            "intact": found.intact,
            "sealed_version": found.sealed_version,
            "findings": len(found.findings),
        },
        exit_code=code,
    )
    raise typer.Exit(code)


_BY_ENDING: dict[str, Format] = {".md": "md", ".markdown": "md", ".json": "json"}


def _as_json(made: Report) -> str:
    return json.dumps(made.to_dict(), indent=2) + "\n"


def _keys(project: Project, pipeline: str) -> tuple[str, ...]:
    """Those that the trail's checkpoints are verified with, its own first."""
    from audit.signing.signer import Signer
    from connectors.delta_audit.config import DeltaAuditConnection

    connection = project.connections[project.pipeline(pipeline).sink.connection].settings
    assert isinstance(connection, DeltaAuditConnection)
    own = connection.signing_key
    return (*(() if own is None else (str(Signer.parse(own.get_secret_value()).verifier),)), *connection.keys)


def _write(out: Path, text: str) -> None:
    """All of it or nothing."""
    beside = out.with_name(f".{out.name}.{uuid.uuid4().hex}")  # a name that nobody has put a link at
    try:
        write_new(beside, text, mode=0o644)
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"the report cannot be written to {out}: {error.strerror}") from error
