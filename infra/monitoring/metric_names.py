"""The metrics: names, labels, types and meanings. The metrics page, alert rules and the dashboard are checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from infra.diagnostics.status import State

__all__ = [
    "BUCKETS",
    "CHANGES",
    "DEAD_LETTERS",
    "ERASURES_OVERDUE",
    "FEED_EXPIRES_SECONDS",
    "LAG_SECONDS",
    "LAG_VERSIONS",
    "LAST_SUCCESS",
    "METRICS",
    "ROWS",
    "STATE",
    "STATES",
    "UNANCHORED_COMMITS",
    "WINDOW_SECONDS",
    "Metric",
]

CHANGES = ("insert", "update", "delete", "load")
"""Values of the label ``change``. ``load``: rows of an initial copy or a reload."""
STATES: tuple[str, ...] = get_args(State)
"""Values of the label ``state``."""
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the histogram, in seconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


LAG_VERSIONS = Metric("deltarelay_lag_versions", "gauge", ("pipeline",), "Versions of the source that are not applied.")
LAG_SECONDS = Metric(
    "deltarelay_lag_seconds",
    "gauge",
    ("pipeline",),
    "Age of the oldest commit that is not applied; 0: all are applied.",
)
ROWS = Metric(
    "deltarelay_rows_total",
    "counter",
    ("pipeline", "change"),
    "Rows applied to the target, by change: insert, update, delete, or load for an initial copy.",
)
WINDOW_SECONDS = Metric(
    "deltarelay_window_seconds",
    "histogram",
    ("pipeline", "step"),
    "Seconds that durable steps took, by step of the sink; total: the whole step.",
)
LAST_SUCCESS = Metric(
    "deltarelay_last_success_timestamp_seconds",
    "gauge",
    ("pipeline",),
    "Unix time when a run succeeded last, also without new commits; while a runner has applied everything: now.",
)
FEED_EXPIRES_SECONDS = Metric(
    "deltarelay_feed_expires_seconds",
    "gauge",
    ("pipeline",),
    "Seconds until VACUUM may remove change files that are still needed; absent: none are needed.",
)
DEAD_LETTERS = Metric("deltarelay_dead_letters", "gauge", ("pipeline",), "Rows that the target refused.")
UNANCHORED_COMMITS = Metric(
    "deltarelay_unanchored_commits",
    "gauge",
    ("pipeline",),
    "Commits of an audit trail that no anchor covers; if its anchors cannot be read: all. Absent: none are configured.",
)
ERASURES_OVERDUE = Metric(
    "deltarelay_erasures_overdue", "gauge", (), "Erasure requests that are past their due date and not certified."
)
STATE = Metric("deltarelay_state", "gauge", ("pipeline", "state"), "1 for the present state of the pipeline, else 0.")

METRICS = (
    LAG_VERSIONS,
    LAG_SECONDS,
    ROWS,
    WINDOW_SECONDS,
    LAST_SUCCESS,
    FEED_EXPIRES_SECONDS,
    DEAD_LETTERS,
    UNANCHORED_COMMITS,
    ERASURES_OVERDUE,
    STATE,
)
