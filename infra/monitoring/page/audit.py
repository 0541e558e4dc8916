"""The page of the audit trails: through which version each is verified, signed and anchored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.checkpoints.coverage import TrailCoverage
from cdf.errors import CdfError

if TYPE_CHECKING:
    from audit.verification import VerifiedState
    from infra.config.models import Project

__all__ = ["TrailReading", "TrailRow", "build_trail_row", "read_trail"]


@dataclass(frozen=True, slots=True)
class TrailReading:
    coverage: TrailCoverage | None
    """None: there is no trail yet."""
    verified: VerifiedState | None
    """What the last ``audit verify`` of this user on this machine found intact."""
    verified_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class TrailRow:
    name: str
    target: str
    reading: TrailReading | None
    error: CdfError | None
    age_seconds: float | None
    tone: str
    notes: tuple[str, ...]


def read_trail(project: Project, name: str) -> TrailReading:
    from connectors.delta_audit.sink import DeltaAuditSink
    from infra.diagnostics.verified_state import VerifiedStateFile

    sink = project.build_sink(name)
    assert isinstance(sink, DeltaAuditSink)
    stored = VerifiedStateFile(None, sink.path)
    verified = stored.read()
    at = None if verified is None else dt.datetime.fromtimestamp(stored.file.stat().st_mtime, dt.UTC)
    return TrailReading(sink.coverage(with_time=False), verified, at)


def build_trail_row(
    name: str, target: str, reading: TrailReading | None, error: CdfError | None, age_seconds: float | None
) -> TrailRow:
    notes = [] if reading is None or reading.coverage is None else [*_list_problems(reading, reading.coverage)]
    tone = "bad" if error is not None or any(is_bad for is_bad, _ in notes) else "open" if notes else "good"
    if reading is None or reading.coverage is None:
        tone = "bad" if error is not None else "plain"
    return TrailRow(name, target, reading, error, age_seconds, tone, tuple(text for _, text in notes))


def _list_problems(reading: TrailReading, coverage: TrailCoverage) -> Iterator[tuple[bool, str]]:
    """Each as whether it needs a person, and its text."""
    for failure in coverage.failures:
        yield True, failure.error.message
    for anchor in coverage.anchors:
        if anchor.records is None:
            yield True, f"the anchor {anchor.anchor} has no checkpoint of this trail"
    unanchored = coverage.count_unanchored()
    if unanchored:
        yield False, f"{unanchored:,} of {coverage.records:,} records are covered by no anchor yet"
    elif not coverage.anchors and not coverage.failures:
        yield False, "no anchors are configured: a writer of the trail could rewrite all of it"
    if coverage.records and not coverage.is_end_signed:
        yield False, "the last record is not signed"
    if reading.verified is None:
        yield False, "not verified by this user on this machine: `deltarelay audit verify`"
    elif reading.verified.size > coverage.records:
        yield True, f"{reading.verified.size:,} records were verified, and the trail has only {coverage.records:,}"
