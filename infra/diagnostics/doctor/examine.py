"""The round: which checks there are, in which order, and what each is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cdf.errors import CdfError
from cdf.result import Result
from infra.config.models import storage_of
from infra.diagnostics.delta_table import SourceTable, open_source, spark_only
from infra.diagnostics.doctor import downloads, sources, targets
from infra.diagnostics.doctor import machine as machines
from infra.diagnostics.doctor import storage as storages
from infra.diagnostics.doctor.finding import Finding, failed, guarded, of_error, ok, skipped
from infra.diagnostics.doctor.machine import Machine

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["Diagnosis", "examine"]


@dataclass(frozen=True, slots=True)
class Diagnosis(Result):
    findings: tuple[Finding, ...]
    failed: int
    warnings: int

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Diagnosis:
        states = [one.state for one in findings]
        return cls(tuple(findings), states.count("failed"), states.count("warning"))


def examine(
    machine: Machine, config: Path | None, wanted: Sequence[str] | None = None
) -> tuple[Project | None, list[Finding]]:
    """Every finding but Spark's. ``config=None``: there is no file, and what needs one is left out."""
    project, about_config = _config(machine, config)
    conf: Mapping[str, str] = project.spark.settings() if project else {}
    given = project.jars if project else ()
    storage = storage_of(project)
    findings = [
        guarded("java", lambda: machines.java(machine)),
        guarded("python", lambda: machines.python(machine)),
        guarded("packages", lambda: machines.packages(machine)),
        guarded("jars", lambda: downloads.jars(machine, given, conf, storage)),
        guarded("maven", lambda: downloads.maven(machine, given, conf)),
        guarded("temporary_folder", lambda: machines.temporary_folder(machine)),
        guarded("disk", lambda: machines.disk(machine, conf)),
        about_config,
    ]
    if project is not None and storage is not None:
        findings += storages.storage(machine, project, config)
    if project is not None:
        names = [one for name in wanted for one in project.names_of(name)] if wanted else project.pipelines
        for name in names:  # one that was mistyped is a matter of the command line
            findings += _pipeline(machine, project, name)
    return project, findings


def _config(machine: Machine, config: Path | None) -> tuple[Project | None, Finding]:
    from infra.config.load import load

    if config is None:
        text = "there is no deltarelay.yaml here, so no source and no target was looked at"
        return None, skipped("config", text, "`deltarelay init TABLE` writes one, --config names another")
    try:
        project = load(config, environ=machine.environment)
    except CdfError as error:
        fix = "correct the file; `deltarelay validate --schema` prints what may stand in it"
        return None, failed("config", error.message, error.hint or fix)
    count = len(project.pipelines)
    return project, ok("config", f"{config} is valid, with {count} pipeline{'' if count == 1 else 's'}")


def _pipeline(machine: Machine, project: Project, name: str) -> Iterator[Finding]:
    settings = project.pipeline(name).source
    table: SourceTable | None = None
    unreadable: CdfError | None = None
    if spark_only(settings.table) is None:
        try:
            table = open_source(settings.table, project.storage)
        except CdfError as error:
            unreadable = error
    if unreadable is not None:
        yield of_error("source", unreadable, pipeline=name)
    else:
        yield guarded("source", lambda: sources.source(settings.table, settings.key, table, name=name), pipeline=name)
    yield guarded("retention", lambda: sources.retention(machine, project, name), pipeline=name)
    yield guarded("target", lambda: targets.target(project, name, table), pipeline=name)
    yield guarded("clock", lambda: targets.clock(machine, project, name), pipeline=name)
