"""``${NAME}`` and ``${file:/run/secrets/name}`` in values.

A reference works in any text value and as a part of one; ``$$`` is a plain ``$``. Inserted text is never searched for
further references.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from audit.files import is_accessible_to_others
from infra.config.file.problems import Path, Report
from infra.config.file.yaml_document import Document

__all__ = ["Expanded", "expand_references"]

_REFERENCE = re.compile(r"\$(?:(?P<escape>\$)|\{(?P<name>[^{}]*)(?P<closed>\})?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_BYTES = 64 * 1024
_KEY = re.compile(r"\s*[A-Z]+\+KEY\+")
"""The beginning of a deltarelay key. The rights of other secret files are not checked: Docker mounts them world-readable."""


class Expanded(str):
    """Text that comes in part from the environment or a secret file."""


def expand_references(
    document: Document,
    report: Report,
    *,
    environ: Mapping[str, str],
    folder: FilePath,
    unset: list[str] | None = None,
) -> tuple[Any, frozenset[Path]]:
    """The document's data with every reference replaced, and the paths of the values where that failed.

    ``unset``: where given, a variable that is not set and a secret file that does not exist are no problem; the reference is
    added to it, and stays in the value as it is.
    """
    expander = _Expander(document, report, environ, folder, unset)
    return expander.expand(document.data, ()), frozenset(expander.failed)


class _Expander:
    def __init__(
        self,
        document: Document,
        report: Report,
        environ: Mapping[str, str],
        folder: FilePath,
        unset: list[str] | None,
    ) -> None:
        self.document = document
        self.unset = unset
        self.report = report
        self.environ = environ
        self.folder = folder
        self.failed: set[Path] = set()

    def expand(self, data: Any, path: Path) -> Any:
        if isinstance(data, dict):
            return {key: self.expand(value, (*path, key)) for key, value in data.items()}
        if isinstance(data, list):
            return [self.expand(value, (*path, index)) for index, value in enumerate(data)]
        return self.expand_text(data, path) if isinstance(data, str) and "$" in data else data

    def expand_text(self, text: str, path: Path) -> str:
        is_expanded = False

        def replace(found: re.Match[str]) -> str:
            nonlocal is_expanded
            if found["escape"]:
                return "$"
            if self.unset is not None and self.is_unset(found):
                self.failed.add(path)
                self.unset.append(found[0])
                return found[0]
            value, problem, hint = self.look_up(found)
            if problem is not None:
                self.failed.add(path)
                self.report_problem(found[0], path, problem, hint)
                return ""
            is_expanded = True
            if value:
                self.report.secrets.add(value)
            return value

        expanded = _REFERENCE.sub(replace, text)
        return Expanded(expanded) if is_expanded else expanded

    def is_unset(self, found: re.Match[str]) -> bool:
        """Whether the reference is correct, and what it refers to does not exist here."""
        name = found["name"]
        if not found["closed"]:
            return False
        if (file := name.removeprefix("file:")) != name:
            return bool(file.strip()) and not (self.folder / file).exists()
        return _VARIABLE.fullmatch(name) is not None and name not in self.environ

    def look_up(self, found: re.Match[str]) -> tuple[str, str | None, str | None]:
        """→ the value, a problem (None: no problem), a hint"""
        name = found["name"]
        if found["closed"] and name.startswith("file:"):
            return self.read_file(name.removeprefix("file:"))
        if found["closed"] and _VARIABLE.fullmatch(name):
            if name in self.environ:
                return self.environ[name], None, None
            hint = "set every missing variable in the environment, or write $$ for a plain $"
            return "", f"the environment variable {name} is not set", hint
        # the text between the braces is not repeated: it may be a piece of a password
        problem = "a reference must be ${NAME} or ${file:/path}; defaults are not supported"
        return "", problem, "write $$ for a plain $"

    def read_file(self, name: str) -> tuple[str, str | None, str | None]:
        hint = "create the secret file and make it readable for this user, or write $$ for a plain $"
        if not name.strip():
            return "", "the reference ${file:} names no file", hint
        try:
            with (self.folder / name).open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
                is_open = is_accessible_to_others(os.fstat(file.fileno()))
            if len(content) > _MAX_BYTES:
                problem = f"the secret file {name} is larger than 64 KiB"
                return "", problem, "name a file that contains only the secret"
            text = content.decode("utf-8-sig")
            if is_open and _KEY.match(text):
                return "", f"other users can access the key file {name}", f"chmod 600 {self.folder / name}"
        except OSError as error:
            return "", f"the secret file {name} cannot be read ({(error.strerror or 'failed').lower()})", hint
        except ValueError:
            return "", f"the secret file {name} is not UTF-8 text", "save the secret as UTF-8 text"
        return text.removesuffix("\n").removesuffix("\r"), None, None

    def report_problem(self, reference: str, path: Path, problem: str, hint: str | None) -> None:
        """At the position of the reference within the value."""
        span = self.document.locate(path)
        at = self.document.text.find(reference, span.start, span.end)
        if at < 0:  # written with escapes or over several lines
            self.report.add(span.line, span.column, path, problem, hint=hint)
            return
        before = self.document.text[span.start : at]
        line_breaks = before.count("\n")
        column = len(before) - before.rfind("\n") if line_breaks else span.column + len(before)
        self.report.add(span.line + line_breaks, column, path, problem, hint=hint)
