"""The result of ``deltarelay demo``, as ``--json`` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from cdf.result import Result

__all__ = ["DemoResult", "TopicResult", "TrailResult"]


@dataclass(frozen=True, slots=True)
class TrailResult(Result):
    """What ``deltarelay audit verify`` finds in the demo's audit trail."""

    intact: bool
    sealed_version: int | None
    """Through there a signed checkpoint vouches for it."""
    records: int
    """One for each commit of the table."""
    events: int
    path: str
    verify: str
    """The command line that computes every hash anew."""


@dataclass(frozen=True, slots=True)
class TopicResult(Result):
    """What a demo found in its topic; its rows are what the last event of each key leaves."""

    verified: bool
    compared: bool
    """And no event is there twice."""
    events: int
    """Tombstones included."""
    distinct: int
    """By their ids."""
    live_seconds: tuple[float, ...]
    topic: str
    bootstrap_servers: str
    consume: str
    """The command line that prints the events."""


@dataclass(frozen=True, slots=True)
class DemoResult(Result):
    equal: bool
    """``verified`` and ``compared`` both, and those of the topic; and the trail is intact."""
    verified: bool
    """``deltarelay verify`` finds no difference."""
    compared: bool
    """Source and target, read without any of our code and compared value by value, are the same."""
    version: int
    """The latest version of the table, and the position of the target."""
    rows: int
    windows: int
    inserts: int
    updates: int
    deletes: int
    live_seconds: tuple[float, ...]
    """From each commit that was made live to its row in PostgreSQL; the first ones of a fresh session are slow."""
    directory: str
    table: str
    """A folder, or an address on S3."""
    config: str
    dsn: str
    psql: str
    """The command line that opens the target in psql."""
    stop: str
    """The command line that stops what the demo has started."""
    seconds: float
    trail: TrailResult
    kafka: TopicResult | None = None
