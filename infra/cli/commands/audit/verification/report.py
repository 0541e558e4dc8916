"""``deltarelay audit report``: writes a report on a trail for an auditor."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.files import write_new
from cdf.errors import ConfigError
from infra.cli.commands.audit.options import Checkpoints, Origin, StateFolder, TrailPipeline, read_checkpoints
from infra.cli.commands.audit.trails import open_trail
from infra.cli.commands.audit.verification.summary import report_unreachable_anchors
from infra.cli.files import require_folder
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_project
from infra.diagnostics.verified_state import VerifiedStateFile
from infra.output import Output, format_count
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

if TYPE_CHECKING:
    from audit.report import Report
    from infra.config.models import Project

__all__ = ["report"]

Format = Literal["html", "md", "json"]

_BY_SUFFIX: dict[str, Format] = {".md": "md", ".markdown": "md", ".json": "json"}


def report(
    pipeline: TrailPipeline,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; an existing file is replaced.")],
    format: Annotated[
        Format | None, typer.Option("--format", help="Default: according to the file name's extension, else html.")
    ] = None,
    anchor: Checkpoints = None,
    origin: Origin = None,
    state: StateFolder = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report for an auditor: scope, counts, actors, operations that can hide data, verification, checkpoints.

    The command verifies the whole trail, and checks that it continues the state that `audit verify` has stored. The report
    also explains how to check the trail independently, and shows no value of any row. Exit code 0: written, intact. 3:
    written, and the trail is not intact. 1: the report could not be made, or an anchor could not be read.
    """
    from audit.report import as_html, as_markdown, make_report

    output = Output("audit report", as_json, debug)
    require_folder(out, "the report")
    project = load_project(config)
    checkpoints = read_checkpoints(anchor)
    with spark_session(output, project), raise_interrupt_on_signal():
        trail = open_trail(project, pipeline)
        stored = VerifiedStateFile(state, trail.path)
        known = stored.read()
        facts = make_report(
            trail,
            pipeline=pipeline,
            source=project.pipeline(pipeline).source.table,
            keys=_verifier_keys(project, pipeline),
            before=known,
            extra=checkpoints,
            origin=origin,
            progress=lambda step: output.note(f"{pipeline}: checking the {step} …"),
        )
    chosen = format or _BY_SUFFIX.get(out.suffix.lower(), "html")
    _replace_file(out, {"html": as_html, "md": as_markdown, "json": _format_json}[chosen](facts))
    found = facts.verification
    findings = format_count(len(found.findings), "finding")
    output.line(f"{out}: " + ("intact" if found.intact else f"NOT INTACT: {findings}"))
    stored.report_replaced_trail(pipeline, known, found, output)
    code = report_unreachable_anchors(output, pipeline, found)
    output.finish(
        {
            "report": str(out),
            "format": chosen,
            "pipeline": pipeline,
            "intact": found.intact,
            "sealed_version": found.sealed_version,
            "findings": len(found.findings),
        },
        code,
    )


def _format_json(facts: Report) -> str:
    return json.dumps(facts.to_dict(), indent=2) + "\n"


def _verifier_keys(project: Project, pipeline: str) -> tuple[str, ...]:
    """Return the keys that verify the trail's checkpoints, the trail's own key first."""
    from audit.signing.signer import Signer
    from connectors.delta_audit.config import DeltaAuditConnection

    connection = project.connections[project.pipeline(pipeline).sink.connection].settings
    assert isinstance(connection, DeltaAuditConnection)
    own = connection.signing_key
    return (*(() if own is None else (str(Signer.parse(own.get_secret_value()).verifier),)), *connection.keys)


def _replace_file(path: Path, text: str) -> None:
    """Write the whole file or nothing."""
    temporary = path.with_name(
        f".{path.name}.{uuid.uuid4().hex}"
    )  # a random name: no other user can place a link there
    try:
        write_new(temporary, text, mode=0o644)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"the report cannot be written to {path}: {error.strerror}") from error
