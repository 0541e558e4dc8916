"""What may be configured for the Kafka sink. Imports no driver."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from cdf.errors import ConfigError

if TYPE_CHECKING:
    from cdf.sink import Sink

__all__ = ["KAFKA", "KafkaConnection", "KafkaKind", "KafkaOptions", "KafkaSecurity", "TopicOptions"]

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_OURS = {
    "bootstrap.servers": "bootstrap_servers",
    "transactional.id": "the sink's own: one for each lane",
    "enable.idempotence": "always on",
    "acks": "always all",
    "isolation.level": "always read_committed",
    "partitioner": "always murmur2_random, as Java's clients do",
    "group.id": "the sink's own",
    "on_delivery": "the sink's own",
    "delivery.report.only.error": "always on",
    "enable.auto.commit": "always off",
    "enable.partition.eof": "always on",
}


def _check_topic(topic: str) -> str:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError("is no name of a topic: up to 200 letters, digits, dots, dashes and underscores")
    return topic


def _check_client(settings: dict[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name in _OURS:
            raise ValueError(f"{name} cannot be set here: {_OURS[name]}")
    return settings


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class KafkaSecurity(_Model):
    """How this client and the brokers know each other."""

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
        description="Keep it out of the file: ${KAFKA_PASSWORD} takes it from the environment.",
    )
    ca_location: str | None = Field(
        default=None,
        title="Authority",
        description="File with the certificate of the authority that signed the brokers'.",
    )

    def client(self) -> dict[str, str]:
        given = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": None if self.password is None else self.password.get_secret_value(),
            "ssl.ca.location": self.ca_location,
        }
        return {name: value for name, value in given.items() if value is not None}


class KafkaConnection(_Model):
    """How to reach a Kafka cluster."""

    bootstrap_servers: Annotated[str, Field(min_length=1)] = Field(
        title="Brokers", description="`host:port` of one or more brokers, with commas between them."
    )
    security: KafkaSecurity | None = Field(default=None, title="Security", description="Left out: PLAINTEXT.")
    client: Annotated[dict[str, str | int | float | bool], AfterValidator(_check_client)] = Field(
        default_factory=dict,
        title="Client settings",
        description="Any property of librdkafka, such as `transaction.timeout.ms` (default 60,000).",
    )
    position_topic: Annotated[str, AfterValidator(_check_topic)] = Field(
        default="deltarelay.positions",
        title="Position topic",
        description="The compacted topic that keeps the positions of all topics of this connection. It is made if it is not "
        "there.",
    )


class TopicOptions(_Model):
    """How a topic is made where it is not there."""

    partitions: int = Field(
        default=6, ge=1, title="Partitions", description="Their number cannot grow later: keys would change places."
    )
    replication_factor: int | None = Field(
        default=None, ge=1, title="Replication factor", description="Left out: the brokers' default."
    )
    config: dict[str, str | int | float | bool] = Field(
        default_factory=dict, title="Settings", description="Any setting of a topic, such as `retention.ms`."
    )


class KafkaOptions(_Model):
    """Where and how a pipeline writes into Kafka."""

    topic: Annotated[str, AfterValidator(_check_topic)] = Field(
        title="Topic", description="Where the events go. One pipeline to a topic."
    )
    envelope: Literal["debezium", "row"] = Field(
        default="debezium",
        title="Envelope",
        description="`debezium`: before, after, source, op. `row`: the row itself, a delete is a tombstone.",
    )
    schemas: bool = Field(
        default=False, title="Connect schemas", description="Each key and value carries its Kafka Connect schema."
    )
    changes: Literal["all", "net"] = Field(
        default="all",
        title="Changes",
        description="`all`: every change is an event. `net`: what is left of a window's changes for each key, for a "
        "compacted topic whose last records are the table.",
    )
    lanes: int = Field(
        default=4,
        ge=1,
        le=64,
        title="Lanes",
        description="So many producers share the work, each with transactions of its own. A key belongs to one of them.",
    )
    rejects: Literal["refuse", "dead_letter"] = Field(
        default="refuse",
        title="Rejected events",
        description="An event that is larger than the topic takes: `refuse` stops, `dead_letter` notes it in another topic.",
    )
    dead_letter_topic: Annotated[str, AfterValidator(_check_topic)] | None = Field(
        default=None, title="Topic of rejected events", description="Default: the topic's name and `.dead_letter`."
    )
    create: TopicOptions | None = Field(
        default=None, title="Make the topic", description="Where the topic is not there, make it so. Left out: refuse."
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

    def build(self, connection: KafkaConnection, options: KafkaOptions, *, pipeline: str) -> Sink:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise ConfigError("the Kafka client is not installed", hint="pip install 'deltarelay[kafka]'")
        from connectors.kafka.client import Cluster
        from connectors.kafka.sink import KafkaSink
        from connectors.kafka.topics import NewTopic
        from connectors.kafka.write.envelope import EventFormat

        security = {} if connection.security is None else connection.security.client()
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
                {**_defaults(options), **{name: _text(value) for name, value in create.config.items()}},
            ),
            position_topic=connection.position_topic,
            pipeline=pipeline,
        )


def _defaults(options: KafkaOptions) -> dict[str, str]:
    """What erasure needs later: the old value of a key is off the disk a day after its tombstone."""
    if options.changes == "all":
        return {}
    return {"cleanup.policy": "compact", "max.compaction.lag.ms": "86400000", "segment.ms": "3600000"}


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


KAFKA = KafkaKind()
