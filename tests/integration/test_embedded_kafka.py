"""The embedded broker starts in any folder, keeps data and address, survives a crash and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from cdf.errors import ConfigError
from infra.embedded import kafka as embedded_kafka
from infra.embedded.kafka import EmbeddedKafka
from tests.acceptance.commands import wait_for
from tests.docs.test_how_to import run as run_page
from tests.fixtures.fix_kafka import JAVA_OPTIONS, Kafka
from tests.fixtures.fix_spark import missing_service

IMPATIENT: dict[str, str | int | bool] = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
"""After a crash a broker waits until the controller has forgotten its earlier self; by default for nine seconds."""

PARENT = """
import sys, time
from infra.embedded.kafka import EmbeddedKafka
server = EmbeddedKafka(sys.argv[1], java_options=["-XX:TieredStopAtLevel=1"])
server.start()
print(server.bootstrap_servers, flush=True)
if sys.argv[2] == "stay":
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(kafka_folder: Path) -> Iterator[EmbeddedKafka]:
    """A broker that the tests here may stop."""
    made = EmbeddedKafka(kafka_folder / "it's, ünusual", config=IMPATIENT, java_options=JAVA_OPTIONS)
    try:
        made.start()
    except ConfigError as error:
        missing_service("Kafka", error)
    yield made
    made.close()


