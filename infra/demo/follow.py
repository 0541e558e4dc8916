"""A pipeline of the demo that follows its table."""

from __future__ import annotations

import time
from contextlib import suppress
from queue import Empty, Queue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdf import Pipeline

__all__ = ["FollowedPipeline"]


class FollowedPipeline:
    """A pipeline that follows its table, and the arrival time of each version."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._arrived: Queue[tuple[int, float]] = Queue()
        self.handle = pipeline.follow(
            trigger={"processingTime": "100 milliseconds"},
            progress=lambda step: self._arrived.put((step.position, time.monotonic())),
        )

    def wait_for(self, version: int) -> float:
        """Wait until a version is applied. → the time of its arrival"""
        while True:
            with suppress(Empty):
                position, at = self._arrived.get(timeout=0.2)
                if position >= version:
                    return at
            self.handle.await_termination(0)  # raises the error that stopped it
