"""``deltarelay verify``: compares each target with its source at the target's position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.batch import process_pipelines
from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.cli.project import load_project, select_pipelines
from infra.monitoring.observers import observe
from infra.output import DIFFERENCE, DONE, Output, combine_exit_codes

if TYPE_CHECKING:
    from cdf import Pipeline, Verification

__all__ = ["print_verification", "verify"]


def verify(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Print differing keys in plain text instead of hashed.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare each target with its source at the target's position: counts, checksums, then the differing keys.

    Exit code 3: a difference was found. 1: a comparison was not possible.
    """
    output = Output("verify", as_json, debug)

    project = load_project(config)

    def verify_pipeline(current: Pipeline) -> tuple[Verification, int]:
        found = current.verify(show_keys=show_keys)
        print_verification(output, found)
        observers.record_verification(current.name, found)
        return found, DONE if found.equal else DIFFERENCE

    with observe(project, select_pipelines(project, pipeline)) as observers:
        results, codes = process_pipelines(output, project, pipeline, verify_pipeline)
    # A comparison that failed takes precedence over a difference that was found
    code = combine_exit_codes(code for code in codes if code != DIFFERENCE) or max(codes, default=DONE)
    output.finish({"pipelines": results}, code)


def print_verification(output: Output, found: Verification) -> None:
    if found.equal:
        output.line(
            f"{found.pipeline}: equal at version {found.version}, {found.target_rows} rows{_format_exceptions(found)} "
            f"({found.seconds:.1f} s)"
        )
        return
    least = "" if found.complete else "at least "
    output.line(
        f"{found.pipeline}: DIFFERENT at version {found.version}: {least}{found.missing} missing, "
        f"{least}{found.extra} extra, {least}{found.different} different "
        f"({found.source_rows} rows in the source, {found.target_rows} in the target{_format_exceptions(found)})"
    )
    if found.duplicate:
        output.line(
            f"  {least}{found.duplicate} keys are in the source more than once: the columns named as `key` do not identify "
            "a row there"
        )
    output.table(("difference", "key"), [(difference.kind, difference.key) for difference in found.examples])
    shown = len(found.examples)
    if shown < found.missing + found.extra + found.different + found.duplicate:
        output.line(f"  … and more; only the first {shown} are shown")


def _format_exceptions(found: Verification) -> str:
    """Describe the rows that the comparison leaves out because of the settings of the pipeline."""
    kept = f", {found.kept} of them kept although the source has deleted them" if found.kept else ""
    return kept + (f"; {found.set_aside} dead-lettered keys" if found.set_aside else "")
