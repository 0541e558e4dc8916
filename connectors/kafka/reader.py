"""Reads partitions of a topic up to their present end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from connectors.kafka.client import ANSWER_SECONDS, Cluster, wrap_client_errors
from connectors.kafka.errors import KafkaFault

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["PartitionReader", "find_resume_offset", "read_commit_version", "read_watermarks"]


def read_watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset of a partition and its end. ``consumer`` reads uncommitted: open transactions count."""
    from confluent_kafka import TopicPartition

    try:
        with wrap_client_errors():
            found = consumer.get_watermark_offsets(TopicPartition(topic, partition), ANSWER_SECONDS, cached=False)
    except KafkaFault as fault:
        # The client reports a partition without a leader under this name, too
        raise KafkaFault("_TRANSPORT" if fault.name == "_UNKNOWN_PARTITION" else fault.name) from None
    if found is None:
        raise KafkaFault("_TIMED_OUT")
    return found


def find_resume_offset(error: Any, consumer: Consumer, topic: str, partition: int, at: int) -> int | None:
    """Return where to continue after retention has removed the record at offset ``at``; None if that is not the cause of
    ``error``. ``consumer`` reads uncommitted."""
    if error.name() not in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        return None
    low, _ = read_watermarks(consumer, topic, partition)
    return low if low > at else None


def read_commit_version(message: Message) -> int | None:
    """Return the source's commit version from the headers; None for a record that this package did not write."""
    headers: Any = message.headers() or ()
    version = dict(headers).get("deltarelay.commit_version")
    return None if version is None else int(version)


class PartitionReader:
    """Reads the committed records of one partition from an offset, each time up to the present end.

    For one thread at a time.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0, offset: int = 0) -> None:
        self.offset = offset
        self._topic, self._partition = topic, partition
        # The brokers look every ten seconds for transactions whose time limit has passed
        self._patience = cluster.transaction_seconds + 15
        self._committed = cluster.create_consumer()
        # Reports the end of the partition including transactions that are not committed yet
        self._all = cluster.create_consumer(**{"isolation.level": "read_uncommitted"})

    def read(self) -> Iterator[Message]:
        """Yield what was committed since the last call. After an interruption the next call continues behind the last
        record that was yielded.

        An open transaction hides whatever was committed behind it. The reader waits for its end, because it must not miss
        a durable record; the brokers end the transaction of a dead producer (otherwise ``_TIMED_OUT``).
        """
        low, end = read_watermarks(self._all, self._topic, self._partition)
        yield from self.stream(end, low=low)

    def stream(self, end: int, *, low: int | None = None) -> Iterator[Message]:
        """Yield the committed records before the offset ``end``. ``low``: the first offset of the partition, if known."""
        from confluent_kafka import KafkaError, TopicPartition

        if low is None:
            low, _ = read_watermarks(self._all, self._topic, self._partition)
        self.offset = max(self.offset, low)
        if self.offset >= end:
            return
        deadline = time.monotonic() + self._patience
        with wrap_client_errors():
            self._committed.assign([TopicPartition(self._topic, self._partition, self.offset)])
        try:
            while self.offset < end:
                if time.monotonic() > deadline:
                    raise KafkaFault("_TIMED_OUT")
                # One record per call: a call for many records would wait until there are that many
                with wrap_client_errors():
                    message = self._committed.poll(0.2)
                if message is None:
                    continue
                error, at = message.error(), int(message.offset() or 0)
                if error is None and at >= end:
                    self.offset = end  # later records belong to the next call
                elif error is None:
                    self.offset = at + 1
                    yield message
                    deadline = time.monotonic() + self._patience
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.offset = max(self.offset, at)  # the last offsets may be markers, which no reader gets
                elif (
                    low := find_resume_offset(error, self._all, self._topic, self._partition, self.offset)
                ) is not None:
                    self.offset = low
                    with wrap_client_errors():
                        self._committed.assign([TopicPartition(self._topic, self._partition, low)])
                # The reader joins no group, but the client asks for the group's coordinator anyway
                elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise KafkaFault(error.name())
        finally:
            with wrap_client_errors():
                self._committed.unassign()

    def close(self) -> None:
        for consumer in (self._committed, self._all):
            with contextlib.suppress(Exception):
                consumer.close()
