"""The page of one pipeline: its recorded steps, failures, dead letters, position, and the commands that help."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdf.errors import CdfError
from cdf.listing import list_some
from cdf.sink import Controls, RunRecord, Standing
from infra.config.limits import Limits
from infra.monitoring.page.collector import Details, SeenPipeline
from infra.monitoring.page.graphics import Bar, build_bar, rows_per_second
from infra.monitoring.page.overview import Row, build_row

__all__ = ["PipelinePage", "Step", "build_pipeline_page"]

DEFAULT_CONFIG = Path("deltarelay.yaml")
MOST_CHANGES = 20
"""A commit may add hundreds of columns."""


@dataclass(frozen=True, slots=True)
class Step:
    run: RunRecord
    seconds: float
    rate: float | None
    bar: Bar | None
    """The seconds of each phase."""

    @property
    def versions(self) -> str:
        if self.run.first is None:
            return "-"
        return f"{self.run.first}" if self.run.first == self.run.last else f"{self.run.first}..{self.run.last}"


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    at: dt.datetime
    version: int | None
    text: str


@dataclass(frozen=True, slots=True)
class PipelinePage:
    row: Row
    target: str
    controls: Controls
    steps: tuple[Step, ...]
    failures: tuple[Step, ...]
    schema_changes: tuple[SchemaChanges, ...]
    mix: Bar | None
    """Net changes of the shown steps by kind."""
    dead_letters: tuple[tuple[str, str | None, str | None, int], ...]
    standing: Standing | None
    commands: tuple[tuple[str, str], ...]
    """Purpose and command; the page itself changes nothing."""
    details_error: CdfError | None
    is_read: bool
    """False: nothing but the status is known yet."""


def build_pipeline_page(
    seen: SeenPipeline,
    details: Details | None,
    error: CdfError | None,
    limits: Limits = Limits(),  # noqa: B008
    *,
    target: str,
    config: Path,
) -> PipelinePage:
    row = build_row(seen, limits)
    status = None if seen.reading is None else seen.reading.status
    controls = (None if status is None else status.controls) or Controls()
    known = details.runs if details is not None else () if seen.reading is None else seen.reading.runs
    runs = tuple(run for run in known if run.code is None)
    counted = {
        "inserts": sum(run.inserts or 0 for run in runs),
        "updates": sum(run.updates or 0 for run in runs),
        "deletes": sum(run.deletes or 0 for run in runs),
    }
    phases = sorted({phase for run in runs for phase in run.seconds})
    letters = {} if details is None else details.dead_letters
    return PipelinePage(
        row=row,
        target=target,
        controls=controls,
        steps=tuple(_build_step(run, phases) for run in runs),
        failures=() if details is None else tuple(_build_step(run, phases) for run in details.failures),
        schema_changes=() if details is None else tuple(map(_build_schema_changes, details.altering_runs)),
        mix=build_bar(counted, ""),
        dead_letters=tuple((*kind, number) for kind, number in sorted(letters.items(), key=lambda item: -item[1])),
        standing=None if details is None else details.standing,
        commands=tuple(_list_commands(row, controls, config, has_letters=bool(letters))),
        details_error=error,
        is_read=details is not None,
    )


def _build_step(run: RunRecord, phases: Sequence[str]) -> Step:
    seconds = {phase: run.seconds[phase] for phase in phases if phase in run.seconds}
    return Step(
        run,
        (run.ended_at - run.started_at).total_seconds(),
        rows_per_second(run),
        build_bar(seconds, " s", digits=2, names=phases),
    )


def _build_schema_changes(run: RunRecord) -> SchemaChanges:
    return SchemaChanges(run.ended_at, run.first, list_some(run.schema_changes, MOST_CHANGES))


def _list_commands(row: Row, controls: Controls, config: Path, *, has_letters: bool) -> Iterator[tuple[str, str]]:
    name = shlex.quote(row.name)
    rest = "" if config == DEFAULT_CONFIG else f" -c {shlex.quote(str(config))}"
    yield "Show what the next run would do", f"deltarelay plan -p {name}{rest}"
    if controls.paused is not None:
        yield "Continue after the pause", f"deltarelay resume {name}{rest}"
    else:
        yield "Pause", f"deltarelay pause {name} --reason 'WHY'{rest}"
    if (stop := controls.stopped) is not None:
        window = f"{stop.first}..{stop.last}"
        yield f"Let exactly the window {window} pass", f"deltarelay approve {name} --window {window} --by YOU{rest}"
    if has_letters:
        yield "List the dead letters", f"deltarelay deadletter list -p {name}{rest}"
        yield "Retry the dead letters", f"deltarelay deadletter replay -p {name}{rest}"
    yield "Compare the target with its source", f"deltarelay verify -p {name}{rest}"
    yield "Rebuild the target from a snapshot", f"deltarelay run --reload -p {name}{rest}"
