"""The result of ``deltarelay demo``, as ``--json`` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from cdf.result import Result

__all__ = ["DemoResult", "TopicResult", "TrailResult"]


@dataclass(frozen=True, slots=True)
class TrailResult(Result):
    """The result of ``deltarelay audit verify`` for the demo's audit trail."""

    intact: bool
    sealed_version: int | None
    """The last version that a signed checkpoint covers."""
    records: int
    """One for each commit of the table."""
    events: int
    path: str
    verify: str
    """The command that recomputes every hash."""


@dataclass(frozen=True, slots=True)
class TopicResult(Result):
    """The check of the demo's topic. Its rows result from the last event of each key."""

    verified: bool
    compared: bool
    """Equal to the source, and no event is present twice."""
    events: int
    """Tombstones included."""
    distinct: int
    """The number of different event ids."""
    live_seconds: tuple[float, ...]
    topic: str
    bootstrap_servers: str
    consume: str
    """The command that prints the events."""


@dataclass(frozen=True, slots=True)
class DemoResult(Result):
    equal: bool
    """``verified`` and ``compared`` are both true, also for the topic, and the trail is intact."""
    verified: bool
    """``deltarelay verify`` finds no difference."""
    compared: bool
    """Source and target are equal, read without deltarelay's code and compared value by value."""
    version: int
    """The latest version of the table, and the position of the target."""
    rows: int
    windows: int
    inserts: int
    updates: int
    deletes: int
    live_seconds: tuple[float, ...]
    """From each live commit to its row in PostgreSQL; the first ones of a new session are slow."""
    directory: str
    table: str
    """A folder, or an address on S3."""
    config: str
    dsn: str
    psql: str
    """The command that opens the target in psql."""
    stop: str
    """The command that stops the demo's servers."""
    seconds: float
    trail: TrailResult
    kafka: TopicResult | None = None
