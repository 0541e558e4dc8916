"""What stands in the way of a Kafka target: rights that are missing, topics that go or change under a run, tasks that are
tried again. Each is told in words that help; nothing is lost, nothing is doubled, and no key changes its place."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdf import Limits
from cdf.errors import CdfError, ConfigError, TargetNotReady
from cdf.sink import Source
from connectors.kafka import Cluster, KafkaSink, topics
from connectors.kafka.errors import KafkaFault, to_cdf_error
from connectors.kafka.state.position import LaneProgress
from connectors.kafka.write.lane_writer import write_lane
from connectors.kafka.write.record_producer import Event, LaneWork
from infra.embedded import kafka as embedded_kafka
from infra.embedded.kafka import EmbeddedKafka, kafka_jars
from tests.acceptance.commands import REPOSITORY, wait_for
from tests.fixtures.fix_kafka import IMPATIENT, JAVA_OPTIONS, Kafka
from tests.fixtures.fix_spark import missing_service
from tests.integration.delta_table import Table
from tests.integration.test_kafka_lanes import EVENTS, Lane
from tests.integration.test_kafka_pipeline import WAYS, Topic, people

# ── rights ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PASSWORD = "canary-hunter2-9f1c"
Right = tuple[str, str]
"""On what (``topic``, ``letters``, ``positions``, ``ids``, ``cluster``), and which."""
RIGHTS: frozenset[Right] = frozenset(
    {("topic", "write"), ("positions", "write"), ("positions", "read"), ("ids", "write")}
)
"""What a run needs where the topics are there. Write and Read allow Describe as well."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A broker that asks who one is, and what one may do. Whoever comes without a password may do everything."""

    kafka: Kafka
    """Everything."""
    bootstrap: str
    """For ``guest``."""

    @property
    def positions(self) -> str:
        return f"{self.kafka.prefix}-positions"

    def cluster(self, password: str = PASSWORD) -> Cluster:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "guest"}
        return Cluster(self.bootstrap, {**login, "sasl.password": password, "transaction.timeout.ms": 10_000})

    def allow(self, rights: frozenset[Right]) -> None:
        """To ``guest``, on what the test has named. → once the broker knows of it"""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        wanted = [self._binding(on, right) for on, right in rights]
        for made in admin.create_acls(wanted).values():
            made.result(30)
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        deadline = time.monotonic() + 30
        while not set(wanted) <= set(admin.describe_acls(every).result(30)):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _binding(self, on: str, right: str) -> AclBinding:
        prefix = self.kafka.prefix
        kind, name, pattern = {
            "topic": (ResourceType.TOPIC, f"{prefix}-events", ResourcePatternType.LITERAL),
            "letters": (ResourceType.TOPIC, f"{prefix}-letters", ResourcePatternType.LITERAL),
            "positions": (ResourceType.TOPIC, self.positions, ResourcePatternType.LITERAL),
            "ids": (ResourceType.TRANSACTIONAL_ID, f"deltarelay.{prefix}", ResourcePatternType.PREFIXED),
        }[on]
        operation = AclOperation[right.upper()]
        return AclBinding(kind, name, pattern, "User:guest", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture(scope="module")
def guarded_server(kafka_folder: Path) -> Iterator[tuple[str, str]]:
    """→ its address without a login, and the one with. It makes topics that are only asked for, as many clusters do."""
    server = EmbeddedKafka(kafka_folder / "guarded", java_options=JAVA_OPTIONS)
    ports: set[int] = set()
    while len(ports) < 3:
        ports.add(embedded_kafka.find_free_port())
    inside, controller, outside = ports
    plain, login = f"PLAINTEXT://127.0.0.1:{inside}", f"LOGIN://127.0.0.1:{outside}"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    server._ports = inside, controller
    server.config = {
        **IMPATIENT,
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{controller},{login}",
        "advertised.listeners": f"{plain},{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{module} required user_guest="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": True,
    }
    try:
        server.start()
    except ConfigError as error:
        missing_service("Kafka", error)
    yield server.bootstrap_servers, f"127.0.0.1:{outside}"
    server.close()


@pytest.fixture
def guarded(guarded_server: tuple[str, str]) -> Guarded:
    inside, outside = guarded_server
    return Guarded(Kafka(inside, f"t-{secrets.token_hex(5)}"), outside)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Twenty people, for tests that only read it."""
    return people(spark, str(tmp_path_factory.mktemp("people") / "table"))


def refused(error: CdfError, *words: str) -> None:
    """Not worth another try, in words that name what is needed, without any secret."""
    said = str(error.to_dict())
    assert isinstance(error, TargetNotReady), said
    assert not error.transient
    assert [word for word in words if word not in said] == []
    assert PASSWORD not in said
    assert PASSWORD not in repr(error.__cause__)


def listed(kafka: Kafka) -> set[str]:
    """The topics of the test."""
    there = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
    return {name for name in there if name.startswith(kafka.prefix)}


def position_topic(kafka: Kafka) -> None:
    """With another pipeline's record in it: an empty one is read without any right."""
    name = f"{kafka.prefix}-positions"
    topics.create_topic(Cluster(kafka.bootstrap), name, topics.get_position_topic_settings())
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, b"{}", b"other lease")
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("withheld", "words"),
    [
        (frozenset({("topic", "write")}), ["Write", "topic"]),
        (frozenset({("positions", "write")}), ["Write", "position topic"]),
        (frozenset({("positions", "read")}), ["Read", "position topic"]),
        (frozenset({("positions", "read"), ("positions", "write")}), ["Read", "Write", "Describe", "position topic"]),
        (frozenset({("ids", "write")}), ["Write", "transactional ids"]),
    ],
    ids=["topic", "positions write", "positions read", "positions", "ids"],
)
def test_a_right_that_is_missing_is_named_and_nothing_is_written(
    guarded: Guarded, table: Table, withheld: frozenset[Right], words: list[str]
) -> None:
    topic = Topic(guarded.kafka, table)
    position_topic(guarded.kafka)
    guarded.allow(RIGHTS - withheld | {("topic", "describe")})
    with pytest.raises(CdfError) as caught:
        topic.pipeline(cluster=guarded.cluster()).run()
    refused(caught.value, *words)
    assert topic.messages() == []
    assert topic.sink().position().version is None
    guarded.allow(withheld)
    assert topic.pipeline(cluster=guarded.cluster()).run().loaded_rows == 20
    topic.holds_the_table()


