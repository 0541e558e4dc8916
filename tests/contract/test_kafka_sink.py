"""The Kafka sink keeps every promise on a real broker: as a history of events, and as a compacted topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from cdf.changes.columns import CHANGE_TYPE, COMMIT_VERSION
from cdf.sink import Capabilities
from cdf.testing import SinkConformance
from cdf.testing.conformance.history import HistoryPromises
from cdf.testing.conformance.position import PositionPromises
from connectors.kafka import KafkaSink
from connectors.kafka.client import Cluster
from connectors.kafka.event_format import EventFormat
from connectors.kafka.state import lease as kafka_lease
from connectors.kafka.state.position import PositionReader
from tests.fixtures.fix_kafka import Kafka, Message


class KafkaHarness:
    """A topic and a position topic of the test's own. Instances that a test has left open are closed at its end."""

    def __init__(self, kafka: Kafka, **options: Any) -> None:
        self.kafka, self.options, self.made = kafka, options, list[KafkaSink]()
        self.net = options.get("changes") == "net"
        self.topic = kafka.topic(cleanup_policy="compact" if self.net else "delete")
        self.positions = f"{kafka.prefix}-positions"

    @property
    def capabilities(self) -> Capabilities:
        return self._sink().capabilities

    def new_sink(self, **overrides: Any) -> KafkaSink:
        self.made.append(self._sink(**overrides))
        return self.made[-1]

    def _sink(self, **overrides: Any) -> KafkaSink:
        options = {"lanes": 2, **self.options, **overrides}
        return KafkaSink(Cluster(self.kafka.bootstrap), topic=self.topic, position_topic=self.positions, **options)

    def read_rows(self) -> list[dict[str, Any]]:
        messages = self.kafka.consume(self.topic)
        if self.net:
            last = {message.key: message.value for message in messages}
            return [json.loads(value) for value in last.values() if value is not None]
        return [row for message in messages if message.value is not None for row in changes(message)]

    def expire_lease(self) -> None:
        for sink in self.made:  # as in a process that stands still: nobody renews
            if sink._lease is not None:
                sink._lease._stopped.set()
        reader = PositionReader(Cluster(self.kafka.bootstrap), self.positions, self.topic)
        state = reader.read()
        reader.close()
        lease = {"epoch": state.epoch, "holder": state.holder, "seconds": 0, "pipeline": "", "source": ""}
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        producer.produce(self.positions, json.dumps(lease).encode(), f"{self.topic} lease".encode())
        producer.flush(10)


def changes(message: Message) -> Iterator[dict[str, Any]]:
    """The feed's rows that an event stands for."""
    assert message.value is not None
    event = json.loads(message.value)
    headers = {name: (value or b"").decode() for name, value in message.headers}
    kind, version = headers["deltarelay.change_type"], int(headers["deltarelay.commit_version"])
    if kind == "update":
        images = [("update_preimage", event["before"]), ("update_postimage", event["after"])]
    else:
        images = [(None if kind == "snapshot" else kind, event["after"] or event["before"])]
    for change, row in images:
        yield {**row, CHANGE_TYPE: change, COMMIT_VERSION: version}


@pytest.fixture
def fast_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner shows every 0.3 s that it is alive, so that the tests need not wait 10 s to see it."""
    monkeypatch.setattr(kafka_lease, "RENEW_SECONDS", 0.3)


def closing(harness: KafkaHarness) -> Iterator[KafkaHarness]:
    yield harness
    for sink in harness.made:
        sink.close()


@pytest.mark.usefixtures("fast_renewal")
class TestEventsThroughTheDriver(SinkConformance):
    @pytest.fixture
    def harness(self, kafka: Kafka) -> Iterator[KafkaHarness]:
        yield from closing(KafkaHarness(kafka))


@pytest.mark.usefixtures("fast_renewal")
class TestEventsFromTheTasks(PositionPromises, HistoryPromises):
    """Where rows travel another way. What a window is not needed for was promised above."""

    @pytest.fixture
    def harness(self, kafka: Kafka) -> Iterator[KafkaHarness]:
        yield from closing(KafkaHarness(kafka, small_window_bytes=-1))


@pytest.mark.usefixtures("fast_renewal")
class TestACompactedTopicOfRows(SinkConformance):
    @pytest.fixture
    def harness(self, kafka: Kafka) -> Iterator[KafkaHarness]:
        yield from closing(KafkaHarness(kafka, changes="net", format=EventFormat(envelope="row")))
