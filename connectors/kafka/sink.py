"""Writes each change of the source once into a Kafka topic, for consumers that read committed records.

    few events: build events ─▶ events and position, in one transaction
    others:     build events ─▶ record the window's bounds ─▶ each lane: its events and its record, in one transaction
                ─▶ position

Lanes commit separately: a reader may see the part of a window in one lane before that in another. After a failure the bounds
are on record; the next runner writes what is missing of exactly that window.

What needs PySpark is imported at its first use.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Literal

from cdf.changes.schema_diff import ChangeKind
from cdf.errors import PositionError, TargetNotReady
from cdf.extras import require_extra
from cdf.sink import Activity, Applied, Capabilities, Controls, Inspection, Position, Sink, Source, Standing
from cdf.sink.runner_id import read_start
from connectors.kafka import topics
from connectors.kafka.client import Cluster
from connectors.kafka.errors import translate_faults
from connectors.kafka.event_format import EventFormat
from connectors.kafka.inspect import (
    check_topics,
    find_evolution_problem,
    find_lane_problems,
    find_state_problems,
    inspect_topics,
    read_existing_state,
)
from connectors.kafka.state.lease import Lease
from connectors.kafka.target import KafkaTarget

if TYPE_CHECKING:
    from cdf.changes.schema_diff import SchemaChange
    from cdf.changes.window import Snapshot, Window
    from connectors.kafka.erasure.sink_erasure import KafkaErasure
    from connectors.kafka.verify import KafkaImage
    from connectors.kafka.write.lane_producers import LaneProducers
    from connectors.kafka.write.window_writer import DuplicateKeyWarning, WindowWriter

__all__ = ["KafkaSink"]

log = logging.getLogger("deltarelay.kafka")

SMALL_WINDOW_BYTES = 1024 * 1024
"""Windows with at most this many bytes of change files are written by the driver: without Python workers, and with
producers that stay open."""
DEFAULT_LANES = 4


class KafkaSink(Sink):
    """A sink for one topic. ``changes="all"``: every change is an event. ``"net"``: the last records per key are the table's
    rows, for a compacted topic.

    ``lanes``: number of transactional producers that share the work; each key belongs to one of them. ``create``: settings
    with which missing topics are created; without it a missing topic is an error.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        topic: str,
        format: EventFormat | None = None,
        changes: Literal["all", "net"] = "all",
        lanes: int = DEFAULT_LANES,
        rejects: Literal["refuse", "dead_letter"] = "refuse",
        dead_letter_topic: str | None = None,
        create: topics.NewTopic | None = None,
        position_topic: str = topics.POSITION_TOPIC,
        pipeline: str | None = None,
        small_window_bytes: int = SMALL_WINDOW_BYTES,
    ) -> None:
        require_extra("kafka")
        self.topic = topic
        self._target = KafkaTarget(
            cluster=cluster,
            topic=topic,
            dead_letter_topic=(dead_letter_topic or f"{topic}.dead_letter") if rejects == "dead_letter" else None,
            position_topic=position_topic,
            new_topic=create,
            format=format or EventFormat(),
            is_net=changes == "net",
            lanes=lanes,
            rejects=rejects,
        )
        self._pipeline = pipeline
        self._small_window_bytes = small_window_bytes
        self._key_warning: DuplicateKeyWarning | None = None
        self._lease: Lease | None = None
        self._producers: LaneProducers | None = None
        self._writer: WindowWriter | None = None

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            holds="state" if self._target.is_net else "history",
            transactional=False,
            counts_conflicts=False,
            schema_changes=frozenset(kind.value for kind in ChangeKind),
            executor_modules=("connectors.kafka.write.strategies", "confluent_kafka"),
            opens_without_spark=True,
        )

    def cannot_follow(self, change: SchemaChange, key: Collection[str]) -> str | None:
        return find_evolution_problem(self._target.format, change, key)

    # ── inspect, open, close ─────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, source: Source) -> Inspection:
        with translate_faults("inspecting the topic"):
            return inspect_topics(self._target, source, self._target.describe_topics())

    def position(self) -> Position:
        with translate_faults("reading the position"):
            existing = topics.describe_topics(self._target.cluster, self._target.position_topic)
            return read_existing_state(self._target, existing).position

    def open(self, source: Source) -> Position:
        self.close()
        try:
            with translate_faults("opening the topic"):
                return self._open(source)
        except BaseException:
            self.close()
            raise

    def _open(self, source: Source) -> Position:
        from connectors.kafka.write.lane_producers import LaneProducers
        from connectors.kafka.write.window_writer import DuplicateKeyWarning, WindowWriter

        target, pipeline = self._target, self._pipeline or source.pipeline
        existing = check_topics(target, source)
        if target.position_topic not in existing:
            topics.create_topic(target.cluster, target.position_topic, topics.get_position_topic_settings())
        for name in target.written_topics:
            if name not in existing and target.new_topic is not None:
                topics.create_topic(target.cluster, name, target.new_topic)
        if not {target.position_topic, *target.written_topics} <= existing.keys():
            existing = check_topics(target, source)  # the brokers' defaults may be unsuitable
        topic = existing[target.topic]
        lease = self._lease = Lease(
            target.cluster,
            target.position_topic,
            target.topic,
            pipeline=pipeline,
            source=source.table,
            max_bytes=topic.max_message_bytes,
        )
        lease.refresh()  # a runner that was suspended until now must not fence the lanes of its successor
        self._producers = LaneProducers(target, topic.max_message_bytes)
        self._producers.fence_lanes(target.lanes)
        state = lease.refresh()
        if find_state_problems(target, state, topic, source.key) or find_lane_problems(target, state, source.pipeline):
            raise TargetNotReady(
                f"{self.topic} was changed while the sink opened it", hint="nothing was written: run again"
            )
        self._key_warning = self._key_warning or DuplicateKeyWarning()
        self._writer = WindowWriter(
            target,
            lease,
            topic,
            self._producers,
            pipeline=pipeline,
            small_window_bytes=self._small_window_bytes,
            key_warning=self._key_warning,
        )
        log.info("lease taken", extra={"target": self.topic, "epoch": lease.epoch, "position": state.version})
        return state.position

    def close(self) -> None:
        self._writer = None
        producers, self._producers = self._producers, None
        if producers is not None:
            producers.close()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    # ── load, apply ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, snapshot: Snapshot) -> Applied:
        return self._get_writer().load(snapshot)

    def apply(self, window: Window) -> Applied:
        return self._get_writer().apply(window)

    def _get_writer(self) -> WindowWriter:
        if self._writer is None:
            raise PositionError("the sink is not open", hint="call open first")
        return self._writer

    # ── position, verify ─────────────────────────────────────────────────────────────────────────────────────────

    def activity(self) -> Activity:
        with translate_faults("reading the position"):
            state = read_existing_state(self._target, self._target.describe_topics())
        standing = state.to_standing(most_records=0)
        holder = standing.lease_holder
        return Activity(
            position=standing.position,
            moved_at=standing.updated_at,
            has_runner=holder is not None,
            runner_since=None if holder is None else read_start(holder),
            runner_seen_at=state.lease_written_at,
            controls=state.controls,
        )

    def standing(self, *, most_records: int = 10) -> Standing:
        with translate_faults("reading the position"):
            state = read_existing_state(self._target, self._target.describe_topics())
            return state.to_standing(most_records=most_records)

    def move(self, source: Source, before: Position, to: Position, *, action: str, reason: str | None = None) -> None:
        """Move the position as the contract says; afterwards the topic has the configured number of lanes."""
        from connectors.kafka.move_position import move_position

        self.close()
        with translate_faults("moving the position"):
            pipeline = self._pipeline or source.pipeline
            move_position(self._target, source, before, to, pipeline=pipeline, action=action, reason=reason)

    def controls(self) -> Controls:
        with translate_faults("reading the controls"):
            if (lease := self._lease) is not None:
                return lease.refresh().controls  # reads only what is new
            existing = topics.describe_topics(self._target.cluster, self._target.position_topic)
            return read_existing_state(self._target, existing).controls

    def change_controls(self, change: Callable[[Controls], Controls]) -> Controls:
        from connectors.kafka.state.controls import change_controls

        target = self._target
        with translate_faults("changing the controls"):
            if target.position_topic not in topics.describe_topics(target.cluster, target.position_topic):
                topics.create_topic(target.cluster, target.position_topic, topics.get_position_topic_settings())
            return change_controls(target.cluster, target.position_topic, target.topic, change)

    @contextlib.contextmanager
    def image(self, source: Source) -> Iterator[KafkaImage]:
        from connectors.kafka.verify import open_image

        with translate_faults("reading the topic"):
            image = open_image(self._target, source)
        try:
            yield image
        finally:
            image.close()

    # ── erasure ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def erasure(self) -> KafkaErasure:
        from connectors.kafka.erasure.sink_erasure import KafkaErasure

        # Former settings may have had a topic of rejected events
        written = tuple(dict.fromkeys((*self._target.written_topics, f"{self.topic}.dead_letter")))
        return KafkaErasure(
            self._target.cluster,
            written,
            position_topic=self._target.position_topic,
            read_position=self.position,
            errors=translate_faults,
        )
