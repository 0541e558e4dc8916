"""``deltarelay doctor``: what is wrong with this machine and this configuration, and what helps. No JVM unless asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.output import DONE, FAILED, USAGE, Output, counted
from infra.cli.session import DEFAULT_CONFIG, Config, Debug, Json, Pipelines, spark_session

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.diagnostics.doctor import Finding

__all__ = ["doctor"]

_WORDS = {"ok": "ok", "warning": "warning", "failed": "FAILED", "skipped": "skipped"}
_STYLES = {"ok": None, "warning": "yellow", "failed": "bold red", "skipped": "dim"}


def doctor(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    spark: Annotated[bool, typer.Option("--spark", help="Also start a Spark session, and stop it again.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check machine, jars, configuration, sources and targets; say what helps. Writes nothing.

    Exit code 0: no check failed (warnings are fine), 1: one did, 2: the configuration file is wrong.
    """
    from infra.diagnostics.doctor import Diagnosis, Machine, run_all_checks

    output = Output("doctor", as_json, debug)
    file = None if config == DEFAULT_CONFIG and not config.exists() else config
    project, findings = run_all_checks(Machine(), file, pipeline)
    if spark:
        findings.append(_spark(output, project))
    diagnosis = Diagnosis.of(findings)
    _show(output, findings)
    wrong_file = any(one.check == "config" and one.state == "failed" for one in findings)
    code = USAGE if wrong_file else FAILED if diagnosis.failed else DONE
    counts = f"{diagnosis.failed} failed, {counted(diagnosis.warnings, 'warning')}"
    skipped = sum(one.state == "skipped" for one in findings)
    well = f"nothing wrong was found, {skipped} skipped" if skipped else "all well"
    output.line(f"{len(findings)} checks: " + (counts if diagnosis.failed or diagnosis.warnings else well))
    output.result(diagnosis, exit_code=code)
    raise typer.Exit(code)


def _spark(output: Output, project: Project | None) -> Finding:
    from infra.diagnostics.doctor.finding import ok, run_check

    def start() -> Finding:
        with spark_session(output, project) as session:
            return ok("spark", f"Spark {session.version} starts with Delta")

    return run_check("spark", start)


def _show(output: Output, findings: list[Finding]) -> None:
    """One line per check under each other, and what helps below it."""
    labels = [one.check.replace("_", " ") for one in findings]
    width = max(map(len, labels))
    indent = " " * (width + 10)
    for label, one in zip(labels, findings, strict=True):
        first, *more = one.found.splitlines() or [""]
        where = f"{one.pipeline}: " if one.pipeline else ""
        output.line(f"{_WORDS[one.state]:<8}{label:<{width}}  {where}{first}", style=_STYLES[one.state])
        for line in more:
            output.line(indent + line)
        if one.fix:
            output.line(f"{indent}fix: {one.fix}")
