"""The clients of librdkafka that the sink works with, and their settings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.kafka.errors import KafkaFault, fault_of, is_fenced

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer
    from confluent_kafka.admin import AdminClient

__all__ = [
    "ANSWER_SECONDS",
    "Cluster",
    "Headers",
    "Reader",
    "Transactional",
    "bounds",
    "faults",
    "gone_before",
    "silent",
]

Headers = Sequence[tuple[str, str | bytes | None]]

ANSWER_SECONDS = 30.0
"""So long one request may take, tries included. A broker that restarts is back by then."""
TRANSACTION_SECONDS = 60.0
"""What becomes of a killed runner's open transaction is settled after so long, or by its successor."""
_PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
    # The partition that Java's clients choose for the same key
    "partitioner": "murmur2_random",
    # Only what failed is told: a callback for each event would halve the speed
    "delivery.report.only.error": True,
}


@contextlib.contextmanager
def faults() -> Iterator[None]:
    """The client's exceptions become ``KafkaFault``; what its messages quote stays out of the chain."""
    from confluent_kafka import KafkaException

    try:
        yield
        return
    except (KafkaException, SystemError) as error:
        fault = fault_of(error)
    except TimeoutError:
        fault = KafkaFault("_TIMED_OUT")
    raise fault


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach it. Travels to the tasks; its repr shows no settings, among which may be passwords."""

    bootstrap_servers: str
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)

    def settings(self, **further: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": "deltarelay",
            "log_level": 0,
            "socket.connection.setup.timeout.ms": 10_000,
            # A topic that was deleted under a run would come back empty, with the brokers' defaults
            "allow.auto.create.topics": False,
            **further,
            **self.client,
        }

    def admin(self, **further: Any) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        mine = {name: value for name, value in self.settings(**further).items() if name not in _NOT_FOR_ADMIN}
        with faults():
            return AdminClient(mine, logger=silent())

    def consumer(self, **further: Any) -> Consumer:
        from confluent_kafka import Consumer

        with faults():
            return Consumer(
                {
                    **self.settings(),
                    "group.id": "deltarelay",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    # The end is asked for, not waited for
                    "fetch.wait.max.ms": 10,
                    **further,
                },
                logger=silent(),
            )

    @property
    def transaction_seconds(self) -> float:
        return float(self.client.get("transaction.timeout.ms", TRANSACTION_SECONDS * 1000)) / 1000


_NOT_FOR_ADMIN = {"transaction.timeout.ms", "message.timeout.ms", "compression.type", "linger.ms", "batch.size"}


def silent() -> Any:
    """The client prints to stderr otherwise, whatever the log's settings are."""
    import logging

    silent = logging.getLogger("deltarelay.kafka.client")
    if not silent.handlers:  # it is the same logger for every client of the process
        silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return silent


