"""``deltarelay audit reconcile``: each trail held against the source that it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.result import Result
from infra.cli.commands.audit.common import each_trail, loaded
from infra.cli.output import DIFFERENCE, DONE, FAILED, Output, counted
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, build_pipeline

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.reconciliation.comparison import Reconciled

__all__ = ["reconcile"]


def reconcile(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Compare each trail with its source's change feed: versions, counts, rows, and the files of the source's log.

    Exit code 0: equal, as far as the source can still tell. 3: a version is missing, doubled, added or not the same, or the
    source's log was rewritten. 1: nothing could be compared. What was left out is listed, with the reason.
    """
    from audit.reconciliation import comparison as engine

    output = Output("audit reconcile", as_json, debug)
    project = loaded(config)

    def work(name: str, trail: Trail) -> tuple[Result, int]:
        found = engine.reconcile(
            trail,
            build_pipeline(project, name, trail.tables.spark),
            progress=lambda done, of: output.note(f"{name}: compared {done} of {of} versions …"),
        )
        _show(output, name, found)
        return found, FAILED if found.equal is None else DONE if found.equal else DIFFERENCE

    each_trail(output, config, pipeline, work)


def _show(output: Output, name: str, found: Reconciled) -> None:
    compared = f"{found.versions} versions compared, {found.rows} changes"
    if found.baseline_rows is not None:
        compared += f", {found.baseline_rows} rows of the baseline"
    compared += f"; {found.pins} files of the source's log are as they were ({found.seconds:.1f} s)"
    if found.equal is None:
        output.line(f"{name}: NOT COMPARED: the source can tell of no change that is in the trail; {compared}")
    elif found.equal:
        output.line(f"{name}: equal to the source: {compared}")
    else:
        more = " and more" if found.more_mismatches else ""
        output.line(f"{name}: DIFFERENT from the source: {counted(len(found.mismatches), 'finding')}{more}; {compared}")
    for one in found.mismatches:
        output.line(f"  {one.fault}: " + ("" if one.version is None else f"version {one.version}: ") + one.text)
    for left in found.not_compared:
        versions = f"version {left.first}" + ("" if left.first == left.last else f" to {left.last}")
        output.line(f"  not compared: {versions}: {left.text}")
