"""Everything that is wrong with a configuration file, collected and raised as one error.

A problem names the setting by its path, the place by ``file:line:column``, and what is wrong. No part of the file is
quoted: a line may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from cdf.errors import ConfigError

__all__ = ["Path", "Problem", "Report", "mask_key", "spell_path"]

Path = tuple[str | int, ...]
"""A setting: keys and list indexes from the top of the file."""

_MAX_LISTED = 50
_MIN_SECRET_LENGTH = 6  # masking shorter values would garble the words around them
_KEY_LIKE = re.compile(r"[\w.\-/ <]{1,80}")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    line: int
    column: int
    path: str
    message: str
    hint: str | None = None
    """The setting or command that helps, where the message does not name it."""


def spell_path(path: Path) -> str:
    """A path as people write it: ``pipelines.customers.source.key[0]``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def mask_key(key: str) -> str:
    """The key where it looks like a name, else ``***``: it may be a misplaced password."""
    return key if _KEY_LIKE.fullmatch(key) else "***"


@dataclass
class Report:
    """The problems of one file. ``secrets`` holds values that no message may contain."""

    file: str
    secrets: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def add(self, line: int, column: int, path: Path, message: str, *, hint: str | None = None) -> None:
        problem = Problem(line, column, spell_path(path), message, hint)
        if problem not in self.problems[-_MAX_LISTED:]:
            self.problems.append(problem)

    def fail(self, message: str, *, hint: str | None = None) -> ConfigError:
        """The error for a file that cannot be read any further."""
        return ConfigError(f"{self.file}: {message}", hint=hint, errors=[self._to_entry(Problem(1, 1, "", message))])

    def raise_if_any(self) -> None:
        """Raise one error that lists every problem, in the order of the file."""
        if not self.problems:
            return
        problems = sorted(
            (Problem(one.line, one.column, one.path, self._mask(one.message), one.hint) for one in self.problems),
            key=lambda one: (one.line, one.column, one.path),
        )
        lines = [self._format(problem) for problem in problems[:_MAX_LISTED]]
        if len(problems) > _MAX_LISTED:
            lines.append(f"... and {len(problems) - _MAX_LISTED} more")
        if len(problems) > 1:
            lines.insert(0, f"{len(problems)} problems in {self.file}")
        raise ConfigError(
            "\n".join(lines),
            hint="; ".join(_unique(one.hint for one in problems if one.hint)[:3]) or None,
            errors=[self._to_entry(problem) for problem in problems],
        )

    def _format(self, problem: Problem) -> str:
        place = f"{self.file}:{problem.line}:{problem.column}"
        return ": ".join(part for part in (place, problem.path, problem.message) if part)

    def _to_entry(self, problem: Problem) -> dict[str, object]:
        return {
            "file": self.file,
            "line": problem.line,
            "column": problem.column,
            "path": problem.path,
            "message": problem.message,
        }

    def _mask(self, text: str) -> str:
        # longest first: one secret may be a part of another
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET_LENGTH:
                text = text.replace(secret, "***")
        return text


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