class Transactional:
    """A producer with a transactional id. Whoever begins with the same id later shuts this one out."""

    def __init__(
        self, cluster: Cluster, name: str, *, max_bytes: int | None = None, seconds: float | None = None
    ) -> None:
        """``seconds``: of one transaction, where that is less than the connection's."""
        from confluent_kafka import Producer

        milliseconds = int(min(seconds or cluster.transaction_seconds, cluster.transaction_seconds) * 1000)
        self._failed: KafkaFault | None = None
        settings: dict[str, Any] = {
            **_PRODUCER,
            **({"message.max.bytes": max_bytes} if max_bytes else {}),
        }
        settings |= cluster.settings()
        settings |= {
            "transactional.id": name,
            "transaction.timeout.ms": milliseconds,
            "message.timeout.ms": milliseconds,
            "on_delivery": self._delivered,
        }
        with faults():
            self._producer: Producer = Producer(settings, logger=silent())

    def _delivered(self, error: Any, _: Any) -> None:
        # What is purged failed with something else before
        if error is not None and self._failed is None and not error.name().startswith("_PURGE"):
            self._failed = KafkaFault(error.name())

    def init(self) -> None:
        """Shut out whoever had the id before, and end what was left open. Takes as long as that needs."""
        self._again(lambda: self._producer.init_transactions(ANSWER_SECONDS))

    def begin(self) -> None:
        self._failed = None
        with faults():
            self._producer.begin_transaction()

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """→ at once, unless the queue is full."""
        while True:
            with faults():
                try:
                    self._producer.produce(topic, value, key, headers=list(headers))
                except BufferError:
                    self._producer.poll(0.05)
                else:
                    return
            if self._failed is not None:
                raise self._failed

    def topic(self, name: str) -> Any:
        """What the brokers say of it now; this producer goes by it from here on."""
        with faults():
            return self._producer.list_topics(name, ANSWER_SECONDS).topics[name]

    @property
    def raw(self) -> Producer:
        """For a loop that has no time for a call in between. The caller catches BufferError."""
        return self._producer

    def poll(self, seconds: float = 0.0) -> None:
        with faults():
            self._producer.poll(seconds)
        if self._failed is not None:
            raise self._failed

    def flush(self) -> int:
        """Hand over what is queued. → how many records are left"""
        # A producer that was shut out fails here in a way that tells nothing; the commit tells what it was
        with faults(), contextlib.suppress(SystemError):
            return int(self._producer.flush(ANSWER_SECONDS))
        return 0

    def commit(self) -> None:
        """Everything since ``begin`` becomes visible together, or a KafkaFault is raised."""
        left = self.flush()
        try:
            if left:
                raise KafkaFault("_TIMED_OUT")
            # The same commit again is the same commit: librdkafka goes on with the one that is under way
            self._again(lambda: self._producer.commit_transaction(ANSWER_SECONDS))
        except KafkaFault as fault:
            if self._failed is None or is_fenced(fault):
                raise
            raise self._failed from None  # what a record failed of says more than that some did

    def reason(self, fault: KafkaFault) -> KafkaFault:
        """A transaction that has failed takes nothing more (``_STATE``); only the commit, which it refuses, tells why."""
        if fault.name != "_STATE":
            return fault
        try:
            with faults():
                self._producer.commit_transaction(ANSWER_SECONDS)
        except KafkaFault as told:
            return told
        return fault

    def abort(self) -> None:
        with contextlib.suppress(KafkaFault), faults():
            self._producer.abort_transaction(ANSWER_SECONDS)

    @staticmethod
    def _again(call: Any) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                with faults():
                    call()
                return
            except KafkaFault as fault:
                if fault.name not in ("_TIMED_OUT", "CONCURRENT_TRANSACTIONS") or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        """Drop what is queued and the connection; an open transaction is ended by the id's next owner."""
        with contextlib.suppress(Exception):
            self._producer.purge()
            self._producer.flush(0)
        with contextlib.suppress(AttributeError):
            del self._producer  # it knows this object, and would stay with its threads until somebody looks for circles


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Where a partition begins and ends; ``consumer`` reads uncommitted, so open transactions and all."""
    from confluent_kafka import TopicPartition

    try:
        with faults():
            found = consumer.get_watermark_offsets(TopicPartition(topic, partition), ANSWER_SECONDS, cached=False)
    except KafkaFault as fault:
        # So it calls a partition that has no leader at this moment, too
        raise KafkaFault("_TRANSPORT" if fault.name == "_UNKNOWN_PARTITION" else fault.name) from None
    if found is None:
        raise KafkaFault("_TIMED_OUT")
    return found


def gone_before(error: Any, consumer: Consumer, topic: str, partition: int, at: int) -> int | None:
    """Where a reader of a partition goes on whose next record retention has removed while it read; None: the error is
    another one. ``consumer`` reads uncommitted."""
    if error.name() not in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        return None
    low, _ = bounds(consumer, topic, partition)
    return low if low > at else None


class Reader:
    """Reads one partition from where it stood, up to the end as of the moment of asking. For one thread at a time."""

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0, offset: int = 0) -> None:
        self.offset = offset
        self._topic, self._partition = topic, partition
        # The brokers look for transactions whose time is over every ten seconds
        self._patience = cluster.transaction_seconds + 15
        self._committed = cluster.consumer()
        # Tells the end of everything, also of what is not committed yet
        self._all = cluster.consumer(**{"isolation.level": "read_uncommitted"})

    def read(self) -> Iterator[Message]:
        """What was committed since the last time. Where it breaks off, the next time goes on after what was handed out.

        An open transaction hides whatever was committed behind it. Its end is waited for, which the brokers see to where its
        producer is gone (``_TIMED_OUT`` otherwise): a record that is there already must not be missed.
        """
        low, end = bounds(self._all, self._topic, self._partition)
        yield from self.stream(end, low=low)

    def stream(self, end: int, *, low: int | None = None) -> Iterator[Message]:
        """The committed records before the offset ``end``, one after the other. ``low``: where the partition begins, if
        that is known already."""
        from confluent_kafka import KafkaError, TopicPartition

        if low is None:
            low, _ = bounds(self._all, self._topic, self._partition)
        self.offset = max(self.offset, low)
        if self.offset >= end:
            return
        deadline = time.monotonic() + self._patience
        with faults():
            self._committed.assign([TopicPartition(self._topic, self._partition, self.offset)])
        try:
            while self.offset < end:
                if time.monotonic() > deadline:
                    raise KafkaFault("_TIMED_OUT")
                # One by one: to ask for many would be to wait for them
                with faults():
                    message = self._committed.poll(0.2)
                if message is None:
                    continue
                error, at = message.error(), int(message.offset() or 0)
                if error is None and at >= end:
                    self.offset = end  # what came later is for the next time
                elif error is None:
                    self.offset = at + 1
                    yield message
                    deadline = time.monotonic() + self._patience
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.offset = max(self.offset, at)  # the last records may be no one's to read
                elif (low := gone_before(error, self._all, self._topic, self._partition, self.offset)) is not None:
                    self.offset = low
                    with faults():
                        self._committed.assign([TopicPartition(self._topic, self._partition, low)])
                # No group is joined: the client asks for its coordinator all the same
                elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise KafkaFault(error.name())
        finally:
            with faults():
                self._committed.unassign()

    def close(self) -> None:
        for consumer in (self._committed, self._all):
            with contextlib.suppress(Exception):
                consumer.close()
