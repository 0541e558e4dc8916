"""How long after a commit at the source is the event readable in Kafka?

As ``freshness`` has it: commit → readable by a ``read_committed`` consumer, ÷ the time that Spark needs just to read that
version's feed, medians of the same run. A second process with a Spark of its own commits, and the consumer is there too;
the clock starts when the commit's file is in the log, and stops when the last event of the commit has come. Then Spark's
read is timed, in the session that follows. The sizes take turns in an order left to chance. In the end the topic is
compared with the source, and has as many records as rows were committed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.answer import Answer
from benchmarks.kafka_state import PARTITIONS, cluster, digest
from benchmarks.lab import Lab, median, p95
from cdf import ChangeFeed, Pipeline
from connectors.kafka import KafkaSink
from connectors.kafka.topics import NewTopic

__all__ = ["measure"]

AIM = 2.5
SIZES = (1, 100, 1_000)
TOPIC = "freshness"


def measure(lab: Lab) -> Iterator[Answer]:
    path = str(lab.folder / "kafka_freshness")
    lab.spark.sql(
        f"create table delta.`{path}` (id bigint, name string, amount decimal(12,2)) using delta"
        " tblproperties (delta.enableChangeDataFeed=true)"
    )
    sink = KafkaSink(cluster(lab), topic=TOPIC, create=NewTopic(PARTITIONS))
    pipeline = Pipeline(ChangeFeed(lab.spark, path), sink, key=["id"], name="kafka_freshness")
    pipeline.run()
    readable: dict[int, list[float]] = {size: [] for size in SIZES}
    cold: dict[int, float] = {}
    read: dict[int, list[float]] = {size: [] for size in SIZES}
    committed = 0
    with _writer(lab, path) as commit:
        handle = pipeline.follow(trigger={"processingTime": "0 seconds"})
        try:
            for counts in lab.rounds(warm_up=10, timed=30):
                for size in lab.shuffled(SIZES):
                    # At any moment of the trigger's round, as commits come in production
                    time.sleep(lab.chance.uniform(0.2, 0.7))
                    seen = commit(size)
                    committed += size
                    if "seconds" not in seen:
                        raise AssertionError(f"version {seen['version']} never became readable: {handle.status()}")
                    took = _read(lab, path, seen["version"], size)
                    cold.setdefault(size, seen["seconds"])
                    if counts:
                        readable[size].append(seen["seconds"])
                        read[size].append(took)
        finally:
            handle.stop()
        handle.await_termination()
    lab.check(pipeline)
    found, _ = digest(lab, TOPIC)
    assert found.records == committed, (found, committed)
    for size in SIZES:
        spark_read, middle, late = median(read[size]), median(readable[size]), p95(readable[size])
        yield Answer(
            question=f"kafka_freshness, {size:,} row{'s' if size > 1 else ''}",
            ratio=middle / spark_read,
            aim=AIM,
            better="lower",
            words=f"readable after {middle:.3f} s, p95 {late:.3f} s; Spark's read {spark_read:.3f} s",
            detail={
                "rows": size,
                "readable_seconds": round(middle, 4),
                "readable_p95_seconds": round(late, 4),
                "p95_ratio": round(late / spark_read, 3),
                "read_seconds": round(spark_read, 4),
                "cold_seconds": round(cold[size], 3),
                "repetitions": len(readable[size]),
            },
        )


def _read(lab: Lab, path: str, version: int, size: int) -> float:
    began = time.monotonic()
    reader = lab.spark.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", version).option("endingVersion", version).load(path).toArrow()
    seconds = time.monotonic() - began
    assert rows.num_rows == size, (rows.num_rows, size)
    return seconds


@contextmanager
def _writer(lab: Lab, path: str) -> Iterator[Callable[[int], dict[str, Any]]]:
    """The process that commits: ``commit(rows)`` → what ``benchmarks.kafka_freshness_writer`` says of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kafka_freshness_writer", path, lab.kafka.bootstrap_servers, TOPIC],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        start_new_session=True,  # Ctrl-C is for us; the writer ends when its stdin does
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def commit(rows: int) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{rows}\n")
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    try:
        yield commit
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
