"""The topics: what they are, what is wrong with them, and making them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.kafka.client import ANSWER_SECONDS, Cluster, bounds, faults
from connectors.kafka.errors import KafkaFault

__all__ = [
    "POSITION_TOPIC",
    "NewTopic",
    "Topic",
    "create",
    "described",
    "insync_problem",
    "offsets_of",
    "position_topic",
    "position_topic_problems",
]

POSITION_TOPIC = "deltarelay.positions"
REACH_SECONDS = 10.0
"""So long may the first answer take: what cannot be reached is to be told."""
_POSITION_CONFIG = {
    "cleanup.policy": "compact",
    # The time that a record gets is the brokers': leases are held against it
    "message.timestamp.type": "LogAppendTime",
    # Superseded records go soon, so that a start reads few
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """How a topic is to be made where it is not there. The brokers' defaults where nothing is said."""

    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the brokers describe it."""

    name: str
    partitions: int
    replicas: int
    """Of the partition that has the fewest."""
    config: Mapping[str, str]
    """Empty where they may not be seen."""
    id: str
    """One that is made anew under the same name gets another."""

    @property
    def max_message_bytes(self) -> int:
        return int(self.config.get("max.message.bytes", 1_048_588))

    @property
    def insync(self) -> int:
        """So many replicas have to have an event before it counts."""
        return int(self.config.get("min.insync.replicas", 1))

    @property
    def compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "delete").split(",")

    @property
    def deleted(self) -> bool:
        return "delete" in self.config.get("cleanup.policy", "delete").split(",")


def described(cluster: Cluster, *names: str) -> dict[str, Topic]:
    """Those that are there. One that may not be seen is a fault: who asks for all topics is not told of it."""
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    refusals: list[Any] = []
    with faults():
        admin = cluster.admin(error_cb=refusals.append)
        found: dict[str, Any] = {}
        for name, asked in admin.describe_topics(TopicCollection(list(names)), request_timeout=REACH_SECONDS).items():
            try:
                found[name] = asked.result(REACH_SECONDS + 5)
            except KafkaException as error:
                if error.args[0].name() in ("_TIMED_OUT", "_TRANSPORT"):
                    raise _refused(admin, refusals) or error from None
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
        configs: dict[str, dict[str, str]] = {}
        for resource, future in (admin.describe_configs(resources) if resources else {}).items():
            try:
                entries: Mapping[str, Any] = future.result(ANSWER_SECONDS + 5)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_AUTHORIZATION_FAILED":
                    raise
                entries = {}  # one may write to a topic whose settings one may not see
            configs[resource.name] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return {
        name: Topic(
            name,
            len(about.partitions),
            min((len(one.replicas) for one in about.partitions), default=0),
            configs.get(name, {}),
            str(about.topic_id),
        )
        for name, about in found.items()
    }


def _refused(admin: Any, refusals: list[Any]) -> KafkaFault | None:
    """Why nobody answered, where the brokers said so: a request itself only knows that its time is over."""
    admin.poll(0)
    names = [error.name() for error in refusals]
    return next((KafkaFault(name) for name in names if name in ("_AUTHENTICATION", "_SSL")), None)


def offsets_of(cluster: Cluster, topic: Topic) -> list[tuple[int, int]]:
    """Where each partition begins and ends, open transactions and all: a commit is told before each partition has heard of
    it, and who reads up to here waits for that."""
    consumer = cluster.consumer(**{"isolation.level": "read_uncommitted"})
    try:
        return [bounds(consumer, topic.name, number) for number in range(topic.partitions)]
    finally:
        consumer.close()


def create(cluster: Cluster, name: str, new: NewTopic) -> None:
    """Nothing to do where another runner was quicker."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic as Wanted  # type: ignore[attr-defined]

    with faults():
        admin = cluster.admin()
        wanted = Wanted(name, new.partitions, new.replication_factor, config=dict(new.config))
        for future in admin.create_topics([wanted], operation_timeout=ANSWER_SECONDS).values():
            try:
                future.result(ANSWER_SECONDS + 5)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
        _await(admin, name)


def _await(admin: Any, name: str) -> None:
    """The brokers tell each other of a new topic in their own time."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=ANSWER_SECONDS).topics.get(name)
        if found is not None and found.error is None and found.partitions:
            return
        time.sleep(0.05)
    raise KafkaFault("_TIMED_OUT")


def position_topic() -> NewTopic:
    return NewTopic(partitions=1, config=_POSITION_CONFIG)


def position_topic_problems(topic: Topic) -> list[str]:
    """What would lose a position, or hide one."""
    problems = []
    if topic.partitions != 1:
        problems.append(f"the position topic {topic.name} has {topic.partitions} partitions: it has to have one")
    if topic.config and (not topic.compacted or topic.deleted):
        problems.append(
            f"the position topic {topic.name} has cleanup.policy={topic.config.get('cleanup.policy')}: set it to compact, "
            "or positions are lost with their age"
        )
    if topic.config.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        problems.append(
            f"the position topic {topic.name} takes its times from the clients: set message.timestamp.type=LogAppendTime"
        )
    if (problem := insync_problem(topic)) is not None:
        problems.append(problem)
    return problems


def insync_problem(topic: Topic) -> str | None:
    if topic.insync <= topic.replicas:
        return None
    return f"{topic.name} has min.insync.replicas={topic.insync} and {topic.replicas} replicas: it takes no events"
