"""``deltarelay verify``: does the target hold what the source held at the target's position?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.batch import each_pipeline
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.output import DIFFERENCE, DONE, Output, overall

if TYPE_CHECKING:
    from cdf import Pipeline, Verification

__all__ = ["verify"]


def verify(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Print differing keys in clear instead of hashed.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare each target with its source at the target's position: counts, checksums, then the differing keys.

    Exit code 3 means that a difference was found; 1 that a comparison could not be made.
    """
    from infra.config.load import load

    output = Output("verify", as_json, debug)

    def work(one: Pipeline) -> tuple[Verification, int]:
        found = one.verify(show_keys=show_keys)
        _show(output, found)
        return found, DONE if found.equal else DIFFERENCE

    results, codes = each_pipeline(output, load(config), pipeline, work)
    # A comparison that could not be made weighs more than a difference that was found
    code = overall(code for code in codes if code != DIFFERENCE) or max(codes, default=DONE)
    output.result({"pipelines": results}, exit_code=code)
    raise typer.Exit(code)


def _show(output: Output, found: Verification) -> None:
    if found.equal:
        output.line(
            f"{found.pipeline}: equal at version {found.version}, {found.target_rows} rows{_besides(found)} "
            f"({found.seconds:.1f} s)"
        )
        return
    least = "" if found.complete else "at least "
    output.line(
        f"{found.pipeline}: DIFFERENT at version {found.version}: {least}{found.missing} missing, "
        f"{least}{found.extra} extra, {least}{found.different} different "
        f"({found.source_rows} rows in the source, {found.target_rows} in the target{_besides(found)})"
    )
    if found.duplicate:
        output.line(
            f"  {least}{found.duplicate} keys are in the source more than once: the columns named as `key` do not identify "
            "a row there"
        )
    output.table(("difference", "key"), [(one.kind, one.key) for one in found.examples])
    shown = len(found.examples)
    if shown < found.missing + found.extra + found.different + found.duplicate:
        output.line(f"  … and more; the first {shown} are shown")


def _besides(found: Verification) -> str:
    """What was left out of the comparison, as the pipeline is set to."""
    kept = f", {found.kept} of them kept although the source has deleted them" if found.kept else ""
    return kept + (f"; {found.set_aside} keys set aside" if found.set_aside else "")
