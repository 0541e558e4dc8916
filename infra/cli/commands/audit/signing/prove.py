"""``deltarelay audit prove``: writes a proof of one event."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.cli.commands.audit.options import TrailPipeline
from infra.cli.commands.audit.trails import open_trail, translate_read_errors
from infra.cli.files import require_new, write_output
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json
from infra.cli.project import load_project
from infra.output import Output
from infra.runtime import spark_session
from infra.signals import raise_interrupt_on_signal

__all__ = ["prove"]


def prove(
    pipeline: TrailPipeline,
    version: Annotated[int, typer.Argument(help="The version of the source.")],
    index: Annotated[int, typer.Argument(help="The index of the event in that version; `audit history` shows both.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    show_row: Annotated[bool, typer.Option("--show-row", help="Include the row's values in the proof.")] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a proof of one event: a small text file that anyone can check offline with the verifier key."""
    output = Output("audit prove", as_json, debug)
    project = load_project(config)
    require_new(out)
    with spark_session(output, project), raise_interrupt_on_signal():
        trail = open_trail(project, pipeline)
        with translate_read_errors(trail):
            text = trail.prove(version, index, show_row=show_row)
    write_output(out, text, mode=0o600 if show_row else 0o644, what="the proof")
    output.line(f"{out}: event {index} of version {version}" + (", with the values of its row" if show_row else ""))
    output.line("check it with: deltarelay audit check --key VERIFIER_KEY " + str(out))
    output.result({"proof": str(out), "version": version, "index": index, "discloses_row": show_row})
