"""``deltarelay doctor``: problems of this machine and this configuration, each with a fix. Starts no JVM by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import DEFAULT_CONFIG, Config, Debug, Json, Pipelines
from infra.output import DONE, FAILED, USAGE, Output, format_count
from infra.runtime import spark_session

if TYPE_CHECKING:
    from infra.config.models import Project
    from infra.diagnostics.doctor import Finding

__all__ = ["doctor"]

_LABELS = {"ok": "ok", "warning": "warning", "failed": "FAILED", "skipped": "skipped"}
_STYLES = {"ok": None, "warning": "yellow", "failed": "bold red", "skipped": "dim"}


def doctor(
    config: Config = DEFAULT_CONFIG,
    pipeline: Pipelines = None,
    spark: Annotated[bool, typer.Option("--spark", help="Also start a Spark session, and stop it again.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check this machine, the jars, the configuration, sources and targets; show how to fix problems. Writes nothing.

    Exit code 0: no check failed (there may be warnings). 1: a check failed. 2: the configuration file is invalid.
    """
    from infra.diagnostics.doctor import Diagnosis, Machine, run_all_checks

    output = Output("doctor", as_json, debug)
    file = None if config == DEFAULT_CONFIG and not config.exists() else config
    project, findings = run_all_checks(Machine(), file, pipeline)
    if spark:
        findings.append(_check_spark(output, project))
    diagnosis = Diagnosis.of(findings)
    _print_findings(output, findings)
    is_file_invalid = any(finding.check == "config" and finding.state == "failed" for finding in findings)
    code = USAGE if is_file_invalid else FAILED if diagnosis.failed else DONE
    counts = f"{diagnosis.failed} failed, {format_count(diagnosis.warnings, 'warning')}"
    skipped = sum(finding.state == "skipped" for finding in findings)
    no_problems = f"no problems found, {skipped} skipped" if skipped else "no problems found"
    output.line(f"{len(findings)} checks: " + (counts if diagnosis.failed or diagnosis.warnings else no_problems))
    output.finish(diagnosis, code)


def _check_spark(output: Output, project: Project | None) -> Finding:
    from infra.diagnostics.doctor.finding import ok, run_check

    def start() -> Finding:
        with spark_session(output, project) as session:
            return ok("spark", f"Spark {session.version} starts with Delta")

    return run_check("spark", start)


def _print_findings(output: Output, findings: list[Finding]) -> None:
    """Print one aligned line per check, and its fix below it."""
    labels = [finding.check.replace("_", " ") for finding in findings]
    width = max(map(len, labels))
    indent = " " * (width + 10)
    for label, finding in zip(labels, findings, strict=True):
        first, *more = finding.found.splitlines() or [""]
        prefix = f"{finding.pipeline}: " if finding.pipeline else ""
        output.line(f"{_LABELS[finding.state]:<8}{label:<{width}}  {prefix}{first}", style=_STYLES[finding.state])
        for line in more:
            output.line(indent + line)
        if finding.fix:
            output.line(f"{indent}fix: {finding.fix}")
