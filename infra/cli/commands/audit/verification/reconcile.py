"""``deltarelay audit reconcile``: compares each trail with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdf.result import Result
from infra.cli.commands.audit.trails import process_trails
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.cli.project import load_project
from infra.output import DIFFERENCE, DONE, FAILED, Output, format_count
from infra.runtime import build_pipeline

if TYPE_CHECKING:
    from audit.audit_trail import Trail
    from audit.reconciliation.results import Reconciled

__all__ = ["reconcile"]


def reconcile(
    config: Config = DEFAULT_CONFIG, pipeline: Pipelines = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Compare each trail with its source's change feed: versions, counts, rows, and the files of the source's log.

    Exit code 0: equal, for all versions that the source still has. 3: a version is missing, duplicated, added or different,
    or the source's log was rewritten. 1: nothing could be compared. Versions that were not compared are listed with the
    reason.
    """
    from audit.reconciliation.comparison import reconcile as compare_with_source

    output = Output("audit reconcile", as_json, debug)
    project = load_project(config)

    def reconcile_trail(name: str, trail: Trail) -> tuple[Result, int]:
        found = compare_with_source(
            trail,
            build_pipeline(project, name, trail.tables.spark),
            progress=lambda done, of: output.note(f"{name}: compared {done} of {of} versions …"),
        )
        _print_comparison(output, name, found)
        return found, FAILED if found.equal is None else DONE if found.equal else DIFFERENCE

    process_trails(output, config, pipeline, reconcile_trail)


def _print_comparison(output: Output, name: str, found: Reconciled) -> None:
    compared = f"{found.versions} versions compared, {found.rows} changes"
    if found.baseline_rows is not None:
        compared += f", {found.baseline_rows} rows of the baseline"
    compared += f"; {found.pins} files of the source's log are unchanged ({found.seconds:.1f} s)"
    if found.equal is None:
        output.line(f"{name}: NOT COMPARED: the source no longer has any change that is in the trail; {compared}")
    elif found.equal:
        output.line(f"{name}: equal to the source: {compared}")
    else:
        more = " and more" if found.more_mismatches else ""
        findings = format_count(len(found.mismatches), "finding")
        output.line(f"{name}: DIFFERENT from the source: {findings}{more}; {compared}")
    for mismatch in found.mismatches:
        version = "" if mismatch.version is None else f"version {mismatch.version}: "
        output.line(f"  {mismatch.fault}: {version}{mismatch.text}")
    for gap in found.not_compared:
        versions = f"version {gap.first}" if gap.first == gap.last else f"versions {gap.first} to {gap.last}"
        output.line(f"  not compared: {versions}: {gap.text}")
