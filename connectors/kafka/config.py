"""Configuration of the Kafka sink. Imports no driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from connectors.dataset_names import TargetDataset

if TYPE_CHECKING:
    from cdf.sink import Sink

__all__ = ["KAFKA", "KafkaConnection", "KafkaKind", "KafkaOptions", "KafkaSecurity", "TopicOptions"]

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_NOT_CONFIGURABLE = {
    "bootstrap.servers": "bootstrap_servers",
    "transactional.id": "the sink sets it, one for each lane",
    "enable.idempotence": "always on",
    "acks": "always all",
    "isolation.level": "always read_committed",
    "partitioner": "always murmur2_random, the default of Java's clients",
    "group.id": "the sink sets it",
    "on_delivery": "the sink sets it",
    "delivery.report.only.error": "always on",
    "enable.auto.commit": "always off",
    "enable.partition.eof": "always on",
}


def _check_topic(topic: str) -> str:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError("is not a valid name of a topic: use up to 200 letters, digits, dots, dashes and underscores")
    return topic


def _check_client(settings: dict[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name in _NOT_CONFIGURABLE:
            raise ValueError(f"{name} cannot be set here: {_NOT_CONFIGURABLE[name]}")
    return settings


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class KafkaSecurity(_Model):
    """How client and brokers authenticate each other."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="SASL_SSL", title="Protocol", description="Kafka's `security.protocol`."
    )
    mechanism: str | None = Field(
        default=None, title="Mechanism", description="Kafka's `sasl.mechanism`, such as SCRAM-SHA-512 or PLAIN."
    )
    username: str | None = Field(default=None, title="User", description="Kafka's `sasl.username`.")
    password: SecretStr | None = Field(
        default=None,
        title="Password",
        description="Do not write it into the file: ${KAFKA_PASSWORD} reads it from the environment.",
    )
    ca_location: str | None = Field(
        default=None,
        title="Certificate authority",
        description="File with the certificate of the authority that signed the brokers' certificates.",
    )

    def build_client_settings(self) -> dict[str, str]:
        settings = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": None if self.password is None else self.password.get_secret_value(),
            "ssl.ca.location": self.ca_location,
        }
        return {name: value for name, value in settings.items() if value is not None}


class KafkaConnection(_Model):
    """How to connect to a Kafka cluster."""

    bootstrap_servers: Annotated[str, Field(min_length=1)] = Field(
        title="Brokers", description="`host:port` of one or more brokers, separated by commas."
    )
    security: KafkaSecurity | None = Field(default=None, title="Security", description="If not set: PLAINTEXT.")
    client: Annotated[dict[str, str | int | float | bool], AfterValidator(_check_client)] = Field(
        default_factory=dict,
        title="Client settings",
        description="Any property of librdkafka, such as `transaction.timeout.ms` (default 60,000).",
    )
    position_topic: Annotated[str, AfterValidator(_check_topic)] = Field(
        default="deltarelay.positions",
        title="Position topic",
        description="The compacted topic with the positions of all topics of this connection. It is created if it does not "
        "exist.",
    )


class TopicOptions(_Model):
    """Settings with which a missing topic is created."""

    partitions: int = Field(
        default=6,
        ge=1,
        title="Partitions",
        description="The number cannot change later: keys would move to other partitions.",
    )
    replication_factor: int | None = Field(
        default=None, ge=1, title="Replication factor", description="If not set: the brokers' default."
    )
    config: dict[str, str | int | float | bool] = Field(
        default_factory=dict, title="Settings", description="Any setting of a topic, such as `retention.ms`."
    )


class KafkaOptions(_Model):
    """The topic into which a pipeline writes, and how."""

    topic: Annotated[str, AfterValidator(_check_topic)] = Field(
        title="Topic", description="The topic of the events. One pipeline for each topic."
    )
    envelope: Literal["debezium", "row"] = Field(
        default="debezium",
        title="Envelope",
        description="`debezium`: before, after, source, op. `row`: the row itself; a delete is a tombstone.",
    )
    schemas: bool = Field(
        default=False, title="Connect schemas", description="Each key and value contains its Kafka Connect schema."
    )
    changes: Literal["all", "net"] = Field(
        default="all",
        title="Changes",
        description="`all`: every change is an event. `net`: one event for each key of a window, its net effect, for a "
        "compacted topic whose last records are the table.",
    )
    lanes: int = Field(
        default=4,
        ge=1,
        le=64,
        title="Lanes",
        description="Number of producers that share the work, each with its own transactions. A key belongs to one of them.",
    )
    rejects: Literal["refuse", "dead_letter"] = Field(
        default="refuse",
        title="Rejected events",
        description="If an event is larger than the topic accepts: `refuse` stops the run, `dead_letter` records it in "
        "another topic.",
    )
    dead_letter_topic: Annotated[str, AfterValidator(_check_topic)] | None = Field(
        default=None,
        title="Topic of rejected events",
        description="If not set: the topic's name followed by `.dead_letter`.",
    )
    create: TopicOptions | None = Field(
        default=None,
        title="Create the topic",
        description="Settings for a missing topic. If not set: a missing topic is an error.",
    )

    @model_validator(mode="after")
    def _check(self) -> KafkaOptions:
        if self.dead_letter_topic is not None and self.rejects == "refuse":
            raise ValueError("dead_letter_topic is only used with rejects: dead_letter")
        return self


class KafkaKind:
    """The sink kind ``kafka``."""

    name = "kafka"
    connection = KafkaConnection
    options = KafkaOptions

    def target(self, options: KafkaOptions) -> str:
        return options.topic

    def describe_dataset(self, connection: KafkaConnection, options: KafkaOptions) -> TargetDataset:
        first = connection.bootstrap_servers.partition(",")[0].strip()
        return TargetDataset(f"kafka://{first}", options.topic)

    def build(self, connection: KafkaConnection, options: KafkaOptions, *, pipeline: str) -> Sink:
        from connectors.kafka.client import Cluster
        from connectors.kafka.event_format import EventFormat
        from connectors.kafka.sink import KafkaSink
        from connectors.kafka.topics import NewTopic

        security = {} if connection.security is None else connection.security.build_client_settings()
        create = options.create
        return KafkaSink(
            Cluster(connection.bootstrap_servers, {**connection.client, **security}),
            topic=options.topic,
            format=EventFormat(envelope=options.envelope, schemas=options.schemas),
            changes=options.changes,
            lanes=options.lanes,
            rejects=options.rejects,
            dead_letter_topic=options.dead_letter_topic,
            create=None
            if create is None
            else NewTopic(
                create.partitions,
                create.replication_factor or -1,
                {**_get_default_config(options), **{name: _to_text(value) for name, value in create.config.items()}},
            ),
            position_topic=connection.position_topic,
            pipeline=pipeline,
        )


def _get_default_config(options: KafkaOptions) -> dict[str, str]:
    """Return settings that erasure needs later: the old value of a key is removed a day after its tombstone."""
    if options.changes == "all":
        return {}
    return {"cleanup.policy": "compact", "max.compaction.lag.ms": "86400000", "segment.ms": "3600000"}


def _to_text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


KAFKA = KafkaKind()
