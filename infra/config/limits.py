"""Limits beyond which a pipeline needs a person: one definition for `notify`, `status` and the status page."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from infra.base_model import Model
from infra.durations import parse_duration

__all__ = ["STUCK_AFTER", "Limits", "MaxDeadLetters", "MaxOverdueErasures", "MaxUnanchored", "MinFeedDays"]

STUCK_AFTER = dt.timedelta(minutes=15)


def _parse_duration(value: Any) -> dt.timedelta:
    return value if isinstance(value, dt.timedelta) else parse_duration(str(value))


_Duration = Annotated[
    dt.timedelta, PlainValidator(_parse_duration), WithJsonSchema({"type": "string", "pattern": r"^\s*[0-9]|\$\{"})
]
MaxUnanchored = Annotated[
    _Duration | None,
    Field(
        title="Not anchored",
        description="`not_anchored`: a commit in an audit trail is covered by no anchor for longer than this, as in 1h.",
    ),
]
MaxOverdueErasures = Annotated[
    Annotated[int, Field(ge=0)] | None,
    Field(
        title="Overdue erasures",
        description="`erasure_overdue`: more erasure requests than this are past their due date.",
    ),
]
MinFeedDays = Annotated[
    Annotated[float, Field(ge=0)] | None,
    Field(
        title="Feed files (days)",
        description="`feed_expiring`: VACUUM may remove feed files that are still needed within these days.",
    ),
]
MaxDeadLetters = Annotated[
    Annotated[int, Field(ge=0)] | None,
    Field(title="Dead letters", description="`dead_letters`: more rows than this are dead letters."),
]


class Limits(Model):
    """None: never because of this."""

    max_lag: _Duration | None = Field(
        default=None, title="Lag", description="`lagging`: a commit is not applied for longer than this, as in 15m."
    )
    max_age: _Duration | None = Field(
        default=None, title="Age", description="`stale`: no run succeeded for longer than this, as in 1h."
    )
    min_feed_days: MinFeedDays = None
    max_dead_letters: MaxDeadLetters = None
    max_unanchored: MaxUnanchored = None
    max_overdue_erasures: MaxOverdueErasures = None
    stuck_after: _Duration = Field(
        default=STUCK_AFTER,
        title="Stuck",
        description="`stuck`: a runner holds the lease and does not move the position for longer than this.",
    )
