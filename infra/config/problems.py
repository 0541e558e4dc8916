"""Everything that is wrong with a file, collected and told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cdf.errors import ConfigError

__all__ = ["Path", "Problem", "Report", "spell"]

Path = tuple[str | int, ...]
"""Where something stands: keys and list indexes from the top of the file."""

_LISTED = 50
_SHORTEST_SECRET = 6  # blotting out shorter values would only garble the words around them


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    line: int
    column: int
    path: str
    message: str
    hint: str | None = None
    """The setting or command that helps, where the message does not name it already."""


def spell(path: Path) -> str:
    """A path as people write it: ``pipelines.customers.source.key[0]``."""
    words = ""
    for step in path:
        words += f"[{step}]" if isinstance(step, int) else f".{step}" if words else step
    return words


@dataclass
class Report:
    """The problems of one file. ``hidden`` holds values that no message may contain."""

    file: str
    quote: Callable[[int], str | None] = lambda _line: None
    """One line of the file, fit to be shown."""
    hidden: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def add(self, line: int, column: int, path: Path, message: str, *, hint: str | None = None) -> None:
        found = Problem(line, column, spell(path), message, hint)
        if found not in self.problems[-_LISTED:]:
            self.problems.append(found)

    def fail(self, message: str, *, hint: str | None = None) -> ConfigError:
        """The error for a file that cannot be looked into at all."""
        return ConfigError(f"{self.file}: {message}", hint=hint, errors=[self._entry(Problem(1, 1, "", message))])

    def raise_if_any(self) -> None:
        """Raise one error that tells every problem, in the order of the file."""
        if not self.problems:
            return
        problems = sorted(
            (Problem(one.line, one.column, one.path, self._blot(one.message), one.hint) for one in self.problems),
            key=lambda one: (one.line, one.column, one.path),
        )
        blocks = [self._block(problem) for problem in problems[:_LISTED]]
        if len(problems) > _LISTED:
            blocks.append(f"... and {len(problems) - _LISTED} more")
        if len(problems) > 1:
            blocks.insert(0, f"{len(problems)} problems in {self.file}")
        raise ConfigError(
            "\n".join(blocks),
            hint="; ".join(_unique(one.hint for one in problems if one.hint)[:3]) or None,
            errors=[self._entry(problem) for problem in problems],
        )

    def _block(self, problem: Problem) -> str:
        where = f"{self.file}:{problem.line}:{problem.column}"
        text = ": ".join(part for part in (where, problem.path, problem.message) if part)
        quoted = self.quote(problem.line)
        return text if quoted is None else f"{text}\n    {self._blot(quoted)}"

    def _entry(self, problem: Problem) -> dict[str, object]:
        return {
            "file": self.file,
            "line": problem.line,
            "column": problem.column,
            "path": problem.path,
            "message": problem.message,
        }

    def _blot(self, text: str) -> str:
        # longest first: one secret may be a part of another
        for secret in sorted(self.hidden, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return text


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
