"""Reads every record of topics, also of aborted transactions, and finds search terms in it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from connectors.kafka import topics
from connectors.kafka.client import ANSWER_SECONDS, Cluster, wrap_client_errors
from connectors.kafka.errors import KafkaFault
from connectors.kafka.reader import find_resume_offset, read_watermarks

if TYPE_CHECKING:
    from confluent_kafka import Message

    from audit.erasure.scan.search_terms import SearchTerms

__all__ = ["contained_terms", "header", "parts", "read_partition", "read_topics"]


def read_topics(cluster: Cluster, described: Mapping[str, topics.Topic]) -> Iterator[tuple[topics.Topic, int, Message]]:
    """Yield the topic, partition and message of every record, from the beginning to the current end. Raises KafkaFault."""
    for topic in described.values():
        for partition in range(topic.partitions):
            for message in read_partition(cluster, topic.name, partition):
                yield topic, partition, message


def read_partition(cluster: Cluster, topic: str, partition: int) -> Iterator[Message]:
    from confluent_kafka import KafkaError, TopicPartition

    consumer = cluster.create_consumer(**{"isolation.level": "read_uncommitted"})
    try:
        at, end = read_watermarks(consumer, topic, partition)
        if at >= end:
            return
        with wrap_client_errors():
            consumer.assign([TopicPartition(topic, partition, at)])
        deadline = time.monotonic() + ANSWER_SECONDS
        while at < end:
            with wrap_client_errors():
                message = consumer.poll(0.2)
            if message is None:
                if time.monotonic() > deadline:
                    raise KafkaFault("_TIMED_OUT")
                continue
            error = message.error()
            if error is None:
                at = int(message.offset() or 0) + 1
                deadline = time.monotonic() + ANSWER_SECONDS
                if at <= end:
                    yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, int(message.offset() or 0))  # the last offsets are transaction markers
            elif (low := find_resume_offset(error, consumer, topic, partition, at)) is not None:
                at = low
                with wrap_client_errors():
                    consumer.assign([TopicPartition(topic, partition, at)])
            elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaFault(error.name())
    finally:
        consumer.close()


def header(message: Message, name: str) -> Any:
    headers: Any = message.headers() or ()
    return dict(headers).get(name)


def parts(message: Message) -> list[bytes]:
    """Return the key, the value and the values of the headers."""
    found = [message.key(), message.value()]
    headers: Any = message.headers() or ()
    found += [value if isinstance(value, bytes) else str(value or "").encode() for _, value in headers]
    return [part for part in found if part]


def contained_terms(terms: SearchTerms, message: Message) -> set[tuple[str, str]]:
    """Return (request, spelling) of the search terms in the record."""
    return set(terms.find(b"\n".join(parts(message)))) | _short_terms(terms, message)


def _short_terms(terms: SearchTerms, message: Message) -> set[tuple[str, str]]:
    """Short search terms match whole fields of the JSON only."""
    from audit.trail.redaction import parse_object

    if not terms.short_columns:
        return set()
    hits: set[tuple[str, str]] = set()
    for part in (message.key(), message.value()):
        hits |= _in_fields(terms, parse_object(part if isinstance(part, bytes) else None))
    return hits


def _in_fields(terms: SearchTerms, value: Mapping[str, Any]) -> set[tuple[str, str]]:
    hits: set[tuple[str, str]] = set()
    for name, inner in value.items():
        hits |= _in_fields(terms, inner) if isinstance(inner, dict) else terms.cell(name, inner)
    return hits
