"""The topics of one sink, and how it writes events into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from connectors.kafka.client import Cluster
from connectors.kafka.event_format import EventFormat
from connectors.kafka.topics import NewTopic, Topic, describe_topics

__all__ = ["KafkaTarget"]


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """``new_topic``: settings for topics that do not exist; None: a missing topic is a problem."""

    cluster: Cluster
    topic: str
    dead_letter_topic: str | None
    position_topic: str
    new_topic: NewTopic | None
    format: EventFormat
    is_net: bool
    lanes: int
    rejects: Literal["refuse", "dead_letter"]

    @property
    def written_topics(self) -> tuple[str, ...]:
        return (self.topic,) if self.dead_letter_topic is None else (self.topic, self.dead_letter_topic)

    @property
    def form(self) -> str:
        """The form of the events in one word, as ``PendingWindow.form`` stores it."""
        schemas = " schemas" if self.format.schemas else ""
        return f"{self.format.envelope}{schemas}{' net' if self.is_net else ''}"

    def describe_topics(self) -> dict[str, Topic]:
        """Describe those of the topics that exist, the position topic among them. Raises KafkaFault."""
        return describe_topics(self.cluster, self.position_topic, *self.written_topics)
