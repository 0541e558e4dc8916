"""What the demo needs from its caller: a place to print, and sessions and pipelines of a project.

The demo does not import the command line; ``infra.cli.commands.setup.demo`` passes these in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from cdf import Pipeline, Step
    from infra.config.models import Project

__all__ = ["Runtime", "Screen", "format_step", "plain_text"]


class Screen(Protocol):
    """``line`` and ``table`` print results on stdout, ``note`` prints progress on stderr."""

    def line(self, text: str = "", *, style: str | None = None) -> None: ...

    def note(self, text: str, *, style: str | None = None) -> None: ...

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, numbers: Sequence[str] = ()) -> None: ...

    @property
    def progress_console(self) -> Console | None:
        """Where a spinner may be drawn; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Runtime:
    open_session: Callable[[Project], AbstractContextManager[SparkSession]]
    build_pipeline: Callable[[Project, str, SparkSession], Pipeline]


def format_step(step: Step) -> str:
    applied = step.applied
    versions = f"version {step.first}" if step.first == step.last else f"versions {step.first}..{step.last}"
    counts = f"{applied.inserts:>5,} inserts {applied.updates:>5,} updates {applied.deletes:>5,} deletes"
    if step.kind == "load":
        counts = f"{applied.inserts:>5,} rows copied{'':<24}"
    added = f"  +{len(applied.ddl)} column" if step.kind == "window" and applied.ddl else ""
    return f"  {versions:<16}{counts}{sum(applied.seconds.values()):>7.1f} s{added}"


def plain_text(text: str) -> Any:
    from rich.text import Text

    return Text(text)
