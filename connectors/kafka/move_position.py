"""Moves the position of a topic for an operator (``deltarelay position set|rewind|adopt``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdf.errors import TargetNotReady, WindowOutOfOrder
from cdf.sink import Position, Source
from connectors.kafka import topics
from connectors.kafka.errors import KafkaFault, find_task_fault
from connectors.kafka.event_format import check_schema
from connectors.kafka.inspect import (
    find_insync_problems,
    find_state_problems,
    find_topic_problems,
    read_existing_state,
)
from connectors.kafka.state.lease import Lease
from connectors.kafka.state.position import State
from connectors.kafka.target import KafkaTarget
from connectors.kafka.topics import Topic
from connectors.kafka.verify import read_newest_version
from connectors.kafka.write.lane_producers import LaneProducers

__all__ = ["move_position"]


def move_position(
    target: KafkaTarget,
    source: Source,
    before: Position,
    to: Position,
    *,
    pipeline: str,
    action: str,
    reason: str | None,
) -> None:
    """Check the move, acquire the lease, fence every lane, check again, and write the position with a record of the move.

    From then on the topic has the configured number of lanes. Raises WindowOutOfOrder, TargetNotReady and KafkaFault.
    """
    existing = target.describe_topics()
    topic = _check_move(target, existing, read_existing_state(target, existing), source, before, to)
    if target.position_topic not in existing:
        topics.create_topic(target.cluster, target.position_topic, topics.get_position_topic_settings())
        existing = target.describe_topics()
    producers = LaneProducers(target, topic.max_message_bytes)
    lease = Lease(target.cluster, target.position_topic, target.topic, pipeline=pipeline, source=source.table)
    try:
        producers.fence_lanes(max(target.lanes, lease.refresh().lanes or 0))
        state = lease.refresh()
        topic = _check_move(target, existing, state, source, before, to)
        moved = _build_moved_state(target, topic, state, source, to)
        lease.move_position(moved, before=before.version, action=action, reason=reason)
    finally:
        producers.close()
        lease.close()


def _check_move(
    target: KafkaTarget, existing: Mapping[str, Topic], state: State, source: Source, before: Position, to: Position
) -> Topic:
    """Refuse a position from which no run could continue, or with which events would be written twice."""
    topic = existing.get(target.topic)
    if state.position != before:
        raise WindowOutOfOrder(
            f"the position of {target.topic} has changed in the meantime",
            hint="nothing was changed: check `deltarelay position show`, and decide again",
            position=state.version,
        )
    problems = check_schema(source.schema, source.key, target.format)
    problems += find_insync_problems(target, existing)
    if target.position_topic in existing:
        problems += topics.find_position_topic_problems(existing[target.position_topic])
    ends = [] if topic is None else [high for _, high in topics.read_offsets(target.cluster, topic)]
    if topic is None or not any(ends):
        problems.append(f"{target.topic} has no events to adopt: `deltarelay run` loads it")
    else:
        moved = _build_moved_state(target, topic, state, source, to)
        problems += find_state_problems(target, moved, topic, source.key)
        problems += find_topic_problems(target, topic)[0]
        newest = None if target.is_net or before.version is not None else _read_newest_version(target, ends)
        if newest not in (None, to.version):
            problems.append(
                f"the last event of {target.topic} is of version {newest}: adopt it at that version. Equal rows say "
                "nothing about the events in between"
            )
    if state.pending is not None:
        problems.append(f"{target.topic} has a partly written {state.pending.kind}: `deltarelay run` finishes it first")
    is_backwards = None not in (state.version, to.version) and (to.version or 0) < (state.version or 0)
    if is_backwards and not target.is_net:
        problems.append(f"{target.topic} holds a history: the events after version {to.version} would be written twice")
    if problems or topic is None:
        raise TargetNotReady(
            f"the position of {target.topic} cannot be moved: " + "; ".join(problems),
            hint="nothing was changed",
            problems=problems,
        )
    return topic


def _read_newest_version(target: KafkaTarget, ends: Sequence[int]) -> int | None:
    try:
        return read_newest_version(target.cluster, target.topic, ends)
    except Exception as error:
        fault = find_task_fault(error) or KafkaFault(type(error).__name__)
    raise fault


def _build_moved_state(target: KafkaTarget, topic: Topic, state: State, source: Source, to: Position) -> State:
    return replace(
        state,
        version=to.version,
        table_id=to.table_id,
        lanes=target.lanes,
        partitions=state.partitions or topic.partitions,
        topic_id=state.topic_id or topic.id,
        key=state.key or source.key,
    )
