"""Inline SVG graphics: their geometry as plain values, which the templates write out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdf.sink import RunRecord

__all__ = ["Bar", "Part", "Sparkline", "build_bar", "build_sparkline", "rows_per_second"]

WIDTH, HEIGHT, MARGIN = 120.0, 24.0, 2.0
COLOURS = 5


@dataclass(frozen=True, slots=True)
class Sparkline:
    points: str
    last_x: float
    last_y: float
    label: str
    """The figures in words, for those who do not see the line."""
    latest: float


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    text: str
    """Its figure, with the unit."""
    left: float
    width: float
    """In percent of the bar."""
    colour: int


@dataclass(frozen=True, slots=True)
class Bar:
    parts: tuple[Part, ...]
    label: str


def rows_per_second(run: RunRecord) -> float | None:
    seconds = (run.ended_at - run.started_at).total_seconds()
    return None if run.rows_in is None or run.code is not None else run.rows_in / max(seconds, 0.001)


def build_sparkline(runs: Sequence[RunRecord]) -> Sparkline | None:
    """``runs``: the latest first. None: no step has figures."""
    rates = [rate for run in reversed(runs) if (rate := rows_per_second(run)) is not None]
    if not rates:
        return None
    most = max(rates) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(1, len(rates) - 1)
    points = [
        (MARGIN + number * step, HEIGHT - MARGIN - rate / most * (HEIGHT - 2 * MARGIN))
        for number, rate in enumerate(rates)
    ]
    if len(points) == 1:
        points.insert(0, (MARGIN, points[0][1]))
        points[1] = (WIDTH - MARGIN, points[0][1])
    return Sparkline(
        points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        last_x=round(points[-1][0], 1),
        last_y=round(points[-1][1], 1),
        label=f"rows per second over the last {len(rates)} steps: latest {rates[-1]:,.0f}, highest {max(rates):,.0f}",
        latest=rates[-1],
    )


def build_bar(
    figures: Mapping[str, float], unit: str, *, digits: int = 0, names: Sequence[str] | None = None
) -> Bar | None:
    """``names``: of all bars that are shown together, so that a name has one colour. None: there is nothing to show."""
    total = sum(figures.values())
    if total <= 0:
        return None
    order = list(figures if names is None else names)
    parts, left = [], 0.0
    for name, figure in figures.items():
        width = figure / total * 100
        text = f"{figure:,.{digits}f}{unit}"
        parts.append(Part(name, text, round(left, 2), round(width, 2), order.index(name) % COLOURS))
        left += width
    return Bar(tuple(parts), ", ".join(f"{part.name} {part.text}" for part in parts))