def test_a_topic_that_one_may_not_see_is_not_said_to_be_missing_alone(guarded: Guarded, table: Table) -> None:
    """The brokers do not tell the two apart: neither may the words."""
    topic = Topic(guarded.kafka, table)
    position_topic(guarded.kafka)
    guarded.allow(RIGHTS - {("topic", "write")})
    with pytest.raises(CdfError) as caught:
        topic.pipeline(cluster=guarded.cluster()).run()
    refused(caught.value, "Describe")
    assert topic.messages() == []


@pytest.mark.parametrize("missing", ["topic", "positions"])
def test_a_topic_that_one_may_not_make(guarded: Guarded, table: Table, missing: str) -> None:
    if missing == "topic":
        position_topic(guarded.kafka)
    else:
        guarded.kafka.topic()
    before = listed(guarded.kafka)
    topic = Topic(guarded.kafka, table, name=f"{guarded.kafka.prefix}-events", create=topics.NewTopic(3))
    guarded.allow(RIGHTS)
    with pytest.raises(CdfError) as caught:
        topic.pipeline(cluster=guarded.cluster()).run()
    refused(caught.value, "Create")
    assert listed(guarded.kafka) == before
    guarded.allow(frozenset({(missing, "create")}))
    assert topic.pipeline(cluster=guarded.cluster()).run().loaded_rows == 20
    topic.holds_the_table()


