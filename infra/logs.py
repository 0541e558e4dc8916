"""Log lines on stderr: one JSON object per line, or one readable line. stdout is for data only.

``configure`` is called by the command line only. deltarelay's lines come from ``bind`` here and, in the lower packages, from
the standard library's ``logging.getLogger("deltarelay.…")``: ``cdf`` and ``connectors`` do not depend on structlog, and a
program that uses them as libraries keeps its own logging.

Loggers of other packages (py4j, PySpark, drivers) are silent without ``debug``: they quote messages of servers, which may
quote rows. For the same reason a stack trace is printed with ``debug`` only.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import secrets
import sys
import traceback
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from cdf.errors import CdfError, ConfigError
from cdf.results import Step

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from structlog.stdlib import BoundLogger
    from structlog.typing import ExcInfo

    from cdf.results import Followed

    Event = MutableMapping[str, Any]

__all__ = ["LOG_FORMAT_VARIABLE", "LogFormat", "bind", "configure", "is_json", "log_step_details", "log_step"]

LOG_FORMAT_VARIABLE = "DELTARELAY_LOG_FORMAT"

OURS = "deltarelay"


class LogFormat(StrEnum):
    auto = "auto"
    """JSON for a long-running command whose stderr is not a terminal, else human."""
    human = "human"
    json = "json"


class _Stderr(logging.Handler):
    """Writes to the current ``sys.stderr``: a live display replaces it while it draws."""

    json = False
    run = ""
    debug = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.formatter is None:
                self.setFormatter(_build_formatter(self.json, self.run, self.debug))
            stream: TextIO = sys.stderr
            stream.write(self.format(record) + "\n")
            stream.flush()
        except Exception:
            self.handleError(record)


_handler = _Stderr()


def configure(
    log_format: LogFormat | str | None = None,
    *,
    long_running: bool = False,
    verbose: bool = False,
    debug: bool = False,
) -> str:
    """Set up logging for this process; a later call replaces the settings. → the id of the run, a field of every line

    Without ``log_format`` the environment variable is used, else ``auto``. Warnings are shown; for a long-running command,
    and as JSON, also infos; with ``verbose`` all details of deltarelay; with ``debug`` also other loggers and stack traces.
    """
    chosen = _parse_format(log_format)
    as_json = chosen is LogFormat.json or (chosen is LogFormat.auto and long_running and not sys.stderr.isatty())
    _handler.json, _handler.run, _handler.debug = as_json, secrets.token_hex(4), debug
    _handler.setFormatter(
        None
    )  # created with the first line: most commands log nothing, and importing structlog takes 0.1 s

    ours, others = logging.getLogger(OURS), logging.getLogger()
    ours.propagate = False
    ours.handlers = [_handler]
    if verbose or debug:
        ours.setLevel(logging.DEBUG)
    else:
        ours.setLevel(logging.INFO if long_running or as_json else logging.WARNING)
    # A NullHandler: Python prints the warnings of loggers without any handler
    others.handlers = [_handler if debug else logging.NullHandler()]
    others.setLevel(logging.INFO if debug else logging.WARNING)
    # py4j logs errors for every JVM that is stopped, and for every job that Ctrl-C ends
    logging.getLogger("py4j").setLevel(logging.INFO if debug else logging.CRITICAL)
    logging.captureWarnings(True)
    return _handler.run


def _parse_format(log_format: LogFormat | str | None) -> LogFormat:
    name = log_format or os.environ.get(LOG_FORMAT_VARIABLE) or LogFormat.auto
    try:
        return LogFormat(name)
    except ValueError:
        raise ConfigError(
            f"{name!r} is not a log format", hint=f"{LOG_FORMAT_VARIABLE} is one of {', '.join(LogFormat)}"
        ) from None


def is_json() -> bool:
    """Whether stderr is a log of JSON lines, so that nothing else may be written to it."""
    return _handler.json


def bind(**fields: Any) -> BoundLogger:
    """A logger whose every line has these fields: ``bind(pipeline=name).info("window applied", version=7)``.

    Events are lowercase and constant; fields vary: names, counts, versions, seconds, and never the value or key of a row.
    """
    import structlog

    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(OURS),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
    )
    return logger.bind(**fields)


def log_step(log: BoundLogger, step: Step | Followed) -> None:
    """Log one line for a durable step, and with ``verbose`` a second one with its details."""
    fields: dict[str, Any] = {"first_version": step.first, "version": step.last}
    if isinstance(step, Step):
        applied = step.applied
        conflicts, rejected = applied.conflicts.total, applied.rejected
        fields |= {"inserts": applied.inserts, "updates": applied.updates, "deletes": applied.deletes}
        fields["seconds"] = round(sum(applied.seconds.values()), 3)
    else:
        conflicts, rejected = step.conflicts.total, step.rejected
        fields |= {"rows_in": step.rows_in, "rows_applied": step.rows_applied, "rows_per_second": step.rows_per_second}
        fields["seconds"] = step.seconds["total"]
        fields |= {"lag_versions": step.lag_versions, "lag_seconds": step.lag_seconds}
    if conflicts:
        fields["conflicts"] = conflicts
    if rejected:
        fields["rejected"] = rejected
    log.info(
        "snapshot copied" if step.kind == "load" else "window applied",
        **{name: value for name, value in fields.items() if value is not None},
    )
    log_step_details(log, step)


def log_step_details(log: BoundLogger, step: Step | Followed) -> None:
    """For ``verbose``: the seconds of each phase of a step, and the executed DDL."""
    done = step.applied if isinstance(step, Step) else step
    fields: dict[str, Any] = {f"{part}_seconds": seconds for part, seconds in done.seconds.items()}
    if done.ddl:
        fields["ddl"] = list(done.ddl)
    log.debug("step done", version=step.last, **fields)


# ── formatting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _build_formatter(as_json: bool, run: str, debug: bool) -> logging.Formatter:
    from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level

    def with_run(_logger: Any, _method: str, event: Event) -> Event:
        return {**event, "run": run}

    return ProcessorFormatter(
        foreign_pre_chain=[add_log_level, ExtraAdder()],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            with_run,
            _add_error_and_trace if debug else _add_error,
            _format_json if as_json else _format_human,
        ],
    )


def _error_of(event: Event) -> BaseException | None:
    given: ExcInfo | BaseException | bool | None = event.pop("exc_info", None)
    if given is True:
        given = sys.exc_info()[1]
    if isinstance(given, tuple):
        given = given[1]
    return given if isinstance(given, BaseException) else None


def _add_error(_logger: Any, _method: str, event: Event) -> Event:
    """The message of a CdfError; of other errors only the type, because their messages may quote a row."""
    return _add_error_fields(event, _error_of(event))


def _add_error_and_trace(_logger: Any, _method: str, event: Event) -> Event:
    if (error := _error_of(event)) is not None:
        _add_error_fields(event, error)["trace"] = "".join(traceback.format_exception(error)).rstrip()
    return event


def _add_error_fields(event: Event, error: BaseException | None) -> Event:
    if isinstance(error, CdfError):
        given = {"error": error.message, "code": error.code, "condition": error.condition, "hint": error.hint}
        event.update({name: text for name, text in given.items() if text})
    elif error is not None:
        event["error"] = type(error).__name__
    return event


def _take_head(event: Event) -> dict[str, Any]:
    """Remove and return the fields that come first in every line."""
    return {name: event.pop(name) for name in ("level", "event", "run", "pipeline") if name in event}


def _format_json(_logger: Any, _method: str, event: Event) -> str:
    import json

    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": now, **_take_head(event), **event}, default=str)


def _format_human(_logger: Any, _method: str, event: Event) -> str:
    head, trace = _take_head(event), event.pop("trace", None)
    level = "" if head["level"] in ("info", "debug") else f"{head['level']}: "
    whose = f"{head['pipeline']}: " if "pipeline" in head else ""
    fields = "".join(f" {name}={_quote_value(value)}" for name, value in event.items())
    line = f"{dt.datetime.now():%H:%M:%S} {_escape_text(whose)}{level}{_escape_text(str(head['event']))}{fields}"
    return f"{line}\n{trace}" if trace else line


def _quote_value(value: Any) -> str:
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)


def _escape_text(text: str) -> str:
    return text if text.isprintable() else repr(text)
