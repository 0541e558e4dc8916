"""The finding of one check."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from cdf.errors import CdfError
from cdf.extras import explain_missing_module
from cdf.result import Result

__all__ = ["Finding", "State", "failed", "run_check", "run_checks", "from_error", "ok", "skipped", "warning"]

log = logging.getLogger("deltarelay.doctor")

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding(Result):
    check: str
    state: State
    found: str
    fix: str | None = None
    """The remedy; null where none is needed."""
    pipeline: str | None = None


def ok(check: str, found: str, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "ok", found, None, pipeline)


def warning(check: str, found: str, fix: str, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "warning", found, fix, pipeline)


def failed(check: str, found: str, fix: str, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "failed", found, fix, pipeline)


def skipped(check: str, found: str, fix: str | None = None, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "skipped", found, fix, pipeline)


def from_error(check: str, error: CdfError, *, pipeline: str | None = None) -> Finding:
    return failed(check, error.message, error.hint or "run `deltarelay plan --debug` for details", pipeline=pipeline)


def run_check(check: str, check_once: Callable[[], Finding], *, pipeline: str | None = None) -> Finding:
    """Run one check. Errors of the check itself become a finding as well."""
    try:
        return check_once()
    except CdfError as error:
        return from_error(check, error, pipeline=pipeline)
    except Exception as error:
        log.debug("check failed", extra={"check": check}, exc_info=error)  # seen with --debug
        # only the name: the text of a foreign exception may quote a secret or a row
        if (missing := explain_missing_module(error)) is not None:
            return from_error(check, missing, pipeline=pipeline)
        found = f"the check failed unexpectedly ({type(error).__name__})"
        return failed(check, found, "run again with --debug, and report the error", pipeline=pipeline)


def run_checks(check: str, check_all: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The same for a check with several findings."""
    found: list[Finding] = []

    def collect() -> Finding:
        found.extend(check_all())
        return ok(check, "")

    last = run_check(check, collect)
    return found if last.state == "ok" else [*found, last]