def test_verify_needs_to_read_the_topic(guarded: Guarded, table: Table) -> None:
    topic = Topic(guarded.kafka, table)
    position_topic(guarded.kafka)
    guarded.allow(RIGHTS)
    topic.pipeline(cluster=guarded.cluster()).run()
    with pytest.raises(CdfError) as caught:
        topic.pipeline(cluster=guarded.cluster()).verify()
    refused(caught.value, "Read")
    guarded.allow(frozenset({("topic", "read")}))
    assert topic.pipeline(cluster=guarded.cluster()).verify().equal


def test_a_login_that_is_refused_is_not_taken_for_brokers_that_are_away(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "CONNECT_SECONDS", 5.0)
    sink = KafkaSink(guarded.cluster("canary-wrong"), topic="t", position_topic=guarded.positions)
    with pytest.raises(CdfError) as caught:
        sink.open(SOURCE)
    refused(caught.value, "login")
    assert "canary-wrong" not in str(caught.value.to_dict())


# ── what is wrong with the topics ────────────────────────────────────────────────────────────────────────────────────

SOURCE = Source("people", "id-1", T.StructType([T.StructField("id", T.LongType())]), ("id",), "people")


def test_every_problem_is_listed_at_once(kafka: Kafka) -> None:
    """Of all topics that would be written: one that takes no events stops the run as well as another."""
    topic = kafka.topic(min_insync_replicas=2)
    letters = kafka.topic("letters", min_insync_replicas=2)
    positions = kafka.topic("positions", 2, min_insync_replicas=2)
    sink = KafkaSink(
        Cluster(kafka.bootstrap),
        topic=topic,
        changes="net",
        rejects="dead_letter",
        dead_letter_topic=letters,
        position_topic=positions,
    )
    with pytest.raises(TargetNotReady) as caught:
        sink.open(SOURCE)
    problems = sink.inspect(SOURCE).problems
    assert list(problems) == caught.value.fields["problems"]
    for words in (
        (topic, "cleanup.policy=delete"),
        (topic, "min.insync.replicas=2"),
        (letters, "min.insync.replicas=2"),
        (positions, "2 partitions"),
        (positions, "cleanup.policy=delete"),
        (positions, "message.timestamp.type"),
        (positions, "min.insync.replicas=2"),
    ):
        assert [one for one in problems if all(word in one for word in words)], words
    assert sink.position().version is None


def test_a_topic_that_was_made_and_takes_no_events(kafka: Kafka) -> None:
    """The brokers' defaults may say so, too."""
    made = topics.NewTopic(1, 1, {"min.insync.replicas": "2"})
    name = f"{kafka.prefix}-made"
    sink = KafkaSink(
        Cluster(kafka.bootstrap), topic=name, create=made, position_topic=f"{kafka.prefix}-positions", lanes=1
    )
    try:
        with pytest.raises(TargetNotReady, match=r"min\.insync\.replicas=2"):
            sink.open(SOURCE)
    finally:
        sink.close()


# ── topics that go, or change, under a run ───────────────────────────────────────────────────────────────────────────


def windows(topic: Topic, change: Any) -> CdfError:
    """Two windows, and ``change`` between them. → what the run says to it"""
    pipeline = topic.pipeline(
        start=1, limits=Limits(max_commits=1), cluster=Cluster(topic.kafka.bootstrap, {"transaction.timeout.ms": 5_000})
    )
    steps = []

    def between(step: Any) -> None:
        steps.append(step)
        if len(steps) == 1:
            change()

    with pytest.raises(CdfError) as caught:
        pipeline.run(progress=between)
    assert len(steps) == 1
    return caught.value


