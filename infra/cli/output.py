"""What a person or a program gets to see: data on stdout, everything else on stderr.

With ``--json`` stdout holds exactly one document, whose form is a contract (``docs/reference/json.md``)::

    {"version": 1, "command": "run", "ok": true,  "exit_code": 0, "result": …}
    {"version": 1, "command": "run", "ok": false, "exit_code": 2, "error": {"code", "message", "hint", …}}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdf.errors import CdfError, ConfigError, SourceError
from cdf.result import plain
from infra import logs

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Output",
    "JSON_VERSION",
    "DONE",
    "FAILED",
    "USAGE",
    "DIFFERENCE",
    "TEMPORARY",
    "INTERRUPTED",
    "exit_code_of",
    "overall",
    "in_our_words",
    "counted",
    "no_formula",
]

JSON_VERSION = 1

DONE, FAILED, USAGE, DIFFERENCE, TEMPORARY, INTERRUPTED = 0, 1, 2, 3, 75, 130


def exit_code_of(error: CdfError) -> int:
    if isinstance(error, ConfigError):
        return USAGE
    return TEMPORARY if error.transient else FAILED


def overall(codes: Iterable[int]) -> int:
    """One exit code for several pipelines: 75 only where trying again is all that is needed."""
    bad = {code for code in codes if code != DONE}
    if len(bad) > 1:
        return FAILED
    return bad.pop() if bad else DONE


@dataclass(slots=True)
class Output:
    command: str
    as_json: bool = False
    debug: bool = False
    puzzled: bool = False
    """An error was told whose cause only Spark's log knows."""
    _consoles: dict[str, Console] = field(default_factory=dict)

    def note(self, text: str, *, style: str | None = None) -> None:
        """A line for whoever watches; never data. Where stderr is a log of JSON lines it is one of them."""
        if logs.is_json():
            logs.bind().info(text.strip())
            return
        self._console("err").print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def line(self, text: str = "", *, style: str | None = None) -> None:
        """A line of the answer, for people; nothing with --json."""
        if not self.as_json:
            self._console("out").print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def clear(self) -> None:
        """An empty screen, on a terminal."""
        if not self.as_json and self._console("out").is_terminal:
            self._console("out").clear()

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        title: str | None = None,
        numbers: Collection[str] = (),
    ) -> None:
        """Rows under their columns; ``numbers`` names those that are aligned to the right."""
        if self.as_json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        console = self._console("out")
        table = Table(
            title=title,
            title_justify="left",
            box=box.SIMPLE_HEAD if console.is_terminal else None,
            pad_edge=False,
            show_edge=False,
        )
        for column in columns:
            table.add_column(column, overflow="fold", justify="right" if column in numbers else "left")
        for row in rows:
            table.add_row(*(Text("-" if value is None else str(value)) for value in row))
        console.print(table)

    @property
    def width(self) -> int:
        """Characters in a line of the answer; no bound that matters where it goes into a pipe or a file."""
        return self._console("out").width

    def result(self, result: Any, *, exit_code: int = DONE) -> None:
        if self.as_json:
            self._document(exit_code, {"result": plain(result)})

    def error(self, error: CdfError, *, exit_code: int | None = None) -> int:
        """Say what is wrong and what helps; returns the exit code."""
        code = exit_code_of(error) if exit_code is None else exit_code
        if self.as_json:
            self._document(code, {"error": plain(error.to_dict())})
        self._tell(error)
        return code

    def failure(self, name: str, error: CdfError) -> int:
        """One pipeline of several failed and the others go on; returns the exit code that this one asks for."""
        self._tell(error, name)
        return exit_code_of(error)

    def _tell(self, error: CdfError, name: str | None = None) -> None:
        self.puzzled |= type(error).code in {CdfError.code, SourceError.code}
        if logs.is_json():
            logs.bind(**({"pipeline": name} if name else {})).error("failed", exc_info=error)
            return
        for line in error_lines(error):
            self.note(f"{name}: {line}" if name else line)
        if self.debug:
            import traceback

            traceback.print_exception(error, file=sys.stderr)

    def _document(self, exit_code: int, content: dict[str, Any]) -> None:
        ok = exit_code == DONE
        document = {"version": JSON_VERSION, "command": self.command, "ok": ok, "exit_code": exit_code, **content}
        print(json.dumps(document, ensure_ascii=False, indent=2))

    def _console(self, stream: str) -> Console:
        from rich.console import Console

        if stream not in self._consoles:
            console = Console(stderr=stream == "err")
            if not console.is_terminal:
                # A pipe has no width: no value may be cut or wrapped there
                console.width = 10_000
            self._consoles[stream] = console
        return self._consoles[stream]

    @property
    def progress_console(self) -> Console | None:
        """Where a moving progress display may be drawn: a terminal, or None."""
        console = self._console("err")
        return console if console.is_terminal and not self.as_json and not logs.is_json() else None


def in_our_words(error: Exception) -> CdfError:
    """A CdfError as it is; anything else as what it is for a user: a fault of ours, with its trace behind --debug."""
    if isinstance(error, CdfError):
        return error
    unforeseen = CdfError(f"something unforeseen happened ({type(error).__name__})", hint="run again with --debug")
    unforeseen.__cause__ = error
    return unforeseen


def no_formula(text: str) -> str:
    """For CSV: a spreadsheet computes a text that begins like a formula, so that such a text begins with ' instead."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") else text


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def error_lines(error: CdfError) -> list[str]:
    lines = [f"error: {error.message}"]
    if error.hint:
        lines.append(f"  help: {error.hint}")
    condition = f" ({error.condition})" if error.condition else ""
    lines.append(f"  code: {error.code}{condition}")
    return lines
