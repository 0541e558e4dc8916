"""The promises that depend on how rows are read and written, in a session of a real Spark Connect server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdf.testing.conformance.load import LoadPromises
from cdf.testing.conformance.position import PositionPromises
from cdf.testing.conformance.state import StatePromises
from connectors.kafka.event_format import EventFormat
from tests.contract.test_kafka_sink import KafkaHarness, closing
from tests.fixtures.fix_kafka import Kafka


@pytest.fixture
def spark(connect: SparkSession) -> SparkSession:
    """The session of the suite."""
    return connect


class EventPromises:
    test_repaired = PositionPromises.test_a_window_whose_rows_fail_leaves_everything_and_is_applied_after_repair
    test_vanished = PositionPromises.test_a_window_whose_commits_vanish_while_it_is_read_is_not_applied
    test_succeeded = PositionPromises.test_a_runner_that_dies_in_a_window_is_succeeded_without_a_trace


class TestEventsThroughTheDriver(EventPromises):
    test_read_errors = LoadPromises.test_errors_of_reading_come_through_as_they_are

    @pytest.fixture
    def harness(self, kafka: Kafka) -> Iterator[KafkaHarness]:
        yield from closing(KafkaHarness(kafka))


class TestEventsFromTheTasks(EventPromises):
    @pytest.fixture
    def harness(self, kafka: Kafka) -> Iterator[KafkaHarness]:
        yield from closing(KafkaHarness(kafka, small_window_bytes=-1))


class TestACompactedTopicFromTheTasks:
    test_edits = StatePromises.test_inserts_updates_and_deletes_arrive
    test_sequence = StatePromises.test_a_sequence_over_versions_counts_as_its_end
    test_two_puts = StatePromises.test_two_puts_of_one_key_in_one_version_are_refused_whole

    @pytest.fixture
    def harness(self, kafka: Kafka) -> Iterator[KafkaHarness]:
        yield from closing(
            KafkaHarness(kafka, changes="net", format=EventFormat(envelope="row"), small_window_bytes=-1)
        )