@pytest.mark.parametrize(
    ("gone", "small"),
    [("events", 1024 * 1024), ("events", -1), ("positions", 1024 * 1024)],
    ids=["events, driver", "events, tasks", "positions"],
)
def test_a_topic_that_is_deleted_under_a_run(
    spark: SparkSession, guarded: Guarded, delta_path: str, small: int, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers would make it anew for whoever asks: with other settings than it had, and without what it held."""
    monkeypatch.setattr("connectors.kafka.client.ANSWER_SECONDS", 5.0)
    monkeypatch.setattr("connectors.kafka.reader.ANSWER_SECONDS", 5.0)
    table = people(spark, delta_path)
    table.sql("update {t} set v = 'b'")
    kafka = guarded.kafka
    topic = Topic(kafka, table, small_window_bytes=small)
    name = f"{kafka.prefix}-{gone}"

    def delete() -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([name], operation_timeout=30)[name].result(30)

    error = windows(topic, delete)
    assert name not in listed(kafka)
    with pytest.raises(TargetNotReady) as caught:
        topic.pipeline(create=topics.NewTopic(3)).run()
    if gone == "events":
        refused(error, "topic")
        refused(caught.value, "deleted")
        assert topic.sink().position().version == 1
    else:
        refused(caught.value, "no position")
        assert len(topic.messages()) == 20
    assert name not in listed(kafka)


def test_a_topic_that_was_made_anew_is_not_the_one_that_was_written(
    spark: SparkSession, kafka: Kafka, delta_path: str
) -> None:
    """As one empties a topic. That somebody has written since does not hide it."""
    table = people(spark, delta_path)
    topic = Topic(kafka, table)
    topic.pipeline().run()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic.topic], operation_timeout=30)[topic.topic].result(30)
    kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic.topic, b"somebody's")
    producer.flush(30)
    table.sql("update {t} set v = 'b'")
    with pytest.raises(TargetNotReady, match="recreated"):
        topic.pipeline().run()
    assert len(topic.messages()) == 1


def test_records_that_went_with_their_age_count_as_written(table: Table, kafka: Kafka) -> None:
    topic = Topic(kafka, table)
    topic.pipeline().run()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    places = [TopicPartition(topic.topic, number, OFFSET_END) for number in range(3)]
    for gone in admin.delete_records(places).values():
        gone.result(30)
    assert topic.messages() == []
    assert topic.pipeline().run().windows == 0
    with pytest.raises(TargetNotReady, match="no position"):
        Topic(kafka, table, name=topic.topic, position_topic=f"{kafka.prefix}-other").pipeline().run()
    assert topic.messages() == []


@WAYS
def test_partitions_that_are_added_under_a_run(spark: SparkSession, kafka: Kafka, delta_path: str, small: int) -> None:
    """Whoever follows for weeks meets it there, and not at the next start."""
    table = people(spark, delta_path)
    table.sql("update {t} set v = 'b'")
    topic = Topic(kafka, table, small_window_bytes=small)

    def add() -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(topic.topic, 7)])[topic.topic].result(30)
        wait_for(lambda: len(admin.list_topics(topic.topic, 30).topics[topic.topic].partitions) == 7, "the partitions")

    refused(windows(topic, add), "partitions")
    assert topic.sink().position().version == 1
    assert {message.partition for message in topic.messages()} <= {0, 1, 2}


# ── lanes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lane_that_stands_still_for_longer_than_its_transaction(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers end it. What was in it is not seen, the attempt is worth another, and that one has all."""
    monkeypatch.setattr("connectors.kafka.write.lane_writer.SUCCESSOR_SECONDS", 2.0)
    lane = Lane(kafka, **{"transaction.timeout.ms": 5_000})

    def standing() -> Iterator[Event]:
        for index, one in enumerate(EVENTS):
            if index == 500:
                time.sleep(12)  # they look once in a second, here
            yield one

    try:
        work = lane.begins(5, 5)
        with pytest.raises(KafkaFault) as caught:
            write_lane(work, 0, standing())
        assert lane.read() == []
        assert caught.value.name == "LANE_FENCED" or to_cdf_error(caught.value, "writing events").transient
        assert write_lane(work, 0, EVENTS).events == len(EVENTS)
        lane.holds(EVENTS)
    finally:
        lane.runner.close()


def test_a_key_is_where_a_java_producer_would_have_put_it(spark: SparkSession, kafka: Kafka, seed: int) -> None:
    chance = random.Random(seed)
    keys = {chance.randbytes(chance.randrange(40)) for _ in range(200)}
    keys |= {b"", b"\0", b"\xff" * 5, '{"name":"Łódź 😀"}'.encode(), b"{" * 20_000}
    keys |= {b'{"id":%d}' % number for number in range(-30, 30)}
    lane = Lane(kafka)
    try:
        events = [Event(key, b"v", False, "insert", 5, 0, str(number)) for number, key in enumerate(sorted(keys))]
        write_lane(lane.begins(5, 5), 0, events)
        placed = {message.key: message.partition for message in lane.read()}
    finally:
        lane.runner.close()
    assert placed == chosen_by_java(spark, keys, partitions=3)


def chosen_by_java(spark: SparkSession, keys: Iterable[bytes], partitions: int) -> dict[bytes, int]:
    """Kafka's own class decides, in Spark's JVM."""
    gateway: Any = spark.sparkContext._gateway
    java = gateway.jvm.java
    (jar,) = (one for one in kafka_jars() if one.name.startswith("kafka-clients"))
    places, kinds, given = (
        gateway.new_array(kind, size) for kind, size in ((java.net.URL, 1), (java.lang.Class, 2), (java.lang.Object, 2))
    )
    places[0] = java.io.File(str(jar)).toURI().toURL()
    kinds[0], kinds[1] = java.lang.Class.forName("[B"), java.lang.Integer.TYPE
    partitioner = java.net.URLClassLoader(places).loadClass(
        "org.apache.kafka.clients.producer.internals.BuiltInPartitioner"
    )
    choose = partitioner.getMethod("partitionForKey", kinds)
    found = {}
    for key in keys:
        given[0], given[1] = key, partitions
        found[key] = choose.invoke(None, given)
    return found


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_attempts_of_every_task_at_once(
    spark: SparkSession, kafka: Kafka, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As speculation has it. One shuts the other out, and both come back with what the lane has."""

    def twice(work: LaneWork, lane: int, events: Iterable[Event]) -> LaneProgress:
        rows, both = list(events), threading.Barrier(2)

        def together() -> Iterator[Event]:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(5)  # in vain where the other one was shut out before its first event
            yield from rows

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: write_lane(work, lane, together()), range(2))
        assert first == second
        return first

    monkeypatch.setattr("connectors.kafka.write.strategies.write_lane", twice)
    topic = Topic(kafka, table)
    assert topic.pipeline().run().loaded_rows == 20
    topic.holds_the_table()


RETRIED = """
import os, signal, sys
from pathlib import Path
from pyspark import TaskContext
import connectors.kafka.write.strategies
from cdf import ChangeFeed, Pipeline
from connectors.kafka import Cluster, KafkaSink
from connectors.kafka.write.lane_writer import write_lane
from infra.spark.session_builder import session

path, bootstrap, topic, positions, folder = sys.argv[1:]

def faulty(work, lane, events):
    attempt = TaskContext.get().attemptNumber()
    Path(folder, f"lane {lane}, attempt {attempt}").touch()
    done = write_lane(work, lane, dying(events) if (lane, attempt) == (1, 0) else events)
    if (lane, attempt) == (0, 0):
        raise OSError("lost after its commit")
    return done

def dying(events):
    yield next(events)
    os.kill(os.getpid(), signal.SIGKILL)

connectors.kafka.write.strategies.write_lane = faulty
sink = KafkaSink(Cluster(bootstrap), topic=topic, position_topic=positions, lanes=3)
spark = session(master="local[2,4]")
print(Pipeline(ChangeFeed(spark, path), sink, key=("id",), name="people").run().loaded_rows)
"""


def test_tasks_that_spark_tries_again(kafka: Kafka, table: Table, jars: str, tmp_path: Path) -> None:
    """One that is lost after its lane was committed, and one whose worker is killed before."""
    topic = Topic(kafka, table)
    words = [table.path, kafka.bootstrap, topic.topic, f"{kafka.prefix}-positions", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", RETRIED, *words],
        env={**os.environ, "DELTARELAY_JARS": jars, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.strip() == "20", done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {
        f"lane {lane}, attempt {attempt}" for lane, attempt in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0))
    }
    topic.holds_the_table()
