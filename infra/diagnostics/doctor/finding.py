"""What one check has found."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from cdf.errors import CdfError
from cdf.result import Result

__all__ = ["Finding", "State", "failed", "guarded", "guarded_all", "of_error", "ok", "skipped", "warning"]

log = logging.getLogger("deltarelay.doctor")

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding(Result):
    check: str
    state: State
    found: str
    fix: str | None = None
    """What to do about it; null where there is nothing to do."""
    pipeline: str | None = None


def ok(check: str, found: str, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "ok", found, None, pipeline)


def warning(check: str, found: str, fix: str, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "warning", found, fix, pipeline)


def failed(check: str, found: str, fix: str, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "failed", found, fix, pipeline)


def skipped(check: str, found: str, fix: str | None = None, *, pipeline: str | None = None) -> Finding:
    return Finding(check, "skipped", found, fix, pipeline)


def of_error(check: str, error: CdfError, *, pipeline: str | None = None) -> Finding:
    return failed(
        check, error.message, error.hint or "run `deltarelay plan --debug` for the whole story", pipeline=pipeline
    )


def guarded(check: str, look: Callable[[], Finding], *, pipeline: str | None = None) -> Finding:
    """The finding, also where looking itself goes wrong: a doctor that falls ill helps nobody."""
    try:
        return look()
    except CdfError as error:
        return of_error(check, error, pipeline=pipeline)
    except Exception as error:
        log.debug("check failed", extra={"check": check}, exc_info=error)  # seen with --debug
        # the name alone: an exception of others may quote a secret or a row
        found = f"this could not be looked at ({type(error).__name__})"
        return failed(check, found, "run again with --debug, and report it", pipeline=pipeline)


def guarded_all(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The same for a check that finds several things."""
    found: list[Finding] = []

    def all_of_them() -> Finding:
        found.extend(look())
        return ok(check, "")

    last = guarded(check, all_of_them)
    return found if last.state == "ok" else [*found, last]
