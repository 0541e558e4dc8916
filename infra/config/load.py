"""From a file to a ``Project``, or to one error that tells every mistake with its line and column."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.config.models import Project
from infra.config.problems import Report
from infra.config.references import expand
from infra.config.source_excerpt import mask_syntax, quoter
from infra.config.validate import Check
from infra.config.yaml_document import parse

__all__ = ["load"]

_LARGEST = 256 * 1024
_EXAMPLE = "name the file with --config, or run `deltarelay init`, which writes one"


def load(path: str | Path, *, environ: Mapping[str, str] | None = None, look_for_tables: bool = True) -> Project:
    """Read and check a configuration file. References to variables are filled in from ``environ`` (default: ours).

    Every ``tables:`` becomes a pipeline for each table that it meets now; for S3 its folder is listed, and
    SourceUnavailable is raised where that does not answer. Without ``look_for_tables`` nothing outside of the file is looked
    at, and such a pipeline has the pattern for its table: for commands that ask for the settings only.
    """
    file = Path(path)
    report = Report(str(path))
    text = _read(file, report)
    report.quote = mask_syntax(text)
    document = parse(text, report)
    report.quote = quoter(document, document.data)
    if document.data is None:
        raise report.fail("is empty", hint="run `deltarelay init`, which writes an example")
    if not isinstance(document.data, dict):
        raise report.fail("must be a mapping, `name: value` per line", hint="start with `version: 1`")
    folder = Path(os.path.abspath(file)).parent  # noqa: PTH100  links stay: they may be moved between two runs
    data, failed = expand(document, report, environ=os.environ if environ is None else environ, folder=folder)
    project = Check(document, report, data, failed, folder).project(look_for_tables=look_for_tables)
    report.raise_if_any()
    if project is None:
        raise report.fail("is not valid", hint="compare it with docs/reference/deltarelay.schema.json")
    return project


def _read(file: Path, report: Report) -> str:
    try:
        with file.open("rb") as handle:
            content = handle.read(_LARGEST + 1)
    except FileNotFoundError:
        raise report.fail("there is no such file", hint=_EXAMPLE) from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise report.fail(f"cannot be read ({reason})", hint=_EXAMPLE) from error
    if len(content) > _LARGEST:
        raise report.fail("is larger than 256 KiB, too long for a configuration file", hint=_EXAMPLE)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = f"line {line}: is not UTF-8 text"
    raise report.fail(fault, hint="save the file as UTF-8")
