"""The open lanes of the driver, kept from window to window."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from connectors.kafka.target import KafkaTarget
from connectors.kafka.write.lane_writer import OpenLane

__all__ = ["LaneProducers"]


class LaneProducers:
    """``max_bytes``: the largest record that the topic accepts."""

    def __init__(self, target: KafkaTarget, max_bytes: int) -> None:
        self._target = target
        self._max_bytes = max_bytes
        self._open: dict[int, OpenLane] = {}

    def fence_lanes(self, count: int) -> None:
        """Open lanes 0 to ``count - 1``: producers of earlier runners can commit nothing more, and their open transactions
        are ended. Raises KafkaFault."""
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(self._open_lane, range(count)))

    def get(self, lane: int) -> OpenLane:
        return self._open.get(lane) or self._open_lane(lane)

    def discard(self, lane: int) -> None:
        """Close a lane that has failed and cannot be used any more."""
        if (failed := self._open.pop(lane, None)) is not None:
            failed.close()

    def _open_lane(self, lane: int) -> OpenLane:
        opened = OpenLane(self._target.cluster, self._target.topic, lane, max_bytes=self._max_bytes)
        self._open[lane] = opened  # before ``init`` can fail, so that ``close`` ends it
        opened.producer.init()
        return opened

    def close(self) -> None:
        lanes, self._open = self._open, {}
        for lane in lanes.values():
            lane.close()
