"""Options that several commands of ``deltarelay audit`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdf.errors import ConfigError

__all__ = ["Checkpoints", "Origin", "StateFolder", "TrailPipeline", "read_checkpoints"]

TrailPipeline = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline that writes the trail.")]
Checkpoints = Annotated[
    list[Path] | None,
    typer.Option("--anchor", help="A file with a checkpoint that you have stored; can be repeated."),
]
Origin = Annotated[
    str | None, typer.Option("--origin", help="The expected identity of the trail, as its checkpoints name it.")
]
StateFolder = Annotated[
    Path | None,
    typer.Option(
        "--state", help="Folder where `audit verify` stores what it has verified; must be outside the trail's folder."
    ),
]


def read_checkpoints(paths: list[Path] | None) -> list[tuple[str, str]]:
    """Read the checkpoint files of ``--anchor``. → path and text of each"""
    return [(str(path), _read_checkpoint(path)) for path in paths or ()]


def _read_checkpoint(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the checkpoint {path} cannot be read", hint="`deltarelay audit checkpoint` publishes checkpoints"
        ) from error