def write(bootstrap: str, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, b"key", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [message.value for message in kafka.consume(topic)]


def answers(bootstrap: str) -> bool:
    host, port = bootstrap.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def wait_until_gone(bootstrap: str) -> None:
    wait_for(lambda: not answers(bootstrap), "the broker to be gone", seconds=60)


def wait_until_ended(server: EmbeddedKafka) -> None:
    """A process shuts its ports before it is gone."""
    wait_for(lambda: not server.running(), "the process to end", seconds=60)


def test_what_is_written_is_read(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2, max_message_bytes=5000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"one", b"a", partition=1, timestamp=1700000000000, headers=[("kind", b"insert")])
    producer.produce(topic, None, b"a", partition=1, headers=[("kind", None)])
    producer.produce(topic, b"", None, partition=0)
    assert producer.flush(30) == 0
    refused: list[KafkaError | None] = []
    producer.produce(topic, b"." * 6000, partition=0, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(30) == 0
    assert [error and error.code() for error in refused] == [KafkaError.MSG_SIZE_TOO_LARGE]  # the setting was taken
    read = kafka.consume(topic)
    assert [(one.partition, one.offset, one.key, one.value) for one in read] == [
        (0, 0, None, b""),
        (1, 0, b"a", b"one"),
        (1, 1, b"a", None),
    ]
    assert read[1].timestamp == 1700000000000
    assert [one.headers for one in read] == [(), (("kind", b"insert"),), (("kind", None),)]


def test_a_topic_with_nothing_in_it_is_read_at_once(kafka: Kafka) -> None:
    topic = kafka.topic()
    started = time.monotonic()
    assert kafka.consume(topic) == []
    assert time.monotonic() - started < 25


def test_reading_committed_leaves_out_what_is_open_or_aborted(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=1)
    first = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{kafka.prefix}-first"})
    second = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{kafka.prefix}-second"})
    for producer in (first, second):
        producer.init_transactions(30)
    for value, ends in ((b"kept", first.commit_transaction), (b"aborted", first.abort_transaction)):
        first.begin_transaction()
        first.produce(topic, value)
        first.flush(30)
        ends(30)
    assert values(kafka, topic) == [b"kept"]
    second.begin_transaction()
    second.produce(topic, b"open")
    second.flush(30)
    first.begin_transaction()
    first.produce(topic, b"behind")
    first.commit_transaction(30)
    assert values(kafka, topic) == [b"kept"]
    uncommitted = kafka.consume(topic, isolation="read_uncommitted")
    assert [one.value for one in uncommitted] == [b"kept", b"aborted", b"open", b"behind"]
    second.commit_transaction(30)
    assert values(kafka, topic) == [b"kept", b"open", b"behind"]


def test_a_topic_is_not_made_by_writing_to_it(kafka: Kafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "topic.metadata.propagation.max.ms": 100})
    errors: list[KafkaError] = []
    producer.produce(f"{kafka.prefix}-unknown", b"lost", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.code() for error in errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_a_restart_keeps_data_and_address(server: EmbeddedKafka) -> None:
    kafka = Kafka(server.bootstrap_servers, "restart")
    topic = kafka.topic()
    write(server.bootstrap_servers, topic, b"kept", None)
    server.restart()
    assert server.bootstrap_servers == kafka.bootstrap
    assert values(kafka, topic) == [b"kept", None]


def test_starting_twice_is_starting_once(server: EmbeddedKafka) -> None:
    before = server._pid()
    server.start()
    assert server._pid() == before


def test_nothing_listens_on_the_network(server: EmbeddedKafka) -> None:
    port = server.bootstrap_servers.split(":")[1]
    assert answers(f"127.0.0.1:{port}")
    assert not answers(f"127.0.0.2:{port}")  # this machine as well: whoever listens everywhere answers here


def test_the_data_is_not_for_others(server: EmbeddedKafka) -> None:
    assert server.data.stat().st_mode & 0o077 == 0


def test_the_version_is_the_brokers(server: EmbeddedKafka) -> None:
    assert f"Kafka version: {EmbeddedKafka.version()} " in server.log_file.read_text()


def test_a_broker_of_another_object_is_found_and_stopped(server: EmbeddedKafka) -> None:
    server.start()
    second = EmbeddedKafka(server.directory)
    assert second.running()
    assert second.bootstrap_servers == server.bootstrap_servers
    second.close()
    second.close()
    assert not answers(server.bootstrap_servers)
    wait_until_ended(server)


def test_there_is_no_address_before_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="before its first start"):
        _ = EmbeddedKafka(tmp_path).bootstrap_servers


def test_a_setting_that_kafka_refuses(kafka_folder: Path) -> None:
    server = EmbeddedKafka(kafka_folder / "refused", config={"num.io.threads": "many"}, java_options=JAVA_OPTIONS)
    with pytest.raises(
        ConfigError, match=r"did not start: Invalid value many for configuration num\.io\.threads"
    ) as told:
        server.start()
    assert str(server.log_file) in str(told.value.hint)
    assert not server.running()
    server.close()
    assert "num.io.threads" in server.log_file.read_text()


def test_a_setting_that_only_the_running_broker_refuses(kafka_folder: Path) -> None:
    config = {"min.insync.replicas": 1, "metric.reporters": "no.such.Reporter"}
    server = EmbeddedKafka(kafka_folder / "late", config=config, java_options=JAVA_OPTIONS)
    with pytest.raises(ConfigError, match=r"did not start: .*no\.such\.Reporter"):
        server.start()
    assert not server.running()
    server.config = {}
    with server:  # nothing of the failure stays
        assert Kafka(server.bootstrap_servers, "late").topic() == "late-events"


def test_what_was_acknowledged_outlives_a_kill(kafka_folder: Path) -> None:
    with EmbeddedKafka(kafka_folder / "killed", config=IMPATIENT, java_options=JAVA_OPTIONS) as server:
        kafka = Kafka(server.bootstrap_servers, "killed")
        topic = kafka.topic()
        write(server.bootstrap_servers, topic, b"kept", None)
        server.kill()
        assert not server.running()
        assert not answers(kafka.bootstrap)
        server.start()
        assert server.bootstrap_servers == kafka.bootstrap
        assert values(kafka, topic) == [b"kept", None]
        write(server.bootstrap_servers, topic, b"more")
        assert values(kafka, topic) == [b"kept", None, b"more"]


def test_two_brokers_know_nothing_of_each_other(kafka_folder: Path) -> None:
    with (
        EmbeddedKafka(kafka_folder / "one", java_options=JAVA_OPTIONS) as one,
        EmbeddedKafka(kafka_folder / "two", java_options=JAVA_OPTIONS) as two,
    ):
        corners = [Kafka(server.bootstrap_servers, "same") for server in (one, two)]
        for kafka, value in zip(corners, (b"1", b"2"), strict=True):
            write(kafka.bootstrap, kafka.topic(), value)
        assert [values(kafka, "same-events") for kafka in corners] == [[b"1"], [b"2"]]
        one.stop()
        assert values(corners[1], "same-events") == [b"2"]


def test_a_port_that_another_broker_takes_at_the_last_moment(
    kafka_folder: Path, kafka_server: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one answers where ours was to, and must not be taken for it."""
    taken = kafka_server.bootstrap_servers
    offered = iter([int(taken.split(":")[1])])
    free_port = embedded_kafka.find_free_port
    monkeypatch.setattr(embedded_kafka, "find_free_port", lambda **_: next(offered, 0) or free_port())
    with EmbeddedKafka(kafka_folder / "taken", java_options=JAVA_OPTIONS) as server:
        assert server.bootstrap_servers != taken
        assert Kafka(server.bootstrap_servers, "taken").topic() == "taken-events"
    assert f"failed to bind to {taken}" in server.log_file.read_text()


def test_an_address_that_was_given_away_does_not_change(kafka_folder: Path) -> None:
    with EmbeddedKafka(kafka_folder / "pinned", java_options=JAVA_OPTIONS) as server:
        before = server.bootstrap_servers
        server.stop()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", int(before.split(":")[1])))
            taken.listen()
            with pytest.raises(ConfigError, match="Address already in use"):
                server.start()
        server.start()
        assert server.bootstrap_servers == before


@pytest.mark.parametrize("end", ["killed", "forgot to close"])
def test_a_broker_does_not_outlive_its_process(kafka_folder: Path, end: str) -> None:
    folder = kafka_folder / f"parent {end}"
    command = [sys.executable, "-c", PARENT, str(folder), "stay" if end == "killed" else "end"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        bootstrap = parent.stdout.readline().strip()
        assert bootstrap
        if end == "killed":
            assert answers(bootstrap)
            os.kill(parent.pid, signal.SIGKILL)
        parent.wait(60)
    if end == "killed":
        wait_until_gone(bootstrap)
    assert not answers(bootstrap)  # who ends in order waits for it
    wait_until_ended(EmbeddedKafka(folder))


def test_the_page_about_it(tmp_path: Path) -> None:
    said = run_page("how-to/kafka-locally", tmp_path, None)
    assert "first [b'Ada', b'Hugo', None]" in said
