"""Does a backlog reach PostgreSQL faster than by Debezium's JDBC sink out of our own topic?

Three windows like that of ``postgres_window``, one commit each. Ours is timed whole, from the look at the log of the
Delta table to the last commit. The peer reads the events of the same commits from a topic that our Kafka sink has
written before, in a worker of Kafka Connect of its own: two tasks, batches of 10,000 and its reduction buffer, which
writes only the last state of a key. Its rate is that between the first and the last offset that it has committed, so
neither its start nor the way from Delta into the topic counts. The events carry their schemas, because its JSON
converter needs them; with a registry, which our sink does not support, it would read less.

Both begin with copies of one database, and must end with the rows of the source.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.answer import Answer
from benchmarks.jars import fetch_jars
from benchmarks.kafka_state import PARTITIONS, cluster, ends
from benchmarks.lab import Lab, median
from benchmarks.postgres_state import State, fresh, windows
from benchmarks.postgres_window import sizes
from cdf import ChangeFeed, Pipeline
from connectors.kafka import EventFormat, KafkaSink
from connectors.kafka.reader import PartitionReader
from connectors.kafka.topics import NewTopic
from infra.embedded.kafka_jars import KAFKA_VERSION
from infra.spark.java import require_java

__all__ = ["measure"]

AIM = 1.0
VERSION = "3.5.0.Final"
TOPIC = "debezium"
WINDOWS = 3
TIMEOUT_SECONDS = 900.0


def measure(lab: Lab) -> Iterator[Answer]:
    folder = lab.folder / "connect"
    worker = fetch_jars(lab, folder / "worker", f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}")
    connector = f"io.debezium:debezium-connector-jdbc:{VERSION}"
    if not worker or not fetch_jars(lab, folder / "plugins" / "debezium", connector):
        return
    _remove_doubles(folder)
    state = windows(lab, "windows", *sizes(lab))
    commits = state.commits[:WINDOWS]
    _write_topic(lab, state, len(commits))
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    changes = sum(one.total for one in commits)
    for counts in lab.rounds(warm_up=1, timed=3):
        for variant in lab.shuffled(tuple(rates)):
            with fresh(lab, template=state.database) as database:
                if variant == "ours":
                    began = time.monotonic()
                    state.pipeline(database, max_commits=1).run(until=len(commits))
                    rate = changes / (time.monotonic() - began)
                else:
                    rate = _run_connect(lab, folder, database)
                state.check(database, len(commits))
            if counts:
                rates[variant].append(rate)
    ours, theirs = median(rates["ours"]), median(rates["theirs"])
    yield Answer(
        question="postgres_debezium",
        ratio=ours / theirs,
        aim=AIM,
        better="higher",
        words=f"{changes:,} changes in {len(commits)} windows: {ours:,.0f}/s from the Delta table, Debezium {VERSION}"
        f" {theirs:,.0f} events/s from a topic",
        detail={"changes": changes, "per_second": round(ours), "their_per_second": round(theirs), "repetitions": 3},
    )


def _remove_doubles(folder: Path) -> None:
    """Jars that the worker has as well: with a Jackson of its own the connector does not start."""

    def name_of(jar: Path) -> str:
        return re.sub(r"-[0-9].*", "", jar.name)

    present = {name_of(jar) for jar in (folder / "worker").glob("*.jar")}
    for jar in (folder / "plugins" / "debezium").glob("*.jar"):
        if name_of(jar) in present:
            jar.unlink()


def _write_topic(lab: Lab, state: State, versions: int) -> None:
    format = EventFormat(schemas=True)
    sink = KafkaSink(cluster(lab), topic=TOPIC, format=format, create=NewTopic(PARTITIONS))
    Pipeline(ChangeFeed(lab.spark, state.path), sink, key=["id"], start=1, name=TOPIC).run(until=versions)


def _run_connect(lab: Lab, folder: Path, database: str) -> float:
    """→ events per second"""
    name = f"debezium-{secrets.token_hex(4)}"  # a group of consumers of its own, which begins with the first event
    # It only asks for the offsets that the connector's tasks have committed
    consumer = Consumer({"bootstrap.servers": lab.kafka.bootstrap_servers, "group.id": f"connect-{name}"})
    command = [
        *(str(require_java().program), "-Xmx2g", "-cp", str(folder / "worker" / "*")),
        "org.apache.kafka.connect.cli.ConnectStandalone",
        str(_write_worker(lab, folder, port := lab.free_port())),
        str(_write_connector(lab, folder, name, database)),
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            return _measure_rate(lab, consumer, process, f"http://127.0.0.1:{port}/connectors/{name}/status")
        finally:
            process.terminate()
            consumer.close()


def _write_worker(lab: Lab, folder: Path, port: int) -> Path:
    settings = {
        "bootstrap.servers": lab.kafka.bootstrap_servers,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": folder / "offsets",
        "offset.flush.interval.ms": 1000,
        "plugin.path": folder / "plugins",
    }
    file = folder / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def _write_connector(lab: Lab, folder: Path, name: str, database: str) -> Path:
    address = lab.address(database).rpartition("@")[2]
    settings = {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": TOPIC,
        "tasks.max": "2",
        "connection.url": f"jdbc:postgresql://{address}?reWriteBatchedInserts=true",
        "connection.username": "postgres",
        "connection.password": "not asked for",
        "collection.name.format": "customers",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "none",
        "batch.size": "10000",
        "use.reduction.buffer": "true",
        "consumer.override.max.poll.records": "10000",
        "consumer.override.isolation.level": "read_committed",
    }
    file = folder / "connector.json"
    file.write_text(json.dumps({"name": name, "config": settings}))
    return file


def _measure_rate(lab: Lab, consumer: Consumer, process: subprocess.Popen[bytes], status: str) -> float:
    last = _read_last_offsets(lab)
    first: tuple[float, int] | None = None
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        now, done = time.monotonic(), _read_committed(consumer)
        if first is None and sum(done) > 0:
            first = now, sum(done)
        if first is not None and all(next_ > offset for next_, offset in zip(done, last, strict=True)):
            return (sum(done) - first[1]) / (now - first[0])
        if failed := _read_failure(status):
            raise AssertionError(f"Kafka Connect: {failed}")
        time.sleep(0.1)
    raise AssertionError("Kafka Connect has not read the whole topic: see its log")


def _read_failure(status: str) -> str | None:
    """The first line of what failed in a task."""
    with suppress(URLError), urlopen(status, timeout=30) as answer:  # it answers once the connector is there
        for task in json.load(answer)["tasks"]:
            if task["state"] == "FAILED":
                return str(task["trace"]).partition("\n")[0]
    return None


def _read_last_offsets(lab: Lab) -> Sequence[int]:
    """Of events: markers of transactions, which no consumer is given, follow them."""
    found = []
    for number, end in enumerate(ends(lab, TOPIC)):
        reader = PartitionReader(cluster(lab), TOPIC, number, max(0, end - 100))
        found.append(max(message.offset() or 0 for message in reader.stream(end)))
        reader.close()
    return found


def _read_committed(consumer: Consumer) -> list[int]:
    try:
        found = consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], timeout=30)
    except KafkaException:  # the broker has just created the group's topic
        return [0] * PARTITIONS
    return [max(0, one.offset) for one in found]
