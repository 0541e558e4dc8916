"""Asks the log for new versions at an interval, until following is stopped or the sink has to be opened again.

No streaming query does it: Spark needs more time to plan a micro-batch than to read a small commit, and over Spark Connect
``foreachBatch`` would run on the server, which has neither the sink nor its lease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cdf.changes.schema_diff import compare, same_names_in_files
from cdf.errors import ConfigError, SourceError
from cdf.lag import parse_interval

if TYPE_CHECKING:
    from cdf.changes.commits import Metadata
    from cdf.pipeline.micro_batches import MicroBatches
    from cdf.source.log import TableLog

__all__ = ["FeedPolls", "check_trigger"]

REFRESH_SECONDS = 60.0
"""How often Delta is asked for the latest version, instead of looking for the next commit file."""
SHORTEST_SECONDS = 0.01
"""The shortest pause between two polls, also for the interval 0: a poll is two requests to the storage."""


def check_trigger(trigger: Mapping[str, Any]) -> dict[str, Any]:
    if list(trigger) == ["availableNow"] and trigger["availableNow"] is True:
        return dict(trigger)
    if list(trigger) == ["processingTime"] and isinstance(trigger["processingTime"], str):
        return dict(trigger)
    raise ConfigError(
        "the trigger cannot be used",
        hint='give {"processingTime": "1 second"} to follow, or {"availableNow": True} to stop after catching up',
    )


class FeedPolls:
    """Asks one log for new versions. ``trigger``: ``{"processingTime": "1 second"}`` or ``{"availableNow": True}``."""

    def __init__(self, log: TableLog, *, trigger: Mapping[str, Any]) -> None:
        self._log = log
        self._seconds = _parse_seconds(trigger)
        self.latest: int | None = None
        """The table's latest version, as the last poll saw it."""

    def apply_new_versions(self, batches: MicroBatches, stop: threading.Event, heed: Callable[[], None]) -> bool:
        """Apply new versions until ``stop`` is set, or once. → False if the table changed: open it again.

        ``heed`` is called before each poll, and raises if a user has paused the pipeline.
        """
        version = batches.position.version or 0
        metadata, refreshed = self._log.metadata(version), time.monotonic()
        while self._seconds is not None and not stop.wait(self._seconds):
            heed()
            refresh = time.monotonic() - refreshed > REFRESH_SECONDS
            if refresh:
                refreshed = time.monotonic()
            with self._log.cache_reads():
                latest = self._log.latest(refresh=refresh)
                now = self._log.metadata()
                changed = now is not metadata and _differs(now, metadata)
            self.latest = latest
            if changed or latest < version:
                return False
            if latest > version:
                batches.advance(latest)
                version = batches.position.version or 0
        return True


def _differs(now: Metadata, before: Metadata) -> bool:
    """Whether the sink has to be opened again. Other properties and notes of columns change with many commits: Delta keeps
    the last value of an identity column in them."""
    return (
        (now.table_id, now.feed_enabled) != (before.table_id, before.feed_enabled)
        or bool(compare(before.schema, now.schema))
        or not same_names_in_files(before.schema, now.schema)
    )


def _parse_seconds(trigger: Mapping[str, Any]) -> float | None:
    """The seconds between two polls; None: no poll after catching up."""
    interval = check_trigger(trigger).get("processingTime")
    if interval is None:
        return None
    try:
        seconds = parse_interval(interval).total_seconds()
    except SourceError:
        seconds = -1.0
    if seconds < 0 or not any(letter.isdigit() for letter in interval):
        raise ConfigError(f"the trigger's interval {interval!r} cannot be used", hint="write it as in: 1 second")
    return max(seconds, SHORTEST_SECONDS)
