"""What writes ready values into a topic and does nothing else: no keys, no headers, no transactions, no Spark.

Two of them, with the same settings and the same values, taken from the window's own events: Kafka's own
``ProducerPerformance`` (its jar, which a broker does not need, comes from Maven through Ivy), and a loop over librdkafka's
``produce`` in Python, the client that the sink works with.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.jars import fetch_jars
from benchmarks.kafka_state import PARTITIONS, cluster, ends
from benchmarks.lab import Lab
from connectors.kafka.topics import NewTopic, create_topic
from infra.embedded.kafka_jars import KAFKA_VERSION, kafka_jars
from infra.spark.java import require_java

__all__ = ["by_librdkafka", "by_producer_performance", "has_tools"]

SETTINGS: dict[str, str | int] = {"acks": "all", "compression.type": "lz4", "batch.size": 1_000_000, "linger.ms": 20}
_STEADY = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec")


def has_tools(lab: Lab) -> bool:
    """Whether ``ProducerPerformance`` can be had."""
    # Its jar alone: the broker's have the rest of what it needs
    coordinate = f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}"
    return lab.once("kafka-tools", lambda: fetch_jars(lab, _tools(lab), coordinate, confs=("master",)))


def _tools(lab: Lab) -> Path:
    return lab.folder / "kafka-tools"


def by_producer_performance(lab: Lab, topic: str, values: Sequence[bytes], count: int) -> float:
    """→ seconds for ``count`` records, chosen from the values by chance, after half as many that warm its JVM up"""
    create_topic(cluster(lab), topic, NewTopic(PARTITIONS))
    payload = lab.folder / "payload"
    payload.write_bytes(b"\n".join(values))
    warm_up = count // 2
    command = [
        *(str(require_java().program), "-Xmx1g", "-cp", f"{kafka_jars()[0].parent / '*'}:{_tools(lab) / '*'}"),
        *("org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", lab.kafka.bootstrap_servers),
        *("--topic", topic, "--throughput", "-1", "--payload-file", str(payload)),
        *("--num-records", str(warm_up + count), "--warmup-records", str(warm_up)),
        *("--command-property", *(f"{name}={value}" for name, value in SETTINGS.items())),
    ]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    _check_count(lab, topic, warm_up + count)
    sent, per_second = _STEADY.findall(said)[-1]
    assert int(sent) == count, said
    return count / float(per_second)


def by_librdkafka(lab: Lab, topic: str, values: Sequence[bytes], count: int) -> float:
    """→ seconds for ``count`` records, from the first ``produce`` until all are acknowledged"""
    create_topic(cluster(lab), topic, NewTopic(PARTITIONS))
    settings = {**SETTINGS, "delivery.report.only.error": True, "queue.buffering.max.messages": 100_000}
    producer = Producer({"bootstrap.servers": lab.kafka.bootstrap_servers, **settings})
    began = time.monotonic()
    for value in islice(cycle(values), count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(60)
    seconds = time.monotonic() - began
    assert left == 0, left
    _check_count(lab, topic, count)
    return seconds


def _check_count(lab: Lab, topic: str, count: int) -> None:
    found = sum(ends(lab, topic))
    if found != count:
        raise AssertionError(f"the limit has written {found} records instead of {count}")
