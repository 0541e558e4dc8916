"""Describes, checks and creates topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.kafka.client import ANSWER_SECONDS, Cluster, wrap_client_errors
from connectors.kafka.errors import KafkaFault
from connectors.kafka.reader import read_watermarks

__all__ = [
    "POSITION_TOPIC",
    "NewTopic",
    "Topic",
    "create_topic",
    "describe_topics",
    "find_insync_problem",
    "find_position_topic_problems",
    "get_position_topic_settings",
    "read_offsets",
]

POSITION_TOPIC = "deltarelay.positions"
CONNECT_SECONDS = 10.0
"""Time limit of the first request: an unreachable cluster is reported soon."""
_POSITION_CONFIG = {
    "cleanup.policy": "compact",
    # The brokers set the time of a record: the end of a lease is computed from it
    "message.timestamp.type": "LogAppendTime",
    # Superseded records are removed soon, so that a start reads few records
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Settings of a topic to create. The brokers' defaults apply to whatever is not set."""

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
    """Empty if the user lacks the right to read it."""
    id: str
    """A topic that is recreated under the same name has another id."""

    @property
    def max_message_bytes(self) -> int:
        return int(self.config.get("max.message.bytes", 1_048_588))

    @property
    def min_insync_replicas(self) -> int:
        """The number of replicas that must have an event before it is acknowledged."""
        return int(self.config.get("min.insync.replicas", 1))

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "delete").split(",")

    @property
    def has_retention(self) -> bool:
        """Whether the brokers delete records by age or size."""
        return "delete" in self.config.get("cleanup.policy", "delete").split(",")


def describe_topics(cluster: Cluster, *names: str) -> dict[str, Topic]:
    """Return those of the topics that exist. Raises KafkaFault for a topic that the user may not describe, which a request
    for all topics would leave out."""
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    refusals: list[Any] = []
    with wrap_client_errors():
        admin = cluster.create_admin(error_cb=refusals.append)
        found: dict[str, Any] = {}
        requests = admin.describe_topics(TopicCollection(list(names)), request_timeout=CONNECT_SECONDS)
        for name, request in requests.items():
            try:
                found[name] = request.result(CONNECT_SECONDS + 5)
            except KafkaException as error:
                if error.args[0].name() in ("_TIMED_OUT", "_TRANSPORT"):
                    raise _find_refusal(admin, refusals) or error from None
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
                entries = {}  # a user may be allowed to write to a topic but not to read its settings
            configs[resource.name] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return {
        name: Topic(
            name,
            len(description.partitions),
            min((len(partition.replicas) for partition in description.partitions), default=0),
            configs.get(name, {}),
            str(description.topic_id),
        )
        for name, description in found.items()
    }


def _find_refusal(admin: Any, refusals: list[Any]) -> KafkaFault | None:
    """Return why no broker answered, if the client has reported it: the request itself only reports its timeout."""
    admin.poll(0)
    names = [error.name() for error in refusals]
    return next((KafkaFault(name) for name in names if name in ("_AUTHENTICATION", "_SSL")), None)


def read_offsets(cluster: Cluster, topic: Topic) -> list[tuple[int, int]]:
    """Return the first offset and the end of each partition, open transactions included.

    A commit is acknowledged before every partition has its marker; a reader up to these ends waits for the markers.
    """
    consumer = cluster.create_consumer(**{"isolation.level": "read_uncommitted"})
    try:
        return [read_watermarks(consumer, topic.name, number) for number in range(topic.partitions)]
    finally:
        consumer.close()


def create_topic(cluster: Cluster, name: str, new: NewTopic) -> None:
    """Create the topic, unless another runner has created it in the meantime."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic as ClientTopic  # type: ignore[attr-defined]

    with wrap_client_errors():
        admin = cluster.create_admin()
        topic = ClientTopic(name, new.partitions, new.replication_factor, config=dict(new.config))
        for future in admin.create_topics([topic], operation_timeout=ANSWER_SECONDS).values():
            try:
                future.result(ANSWER_SECONDS + 5)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
        _wait_for_topic(admin, name)


def _wait_for_topic(admin: Any, name: str) -> None:
    """Wait until the brokers have propagated a new topic."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=ANSWER_SECONDS).topics.get(name)
        if found is not None and found.error is None and found.partitions:
            return
        time.sleep(0.05)
    raise KafkaFault("_TIMED_OUT")


def get_position_topic_settings() -> NewTopic:
    return NewTopic(partitions=1, config=_POSITION_CONFIG)


def find_position_topic_problems(topic: Topic) -> list[str]:
    """Return the settings that would lose or hide positions."""
    problems = []
    if topic.partitions != 1:
        problems.append(f"the position topic {topic.name} has {topic.partitions} partitions: it must have exactly one")
    if topic.config and (not topic.is_compacted or topic.has_retention):
        problems.append(
            f"the position topic {topic.name} has cleanup.policy={topic.config.get('cleanup.policy')}: set it to compact, "
            "otherwise the brokers delete old positions"
        )
    if topic.config.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        problems.append(
            f"the position topic {topic.name} uses the clients' timestamps: set message.timestamp.type=LogAppendTime"
        )
    if (problem := find_insync_problem(topic)) is not None:
        problems.append(problem)
    return problems


def find_insync_problem(topic: Topic) -> str | None:
    if topic.min_insync_replicas <= topic.replicas:
        return None
    return (
        f"{topic.name} has min.insync.replicas={topic.min_insync_replicas} but only {topic.replicas} replicas: it accepts "
        "no events"
    )
