"""From a configuration file to a ``Project``, or to one error that lists every mistake with its line and column."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.config.expand_tables import ListSchema
from infra.config.file.former_names import FormerName, log_former_names, replace_former_names
from infra.config.file.problems import Report
from infra.config.file.references import expand_references
from infra.config.file.yaml_document import parse_document
from infra.config.models import Project
from infra.config.validate import Check

__all__ = ["PartialCheck", "check_without_secrets", "load"]

_MAX_BYTES = 256 * 1024
_NAME_A_FILE = "name the file with --config, or create one with `deltarelay init`"


def load(
    path: str | Path,
    *,
    environ: Mapping[str, str] | None = None,
    look_for_tables: bool = True,
    list_schema: ListSchema | None = None,
) -> Project:
    """Read and check a configuration file. References to variables are taken from ``environ`` (default: the process's).

    Every ``tables:`` becomes one pipeline for each table that the pattern matches now; for S3 its folder is listed, and
    SourceUnavailable is raised where S3 does not answer. Without ``look_for_tables`` only the file itself is read, and such
    a pipeline has the pattern as its table: for commands that need the settings only. ``list_schema`` lists the tables of a
    catalog schema, with Spark; without it such a pipeline has the pattern as its table as well.

    Settings that the file writes by a former name are logged as warnings, and listed in ``Project.former_names``.
    """
    project, report, former_names = _check(path, environ, look_for_tables=look_for_tables, list_schema=list_schema)
    if project is None:
        raise report.fail("is not valid", hint="compare it with docs/reference/deltarelay.schema.json")
    return project.with_former_names(former_names)


@dataclass(frozen=True, slots=True)
class PartialCheck:
    """A file without mistakes, as far as that can be seen without its variables and secret files."""

    project: Project | None
    """Values with an unset reference contain it as text; None: one of them must have another form, such as a number."""
    unset: tuple[str, ...]
    """The references that were not replaced, such as ``${WAREHOUSE_DSN}``, each once."""


def check_without_secrets(path: str | Path, *, environ: Mapping[str, str] | None = None) -> PartialCheck:
    """Check a configuration file where its variables need not be set and its secret files need not exist.

    Tables of a pattern are not listed. Raises one ConfigError for all other mistakes, as ``load`` does.
    """
    unset: list[str] = []
    project, _, _ = _check(path, environ, look_for_tables=False, unset=unset)
    return PartialCheck(project, tuple(dict.fromkeys(unset)))


def _check(
    path: str | Path,
    environ: Mapping[str, str] | None,
    *,
    look_for_tables: bool,
    list_schema: ListSchema | None = None,
    unset: list[str] | None = None,
) -> tuple[Project | None, Report, list[FormerName]]:
    file = Path(path)
    report = Report(str(path))
    document = parse_document(_read_text(file, report), report)
    if document.data is None:
        raise report.fail("is empty", hint="create an example with `deltarelay init`")
    if not isinstance(document.data, dict):
        raise report.fail("must be a mapping, `name: value` per line", hint="start with `version: 1`")
    former_names = replace_former_names(document, report)
    log_former_names(former_names)
    folder = Path(os.path.abspath(file)).parent  # noqa: PTH100  links are not resolved: they may change between two runs
    environ = os.environ if environ is None else environ
    data, failed = expand_references(document, report, environ=environ, folder=folder, unset=unset)
    check = Check(document, report, data, failed, folder)
    project = check.check_project(look_for_tables=look_for_tables, list_schema=list_schema)
    report.raise_if_any()
    return project, report, former_names


def _read_text(file: Path, report: Report) -> str:
    try:
        with file.open("rb") as handle:
            content = handle.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise report.fail("the file does not exist", hint=_NAME_A_FILE) from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise report.fail(f"cannot be read ({reason})", hint=_NAME_A_FILE) from error
    if len(content) > _MAX_BYTES:
        raise report.fail("is larger than 256 KiB, the limit for a configuration file", hint=_NAME_A_FILE)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"line {line}: is not UTF-8 text"
    raise report.fail(message, hint="save the file as UTF-8")
