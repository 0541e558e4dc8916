"""What commands print: results on stdout, everything else on stderr; and the exit codes.

With ``--json`` stdout holds exactly one document, whose form is a contract (``docs/reference/json.md``)::

    {"version": 1, "command": "run", "ok": true,  "exit_code": 0, "result": …}
    {"version": 1, "command": "run", "ok": false, "exit_code": 2, "error": {"code", "message", "hint", …}}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from cdf.errors import BrakeStopped, CdfError, ConfigError, Paused, SourceError
from cdf.extras import explain_missing_module
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
    "exit_code_for",
    "combine_exit_codes",
    "to_cdf_error",
    "format_count",
    "escape_formula",
]

JSON_VERSION = 1

DONE, FAILED, USAGE, DIFFERENCE, TEMPORARY, INTERRUPTED = 0, 1, 2, 3, 75, 130


def exit_code_for(error: CdfError) -> int:
    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, BrakeStopped):
        return DIFFERENCE
    if isinstance(error, Paused):
        return DONE  # a user wants it so
    return TEMPORARY if error.transient else FAILED


def combine_exit_codes(codes: Iterable[int]) -> int:
    """Return one exit code for several pipelines: 75 only where every failure is temporary."""
    failures = {code for code in codes if code != DONE}
    if len(failures) > 1:
        return FAILED
    return failures.pop() if failures else DONE


@dataclass(slots=True)
class Output:
    command: str
    as_json: bool = False
    debug: bool = False
    needs_spark_log: bool = False
    """An error was printed whose cause is only in Spark's log."""
    _consoles: dict[str, Console] = field(default_factory=dict)

    def note(self, text: str, *, style: str | None = None) -> None:
        """Print a line on stderr, never data. If stderr is a log of JSON lines, the line is written as one of them."""
        if logs.is_json():
            logs.bind().info(text.strip())
            return
        self._console("err").print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def line(self, text: str = "", *, style: str | None = None) -> None:
        """Print a line of the result on stdout; does nothing with --json."""
        if not self.as_json:
            self._console("out").print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def clear(self) -> None:
        """Clear the screen if stdout is a terminal."""
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
        """Print rows below their column names; the columns in ``numbers`` are aligned to the right."""
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
        """Characters in a line of stdout; practically unlimited where stdout is a pipe or a file."""
        return self._console("out").width

    def result(self, result: Any, *, exit_code: int = DONE) -> None:
        """Print the JSON document of a result; does nothing without --json."""
        if self.as_json:
            self._print_document(exit_code, {"result": plain(result)})

    def finish(self, result: Any, exit_code: int) -> NoReturn:
        """Print the JSON document of a result and end the command with ``exit_code``."""
        import typer

        self.result(result, exit_code=exit_code)
        raise typer.Exit(exit_code)

    def error(self, error: CdfError, *, exit_code: int | None = None) -> int:
        """Print the error with its hint; returns the exit code."""
        code = exit_code_for(error) if exit_code is None else exit_code
        if self.as_json:
            self._print_document(code, {"error": plain(error.to_dict())})
        self._print_error(error)
        return code

    def failure(self, name: str, error: CdfError) -> int:
        """Print the error of one pipeline of several; returns the exit code for this pipeline."""
        if isinstance(error, Paused):
            self.note(f"{error.message} ({error.hint})")
        else:
            self._print_error(error, name)
        return exit_code_for(error)

    def _print_error(self, error: CdfError, name: str | None = None) -> None:
        self.needs_spark_log |= type(error).code in {CdfError.code, SourceError.code}
        if logs.is_json():
            logs.bind(**({"pipeline": name} if name else {})).error("failed", exc_info=error)
            return
        for line in format_error(error):
            self.note(f"{name}: {line}" if name else line)
        if self.debug:
            import traceback

            traceback.print_exception(error, file=sys.stderr)

    def _print_document(self, exit_code: int, content: dict[str, Any]) -> None:
        ok = exit_code == DONE
        document = {"version": JSON_VERSION, "command": self.command, "ok": ok, "exit_code": exit_code, **content}
        print(json.dumps(document, ensure_ascii=False, indent=2))

    def _console(self, stream: str) -> Console:
        from rich.console import Console

        if stream not in self._consoles:
            console = Console(stderr=stream == "err")
            if not console.is_terminal:
                # A pipe has no width: rich must neither cut nor wrap a value
                console.width = 10_000
            self._consoles[stream] = console
        return self._consoles[stream]

    @property
    def progress_console(self) -> Console | None:
        """The terminal on which a progress display may be drawn, or None."""
        console = self._console("err")
        return console if console.is_terminal and not self.as_json and not logs.is_json() else None


def to_cdf_error(error: Exception) -> CdfError:
    """Return a CdfError as it is; wrap any other exception, with the exception as its cause: a missing extra is named,
    everything else is an unexpected error."""
    if isinstance(error, CdfError):
        return error
    failure = explain_missing_module(error) or CdfError(
        f"an unexpected error occurred ({type(error).__name__})", hint="run again with --debug"
    )
    failure.__cause__ = error
    return failure


def escape_formula(text: str) -> str:
    """Prefix a CSV cell with ``'`` where a spreadsheet would evaluate it as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") else text


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def format_error(error: CdfError) -> list[str]:
    lines = [f"error: {error.message}"]
    if error.hint:
        lines.append(f"  help: {error.hint}")
    condition = f" ({error.condition})" if error.condition else ""
    lines.append(f"  code: {error.code}{condition}")
    return lines
