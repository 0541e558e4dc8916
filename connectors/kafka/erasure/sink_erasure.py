"""The erasure component of the Kafka sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from audit.erasure.sink_contract import PurgeResult, SinkErasure
from cdf.errors import WindowOutOfOrder
from cdf.sink import at_version
from connectors.kafka.erasure.retention import removal_days
from connectors.kafka.erasure.scan import scan_topics

if TYPE_CHECKING:
    from audit.erasure.scan.results import ScanResult
    from audit.erasure.scan.search_terms import SearchTerms
    from audit.erasure.sink_contract import ErasureTask
    from cdf.sink import Position
    from connectors.kafka.client import Cluster

__all__ = ["KafkaErasure"]


class KafkaErasure(SinkErasure):
    def __init__(
        self,
        cluster: Cluster,
        topics: tuple[str, ...],
        *,
        position_topic: str,
        read_position: Callable[[], Position],
        errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """``topics``: the topic of the events first, then topics of rejected events. ``errors``: translates KafkaFault; its
        argument says what was being done."""
        self._cluster = cluster
        self._topic, self._topics = topics[0], topics
        self._position_topic = position_topic
        self._read_position = read_position
        self._errors = errors

    def erase(self, task: ErasureTask) -> Mapping[str, int]:
        """Do nothing: the replicated delete wrote a tombstone under the key."""
        position = self._read_position().version
        if task.versions and (position is None or position < max(task.versions)):
            raise WindowOutOfOrder(
                f"{self._topic} {at_version(position)}, and rows of {task.table} were erased at {max(task.versions)}",
                hint="run its pipeline first: `deltarelay run`",
                position=position,
            )
        return {}

    def purge(self, task: ErasureTask, *, now: dt.datetime) -> PurgeResult:
        """Check that the brokers have removed the records: they compact and drop them by the topic's settings."""
        with self._errors("reading the topic"):
            days = removal_days(self._cluster, self._topics, task.search_terms, task.versions)
        if not days:
            return PurgeResult()
        if None in days:
            return PurgeResult(
                out_of_reach=(
                    f"records of {self._topic}: its settings determine no date for their compaction; set "
                    "max.compaction.lag.ms and segment.ms, or retention.ms",
                )
            )
        last = max(day for day in days if day is not None)
        until = max(dt.datetime.combine(last, dt.time(), dt.UTC), now + dt.timedelta(hours=1))
        return PurgeResult(waits_until=until, waits_for="the brokers' compaction or retention")

    def scan(self, terms: SearchTerms) -> ScanResult:
        with self._errors("reading the topic"):
            return scan_topics(self._cluster, (*self._topics, self._position_topic), terms)
