"""What the questions about Kafka share: a table of ten mixed columns, one window of changes, a topic for each run.

Contents: one topic gets the whole table and then the window, and is verified against the source, folded to the last value
of each key. The window's part of it has a digest, in no order: the records, the tombstones, and the sum of CRC-32 over keys
and values. Every timed run has to end with a topic that has that digest for a ``read_committed`` consumer, so that an event
which is missing, doubled or another one ends the question without an answer.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.lab import Lab
from benchmarks.postgres_state import Changes, make_source
from cdf import ChangeFeed, Pipeline
from connectors.kafka import Cluster, KafkaSink
from connectors.kafka.client import Reader
from connectors.kafka.sink import DEFAULT_LANES
from connectors.kafka.topics import NewTopic, described, offsets_of

__all__ = ["PARTITIONS", "Events", "cluster", "digest", "ends", "fresh", "pipeline_to", "timed", "window"]

PARTITIONS = 4
SAMPLE = 10_000


class Digest(NamedTuple):
    records: int
    tombstones: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Events:
    """A source whose version 1 is the window, and what a topic with that window holds."""

    lab: Lab
    path: str
    changes: int
    digest: Digest
    sample: Sequence[bytes]
    """Values of every so many-th event."""

    def pipeline(self, topic: str, *, lanes: int = DEFAULT_LANES) -> Pipeline:
        return pipeline_to(self.lab, self.path, topic, start=1, lanes=lanes)

    def check(self, topic: str) -> None:
        found, _ = digest(self.lab, topic)
        if found != self.digest:
            raise AssertionError(f"the topic has {found}, and the window {self.digest}")


def window(lab: Lab) -> Events:
    """A million changes (QUICK: 11,000) onto as many rows; made by the first who asks."""
    return lab.once("kafka_events", lambda: _window(lab, 11_000 if lab.quick else 1_000_000))


def _window(lab: Lab, changes: int) -> Events:
    path = make_source(lab, "kafka_events", changes, [Changes.of(changes)])
    with fresh(lab) as topic:
        pipeline = pipeline_to(lab, path, topic, start=0)
        pipeline.run(until=0)
        before = ends(lab, topic)
        pipeline.run(until=1)
        lab.check(pipeline)
        found, sample = digest(lab, topic, before)
    return Events(lab, path, changes, found, sample)


def cluster(lab: Lab) -> Cluster:
    return Cluster(lab.kafka.bootstrap_servers)


def pipeline_to(lab: Lab, path: str, topic: str, *, start: int, lanes: int = DEFAULT_LANES) -> Pipeline:
    """Always through the tasks, however small the window is: as the sizes go that do not come with QUICK."""
    feed = lab.once(f"feed of {path}", lambda: ChangeFeed(lab.spark, path))
    sink = KafkaSink(cluster(lab), topic=topic, lanes=lanes, create=NewTopic(PARTITIONS), small_window_bytes=0)
    return Pipeline(feed, sink, key=["id"], start=start, name="kafka")  # one name: it is in the values


def timed(pipeline: Pipeline) -> tuple[float, Mapping[str, float]]:
    """The one window up to version 1, from the look at the log to the position's commit. → seconds, and the step's own"""
    with pipeline.runner.open(1) as position:
        began = time.monotonic()
        (step,) = pipeline.runner.steps(position, 1)
        return time.monotonic() - began, step.applied.seconds


@contextmanager
def fresh(lab: Lab) -> Iterator[str]:
    """The name of a topic for one run; deleted afterwards, with its records."""
    name = f"run-{secrets.token_hex(4)}"
    try:
        yield name
    finally:
        admin = cluster(lab).admin()
        if name in admin.list_topics(timeout=30).topics:
            admin.delete_topics([name])[name].result(30)


def ends(lab: Lab, topic: str) -> list[int]:
    return [end for _, end in offsets_of(cluster(lab), described(cluster(lab), topic)[topic])]


def digest(lab: Lab, topic: str, since: Sequence[int] | None = None) -> tuple[Digest, list[bytes]]:
    """Of the committed records, from these offsets on. → it, and a sample of the values"""
    records = tombstones = checksum = 0
    sample: list[bytes] = []
    every = 1 if lab.quick else 100
    for number, end in enumerate(ends(lab, topic)):
        reader = Reader(cluster(lab), topic, number, since[number] if since else 0)
        for message in reader.stream(end):
            key, value = message.key() or b"", message.value()
            records += 1
            checksum += zlib.crc32(value or b"", zlib.crc32(key))
            if value is None:
                tombstones += 1
            elif records % every == 0 and len(sample) < SAMPLE:
                sample.append(value)
        reader.close()
    return Digest(records, tombstones, checksum), sample
