"""What a scan returns: findings, what was searched, and what could not be searched."""

from __future__ import annotations

import datetime as dt
import errno
from dataclasses import dataclass, replace

from cdf.errors import SourceUnavailable
from cdf.result import Result

__all__ = ["Checked", "Finding", "ScanResult", "Unseen", "unseen_location"]

_TRANSIENT = (
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EBUSY,
)


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """Data of a person that is still there."""

    request: str
    place: str
    """A file, a table, a topic, without any value: a name that contains a value is cut off before it."""
    reason: str
    """Why it is there, one of ``audit.erasure.scan.findings.REASONS``."""
    spelling: str
    """How it is written there: ``value``, ``url``, ``json``, ``base64``, ``prefix``, ``sha256`` …"""
    count: int = 1
    clears_on: dt.date | None = None
    """When it goes by itself or with the next purge; None: it stays until a person acts."""


@dataclass(frozen=True, slots=True)
class Checked(Result):
    """Something that was searched."""

    what: str
    count: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Unseen(Result):
    """Something that could not be searched, and why: it counts as not verified."""

    place: str
    why: str


def unseen_location(place: str, error: OSError) -> Unseen:
    """Return that the location could not be searched. Raises SourceUnavailable where a retry may succeed: a certificate does
    not record an outage."""
    why = error.strerror or str(error) or type(error).__name__
    if error.errno in _TRANSIENT:
        raise SourceUnavailable(
            f"{place} cannot be read now: {why}",
            hint="run again when it can be read: a location that was not searched is not certified",
        ) from error
    return Unseen(place, why)


@dataclass(frozen=True, slots=True)
class ScanResult(Result):
    finds: tuple[Finding, ...] = ()
    checked: tuple[Checked, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    def at(self, place: str) -> ScanResult:
        """Return the result with the location added to what was searched."""
        return replace(self, checked=tuple(replace(one, what=f"{one.what} of {place}") for one in self.checked))

    def __add__(self, other: ScanResult) -> ScanResult:
        return ScanResult(self.finds + other.finds, self.checked + other.checked, self.unseen + other.unseen)
