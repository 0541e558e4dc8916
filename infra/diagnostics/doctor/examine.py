"""The checks in their order, and the input of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cdf.errors import CdfError
from cdf.result import Result
from infra.config.models import storage_of
from infra.diagnostics.delta_table import SourceTable, explain_spark_only, open_source
from infra.diagnostics.doctor import downloads, sources, targets
from infra.diagnostics.doctor import machine as machines
from infra.diagnostics.doctor import storage as storages
from infra.diagnostics.doctor.finding import Finding, failed, from_error, ok, run_check, skipped, warning
from infra.diagnostics.doctor.machine import Machine

if TYPE_CHECKING:
    from infra.config.models import Project

__all__ = ["Diagnosis", "run_all_checks"]


@dataclass(frozen=True, slots=True)
class Diagnosis(Result):
    findings: tuple[Finding, ...]
    failed: int
    warnings: int

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Diagnosis:
        states = [one.state for one in findings]
        return cls(tuple(findings), states.count("failed"), states.count("warning"))


def run_all_checks(
    machine: Machine, config: Path | None, wanted: Sequence[str] | None = None
) -> tuple[Project | None, list[Finding]]:
    """All findings except Spark's. ``config=None``: there is no file; checks that need one are left out."""
    project, about_config = _config(machine, config)
    conf: Mapping[str, str] = project.spark.settings() if project else {}
    given = project.jars if project else ()
    storage = storage_of(project)
    findings = [
        run_check("java", lambda: machines.check_java(machine)),
        run_check("python", lambda: machines.check_python(machine)),
        run_check("packages", lambda: machines.check_packages(machine)),
        run_check("jars", lambda: downloads.check_jars(machine, given, conf, storage)),
        run_check("maven", lambda: downloads.check_maven(machine, given, conf)),
        run_check("temporary_folder", lambda: machines.check_temporary_folder(machine)),
        run_check("disk", lambda: machines.check_disk(machine, conf)),
        about_config,
    ]
    if project is not None and storage is not None:
        findings += storages.check_storage(machine, project, config)
    if project is not None:
        names = [one for name in wanted for one in project.names_of(name)] if wanted else project.pipelines
        for name in names:  # an unknown name raises ConfigError
            findings += _pipeline(machine, project, name)
    return project, findings


def _config(machine: Machine, config: Path | None) -> tuple[Project | None, Finding]:
    from infra.config.load import load

    if config is None:
        text = "there is no deltarelay.yaml in this folder; sources and targets were not checked"
        return None, skipped("config", text, "create one with `deltarelay init TABLE`, or name one with --config")
    try:
        project = load(config, environ=machine.environment)
    except CdfError as error:
        fix = "correct the file; `deltarelay validate --schema` prints its JSON schema"
        return None, failed("config", error.message, error.hint or fix)
    count = len(project.pipelines)
    text = f"{config} is valid, with {count} pipeline{'' if count == 1 else 's'}"
    if project.former_names:
        fix = "write the new names: " + "; ".join(map(str, project.former_names))
        return project, warning("config", f"{text}; settings are written by former names", fix)
    return project, ok("config", text)


def _pipeline(machine: Machine, project: Project, name: str) -> Iterator[Finding]:
    settings = project.pipeline(name).source
    table: SourceTable | None = None
    unreadable: CdfError | None = None
    if explain_spark_only(settings.table) is None:
        try:
            table = open_source(settings.table, project.storage)
        except CdfError as error:
            unreadable = error
    if unreadable is not None:
        yield from_error("source", unreadable, pipeline=name)
    else:
        yield run_check(
            "source", lambda: sources.check_source(settings.table, settings.key, table, name=name), pipeline=name
        )
    yield run_check("retention", lambda: sources.check_retention(machine, project, name), pipeline=name)
    yield run_check("target", lambda: targets.check_target(project, name, table), pipeline=name)
    yield run_check("clock", lambda: targets.check_clock(machine, project, name), pipeline=name)
