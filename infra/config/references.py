"""``${NAME}`` and ``${file:/run/secrets/name}`` in values, and the configuration as it may be printed.

They work in any text value and also as a part of one; ``$$`` is a plain ``$``. What is filled in is never searched
for further references.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel

from audit.files import is_accessible_to_others
from cdf.result import plain
from infra.config.models import Expanded, Project
from infra.config.problems import Path, Report
from infra.config.yaml_document import Document

__all__ = ["MASK", "describe", "expand"]

MASK = "***"

_REFERENCE = re.compile(r"\$(?:(?P<escape>\$)|\{(?P<name>[^{}]*)(?P<closed>\})?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST = 64 * 1024
_KEY = re.compile(r"\s*[A-Z]+\+KEY\+")
"""How a key of deltarelay begins. The rights of other secrets are not checked: Docker mounts them readable for all."""


def expand(
    document: Document, report: Report, *, environ: Mapping[str, str], folder: FilePath
) -> tuple[Any, frozenset[Path]]:
    """The document's data with every reference filled in, and the paths of the values where that failed."""
    filler = _Filler(document, report, environ, folder)
    return filler.walk(document.data, ()), frozenset(filler.failed)


def describe(project: Project) -> dict[str, Any]:
    """The effective configuration in the form of the file, with every secret as ``***``."""
    connections = {
        name: {"kind": connection.kind, **_shown(connection.settings)}
        for name, connection in project.connections.items()
    }
    pipelines = {
        name: {
            "source": _shown(pipeline.source),
            "sink": {"connection": pipeline.sink.connection, **_shown(pipeline.sink.options)},
            "window": _shown(pipeline.window),
        }
        for name, pipeline in project.pipelines.items()
    }
    return {
        "version": project.version,
        "storage": _shown(project.storage),
        "connections": connections,
        "pipelines": pipelines,
        "spark": _shown(project.spark),
        "jars": [str(jar) for jar in project.jars],
        **({} if project.erasure is None else {"erasure": _shown(project.erasure)}),
    }


def _shown(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {field.alias or name: _shown(getattr(value, name)) for name, field in type(value).model_fields.items()}
    if hasattr(value, "get_secret_value"):
        return MASK
    if isinstance(value, Mapping):
        return {str(key): _shown(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_shown(inner) for inner in value]
    # a moment has plain's form
    return str(value) if isinstance(value, FilePath) or type(value) is dt.date else plain(value)


class _Filler:
    def __init__(self, document: Document, report: Report, environ: Mapping[str, str], folder: FilePath) -> None:
        self.document = document
        self.report = report
        self.environ = environ
        self.folder = folder
        self.failed: set[Path] = set()

    def walk(self, data: Any, path: Path) -> Any:
        if isinstance(data, dict):
            return {key: self.walk(value, (*path, key)) for key, value in data.items()}
        if isinstance(data, list):
            return [self.walk(value, (*path, index)) for index, value in enumerate(data)]
        return self.fill(data, path) if isinstance(data, str) and "$" in data else data

    def fill(self, text: str, path: Path) -> str:
        is_filled = False

        def replace(found: re.Match[str]) -> str:
            nonlocal is_filled
            if found["escape"]:
                return "$"
            value, problem, hint = self.look_up(found)
            if problem is not None:
                self.failed.add(path)
                self.tell(found[0], path, problem, hint)
                return ""
            is_filled = True
            if value:
                self.report.hidden.add(value)
            return value

        filled = _REFERENCE.sub(replace, text)
        return Expanded(filled) if is_filled else filled

    def look_up(self, found: re.Match[str]) -> tuple[str, str | None, str | None]:
        name = found["name"]
        if found["closed"] and name.startswith("file:"):
            return self.read(name.removeprefix("file:"))
        if found["closed"] and _VARIABLE.fullmatch(name):
            if name in self.environ:
                return self.environ[name], None, None
            hint = "set every missing variable in the environment, or write $$ for a plain $"
            return "", f"the environment variable {name} is not set", hint
        # the text between the braces is not repeated: it may be a piece of a password
        problem = "a reference must be ${NAME} or ${file:/path}; defaults are not supported"
        return "", problem, "write $$ for a plain $"

    def read(self, name: str) -> tuple[str, str | None, str | None]:
        hint = "create the secret file and let this user read it, or write $$ for a plain $"
        if not name.strip():
            return "", "the reference ${file:} names no file", hint
        try:
            with (self.folder / name).open("rb") as file:
                content = file.read(_LARGEST + 1)
                others = is_accessible_to_others(os.fstat(file.fileno()))
            if len(content) > _LARGEST:
                return "", f"the secret file {name} is larger than 64 KiB", "name the file that holds only the secret"
            text = content.decode("utf-8-sig")
            if others and _KEY.match(text):
                return "", f"others than its owner can use the key file {name}", f"chmod 600 {self.folder / name}"
        except OSError as error:
            return "", f"the secret file {name} cannot be read ({(error.strerror or 'failed').lower()})", hint
        except ValueError:
            return "", f"the secret file {name} is not UTF-8 text", "write the secret as UTF-8 text"
        return text.removesuffix("\n").removesuffix("\r"), None, None

    def tell(self, reference: str, path: Path, problem: str, hint: str | None) -> None:
        span = self.document.place(path)
        at = self.document.text.find(reference, span.start, span.end)
        if at < 0:  # written with escapes or over several lines
            self.report.add(span.line, span.column, path, problem, hint=hint)
            return
        before = self.document.text[span.start : at]
        line_breaks = before.count("\n")
        column = len(before) - before.rfind("\n") if line_breaks else span.column + len(before)
        self.report.add(span.line + line_breaks, column, path, problem, hint=hint)
