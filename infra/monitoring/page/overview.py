"""The overview: one row for each pipeline, those that need a person first. Pure decisions over what was read."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cdf.sink import Controls
from infra.config.limits import Limits
from infra.diagnostics.status import PipelineStatus
from infra.monitoring.health import Incident, find_incidents, format_span
from infra.monitoring.page.collector import Outage, SeenPipeline
from infra.monitoring.page.graphics import Sparkline, build_sparkline

__all__ = ["Note", "Overview", "Row", "build_overview", "build_row", "format_age"]

ROWS_PER_PAGE = 100

TONES = {
    "unreachable": "bad",
    "failed": "bad",
    "stuck": "bad",
    "stopped_by_brake": "bad",
    "behind": "open",
    "unknown": "open",
    "paused": "open",
    "unread": "open",
    "empty": "plain",
    "up_to_date": "good",
}
"""The states, the worst first, and how each is shown."""
SYMBOLS = {"bad": "✗", "open": "!", "plain": "-", "good": "✓"}
"""A state is never shown by its colour alone."""
ORDER = tuple(TONES)


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    source: str | None
    connection: str
    state: str
    before: str | None
    """The last known state, while the target's server does not answer."""
    lag_versions: int | None
    lag_seconds: float | None
    position: int | None
    latest_version: int | None
    days: float | None
    age_seconds: float | None
    is_old: bool
    sparkline: Sparkline | None
    outage: Outage | None
    exceeds_limit: bool
    """One of the limits of the page is exceeded, whatever the state."""
    notes: tuple[Note, ...]
    """What else a person should know, the most important first."""

    @property
    def tone(self) -> str:
        return "bad" if self.exceeds_limit else TONES.get(self.state, "open")

    @property
    def words(self) -> str:
        return {"unread": "not read yet"}.get(self.state, self.state.replace("_", " "))

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.tone]


@dataclass(frozen=True, slots=True)
class Overview:
    rows: tuple[Row, ...]
    """The rows of this page."""
    counts: tuple[tuple[str, str, int], ...]
    """For each state that occurs: the state, its words, the number of pipelines."""
    outages: tuple[tuple[Outage, int], ...]
    """The servers that do not answer, and the number of their pipelines."""
    total: int
    bad: int
    """Number of pipelines that need a person."""
    matching: int
    page: int
    pages: int


def build_overview(
    seen: Sequence[SeenPipeline],
    limits: Limits = Limits(),  # noqa: B008
    *,
    state: str = "",
    text: str = "",
    page: int = 1,
) -> Overview:
    """``state`` and ``text`` select rows; ``page`` is corrected to one that exists."""
    rows = sorted((build_row(one, limits) for one in seen), key=_urgency)
    numbers = Counter(row.state for row in rows)
    words = {row.state: row.words for row in rows}
    matching = [row for row in rows if (not state or row.state == state) and text.lower() in row.name.lower()]
    pages = max(1, -(-len(matching) // ROWS_PER_PAGE))
    page = min(max(1, page), pages)
    return Overview(
        rows=tuple(matching[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE]),
        counts=tuple((one, words[one], numbers[one]) for one in ORDER if one in numbers),
        outages=_count_outages(rows),
        total=len(rows),
        bad=sum(row.tone == "bad" for row in rows),
        matching=len(matching),
        page=page,
        pages=pages,
    )


def build_row(seen: SeenPipeline, limits: Limits = Limits()) -> Row:  # noqa: B008
    reading, error = seen.reading, seen.error
    status = None if reading is None else reading.status
    known = "unread" if status is None else status.state
    state = known
    if seen.outage is not None or (error is not None and error.transient):
        state = "unreachable"
    elif error is not None:
        state = "failed"
    incidents = () if status is None else find_incidents(status, limits, dt.datetime.now(dt.UTC))
    return Row(
        name=seen.name,
        source=None if status is None else status.source,
        connection=seen.connection,
        state=state,
        before=known.replace("_", " ") if state != known and known != "unread" else None,
        lag_versions=None if status is None else status.lag_versions,
        lag_seconds=None if status is None else status.lag_seconds,
        position=None if status is None else status.position,
        latest_version=None if status is None else status.latest_version,
        days=None if status is None else status.feed_files_days,
        age_seconds=seen.age_seconds,
        is_old=seen.is_old,
        sparkline=None if reading is None else build_sparkline(reading.runs),
        outage=seen.outage,
        exceeds_limit=any(one.kind not in TONES for one in incidents),
        notes=tuple(_list_notes(seen, status, state, incidents)),
    )


def _list_notes(
    seen: SeenPipeline, status: PipelineStatus | None, state: str, incidents: Sequence[Incident]
) -> Iterator[Note]:
    if seen.error is not None and seen.outage is None:
        yield Note(seen.error.message, seen.error.hint)
    if status is None:
        return
    if status.error is not None:
        yield Note(status.error, status.hint)
    for one in incidents:
        if one.kind not in ("failed", "unreachable", "stopped_by_brake"):  # the other notes say these
            yield Note(one.text)
    yield from _describe_controls(status.controls or Controls(), state)
    if status.dead_letters and all(one.kind != "dead_letters" for one in incidents):
        yield Note(f"{status.dead_letters:,} dead letter{'s' if status.dead_letters != 1 else ''}")
    if status.note is not None:
        yield Note(status.note)


def _urgency(row: Row) -> tuple[bool, int, float, str]:
    order = ORDER.index(row.state) if row.state in TONES else 0
    return row.tone != "bad", order, -(row.lag_seconds or 0.0), row.name


def _describe_controls(controls: Controls, state: str) -> Iterator[Note]:
    if (pause := controls.paused) is not None:
        yield Note(f"paused by {pause.by} since {_format_minute(pause.at)}: {pause.reason}")
    if (stop := controls.stopped) is not None and state in ("stopped_by_brake", "paused", "unreachable"):
        yield Note(f"stopped since {_format_minute(stop.at)}: {stop.message}")
    for approval in controls.approvals:
        yield Note(f"window {approval.first}..{approval.last} approved by {approval.by}, not applied yet")


def _count_outages(rows: Sequence[Row]) -> tuple[tuple[Outage, int], ...]:
    outages = {row.outage.connection: row.outage for row in rows if row.outage is not None}
    numbers = Counter(row.connection for row in rows if row.outage is not None)
    return tuple((outages[name], numbers[name]) for name in sorted(outages))


def _format_minute(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def format_age(seconds: float | None) -> str:
    return "-" if seconds is None else format_span(dt.timedelta(seconds=seconds))
