"""The process that commits for ``benchmarks.kafka_freshness``, with a Spark and a ``read_committed`` consumer of its own.

A line of stdin is a number of rows to commit; the answer is a line of JSON: the version, and the seconds from the commit's
file in the log to its last event at the consumer (missing where it did not come within a minute).
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.spark.session_builder import session

PATIENCE_SECONDS = 60.0


class Watcher(threading.Thread):
    """Takes a commit's events while the commit is still being made; each row is one event."""

    def __init__(self, consumer: Consumer, rows: int) -> None:
        super().__init__(daemon=True)
        self._consumer, self._left = consumer, rows
        self.seen_at: float | None = None

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._left and time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            self._left -= 1
        if not self._left:
            self.seen_at = time.time()


def consumer_of(servers: str, topic: str) -> Consumer:
    """At the beginning of the topic, which is still empty."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "freshness",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return consumer


def main(path: str, servers: str, topic: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        consumer = consumer_of(servers, topic)
        spark = session(
            app_name="deltarelay-bench-writer",
            master="local[2]",
            log_file=Path(folder) / "spark.log",
            conf={"spark.driver.memory": "1g"},
        )
        first = 0
        for line in sys.stdin:
            rows = int(line)
            watcher = Watcher(consumer, rows)
            watcher.start()
            frame = spark.range(first, first + rows).selectExpr(
                "id", "concat('name ', id) as name", "cast(id * 1.25 as decimal(12,2)) as amount"
            )
            frame.coalesce(1).write.format("delta").mode("append").save(path)
            file = max((Path(path) / "_delta_log").glob("*.json"))
            committed_at = file.stat().st_ctime  # when it got its name, and so became a commit
            watcher.join()
            found: dict[str, Any] = {"version": int(file.stem)}
            if watcher.seen_at is not None:
                found["seconds"] = watcher.seen_at - committed_at
            print(json.dumps(found), flush=True)
            first += rows
        consumer.close()
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
