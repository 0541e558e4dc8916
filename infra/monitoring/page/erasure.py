"""The page of erasure requests: by state and due date, without anything that identifies a person."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdf.errors import CdfError
from infra.diagnostics import evidence

if TYPE_CHECKING:
    from audit.erasure.register.records import RequestStatus
    from infra.config.models import Project

__all__ = ["ErasurePage", "RequestRow", "build_erasure_page", "read_requests"]

DONE = ("certified", "partial")
MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class RequestRow:
    """Of a request only what is shown: no subject's identifiers, no free text."""

    id: str
    state: str
    received: dt.date
    due: dt.date
    is_overdue: bool
    waits_until: dt.datetime | None
    changed_at: dt.datetime
    returned_at: dt.datetime | None
    returned_to: str | None

    @property
    def tone(self) -> str:
        if self.is_overdue or self.returned_at is not None:
            return "bad"
        return "good" if self.state in DONE else "open"


@dataclass(frozen=True, slots=True)
class ErasurePage:
    rows: tuple[RequestRow, ...] | None
    """Overdue ones first, then by due date, finished ones last. None: not read yet."""
    counts: tuple[tuple[str, int], ...]
    overdue: int
    hidden: int
    """Number of further requests."""
    error: CdfError | None
    age_seconds: float | None


def read_requests(project: Project) -> tuple[RequestRow, ...]:
    """Needs no key of the register: it reads states and dates only."""
    return tuple(map(_build_row, evidence.read_requests(project)))


def _build_row(request: RequestStatus) -> RequestRow:
    return RequestRow(
        id=request.id,
        state=request.state,
        received=request.received,
        due=request.due,
        is_overdue=request.overdue,
        waits_until=request.waits_until,
        changed_at=request.changed_at,
        returned_at=request.returned_at,
        returned_to=request.returned_to,
    )


def build_erasure_page(
    rows: tuple[RequestRow, ...] | None, error: CdfError | None, age_seconds: float | None
) -> ErasurePage:
    ordered = sorted(rows or (), key=lambda row: (row.tone == "good", row.tone != "bad", row.due, row.id))
    return ErasurePage(
        rows=None if rows is None else tuple(ordered[:MOST_ROWS]),
        counts=tuple(Counter(row.state for row in ordered).most_common()),
        overdue=sum(row.is_overdue for row in ordered),
        hidden=max(0, len(ordered) - MOST_ROWS),
        error=error,
        age_seconds=age_seconds,
    )
