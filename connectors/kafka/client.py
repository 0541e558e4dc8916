"""Clients of librdkafka: settings of a cluster, and a transactional producer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.kafka.errors import KafkaFault, is_fenced, to_fault

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

__all__ = [
    "ANSWER_SECONDS",
    "Cluster",
    "Headers",
    "TransactionalProducer",
    "get_silent_logger",
    "wrap_client_errors",
]

Headers = Sequence[tuple[str, str | bytes | None]]

ANSWER_SECONDS = 30.0
"""Time limit of one request, retries included. A broker that restarts is available again by then."""
TRANSACTION_SECONDS = 60.0
"""After this time the brokers abort the open transaction of a killed runner, unless its successor has done so before."""
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
    # Only failures are reported: a callback for each event would halve the throughput
    "delivery.report.only.error": True,
}
_NOT_FOR_ADMIN = {"transaction.timeout.ms", "message.timeout.ms", "compression.type", "linger.ms", "batch.size"}


@contextlib.contextmanager
def wrap_client_errors() -> Iterator[None]:
    """Raise a KafkaFault instead of the client's exception, whose text may quote values, without it in the chain."""
    from confluent_kafka import KafkaException

    try:
        yield
        return
    except (KafkaException, SystemError) as error:
        fault = to_fault(error)
    except TimeoutError:
        fault = KafkaFault("_TIMED_OUT")
    raise fault


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to connect to a Kafka cluster. Pickled to the tasks; the repr leaves out settings, which may be passwords."""

    bootstrap_servers: str
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)

    def build_settings(self, **further: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": "deltarelay",
            "log_level": 0,
            "socket.connection.setup.timeout.ms": 10_000,
            # A topic that is deleted during a run would be recreated empty, with the brokers' defaults
            "allow.auto.create.topics": False,
            **further,
            **self.client,
        }

    def create_admin(self, **further: Any) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        settings = {name: value for name, value in self.build_settings(**further).items() if name not in _NOT_FOR_ADMIN}
        with wrap_client_errors():
            return AdminClient(settings, logger=get_silent_logger())

    def create_consumer(self, **further: Any) -> Consumer:
        from confluent_kafka import Consumer

        with wrap_client_errors():
            return Consumer(
                {
                    **self.build_settings(),
                    "group.id": "deltarelay",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    # Readers ask for the end of a partition instead of waiting at it
                    "fetch.wait.max.ms": 10,
                    **further,
                },
                logger=get_silent_logger(),
            )

    @property
    def transaction_seconds(self) -> float:
        return float(self.client.get("transaction.timeout.ms", TRANSACTION_SECONDS * 1000)) / 1000


def get_silent_logger() -> Any:
    """Return a logger that discards everything. Without a logger the client prints to stderr."""
    import logging

    silent = logging.getLogger("deltarelay.kafka.client")
    if not silent.handlers:  # all clients of the process share this logger
        silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return silent


class TransactionalProducer:
    """A producer with a transactional id. A later producer that calls ``init`` with the same id fences this one."""

    def __init__(
        self, cluster: Cluster, name: str, *, max_bytes: int | None = None, seconds: float | None = None
    ) -> None:
        """``name``: the transactional id. ``seconds``: time limit of one transaction, if below that of the connection."""
        from confluent_kafka import Producer

        milliseconds = int(min(seconds or cluster.transaction_seconds, cluster.transaction_seconds) * 1000)
        self._failed: KafkaFault | None = None
        settings: dict[str, Any] = {
            **_PRODUCER,
            **({"message.max.bytes": max_bytes} if max_bytes else {}),
        }
        settings |= cluster.build_settings()
        settings |= {
            "transactional.id": name,
            "transaction.timeout.ms": milliseconds,
            "message.timeout.ms": milliseconds,
            "on_delivery": self._record_failure,
        }
        with wrap_client_errors():
            self._producer: Producer = Producer(settings, logger=get_silent_logger())

    def _record_failure(self, error: Any, _: Any) -> None:
        # A purged record follows another failure, which is the one to report
        if error is not None and self._failed is None and not error.name().startswith("_PURGE"):
            self._failed = KafkaFault(error.name())

    def init(self) -> None:
        """Fence earlier producers with this id, and end their open transactions; wait until both are done."""
        self._retry(lambda: self._producer.init_transactions(ANSWER_SECONDS))

    def begin(self) -> None:
        self._failed = None
        with wrap_client_errors():
            self._producer.begin_transaction()

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Queue a record; waits only while the queue is full."""
        while True:
            with wrap_client_errors():
                try:
                    self._producer.produce(topic, value, key, headers=list(headers))
                except BufferError:
                    self._producer.poll(0.05)
                else:
                    return
            if self._failed is not None:
                raise self._failed

    def describe_topic(self, name: str) -> Any:
        """Return the brokers' present metadata of the topic, which this producer uses from now on."""
        with wrap_client_errors():
            return self._producer.list_topics(name, ANSWER_SECONDS).topics[name]

    @property
    def raw(self) -> Producer:
        """The client itself, for a loop in which one more call per record is too slow. The caller handles BufferError."""
        return self._producer

    def poll(self, seconds: float = 0.0) -> None:
        with wrap_client_errors():
            self._producer.poll(seconds)
        if self._failed is not None:
            raise self._failed

    def flush(self) -> int:
        """Deliver the queued records; return how many are left."""
        # A fenced producer fails here without naming a cause; the commit names it
        with wrap_client_errors(), contextlib.suppress(SystemError):
            return int(self._producer.flush(ANSWER_SECONDS))
        return 0

    def commit(self) -> None:
        """Make everything since ``begin`` visible together. Raises KafkaFault."""
        left = self.flush()
        try:
            if left:
                raise KafkaFault("_TIMED_OUT")
            # A repeated commit is safe: librdkafka continues the commit that is in progress
            self._retry(lambda: self._producer.commit_transaction(ANSWER_SECONDS))
        except KafkaFault as fault:
            if self._failed is None or is_fenced(fault):
                raise
            raise self._failed from None  # the cause of a failed record is more precise

    def find_cause(self, fault: KafkaFault) -> KafkaFault:
        """Return why a transaction failed. A failed one rejects records with ``_STATE``; only a commit names the cause."""
        if fault.name != "_STATE":
            return fault
        try:
            with wrap_client_errors():
                self._producer.commit_transaction(ANSWER_SECONDS)
        except KafkaFault as cause:
            return cause
        return fault

    def abort(self) -> None:
        with contextlib.suppress(KafkaFault), wrap_client_errors():
            self._producer.abort_transaction(ANSWER_SECONDS)

    @staticmethod
    def _retry(call: Callable[[], object]) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                with wrap_client_errors():
                    call()
                return
            except KafkaFault as fault:
                if fault.name not in ("_TIMED_OUT", "CONCURRENT_TRANSACTIONS") or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        """Drop queued records and the connection. The next producer with this id ends an open transaction."""
        with contextlib.suppress(Exception):
            self._producer.purge()
            self._producer.flush(0)
        with contextlib.suppress(AttributeError):
            # The client refers to this object: without this, its threads would live until the next garbage collection
            del self._producer
