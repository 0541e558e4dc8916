"""What people write today to bring a change feed into Kafka: Spark's own sink for Kafka, with the row as JSON.

One record per change, keyed, with the row after it (before it, for a delete), the kind of the change and its version. It
pairs no images, knows no position in the topic, and is at least once: a job that is repeated writes its records again. Its
producers have the settings of the limits, which are better for it than its defaults.
"""

from __future__ import annotations

import time

from benchmarks.kafka_limit import SETTINGS
from benchmarks.kafka_state import PARTITIONS, Events, cluster, ends
from benchmarks.lab import Lab
from benchmarks.postgres_state import COLUMNS
from connectors.kafka.topics import NewTopic, create_topic

__all__ = ["by_spark"]


def by_spark(lab: Lab, events: Events, topic: str) -> float:
    """→ seconds from the read of the feed until all records are acknowledged"""
    from pyspark.sql import functions as F

    create_topic(cluster(lab), topic, NewTopic(PARTITIONS))
    began = time.monotonic()
    feed = lab.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    changes = feed.option("endingVersion", 1).load(events.path).where("_change_type <> 'update_preimage'")
    row = F.struct(F.struct(*COLUMNS).alias("row"), "_change_type", "_commit_version", "_commit_timestamp")
    records = changes.select(F.to_json(F.struct("id")).alias("key"), F.to_json(row).alias("value"))
    options = {f"kafka.{name}": str(value) for name, value in SETTINGS.items()}
    writer = records.write.format("kafka").options(**options, topic=topic)
    writer.option("kafka.bootstrap.servers", lab.kafka.bootstrap_servers).save()
    seconds = time.monotonic() - began
    if (found := sum(ends(lab, topic))) != events.changes:
        raise AssertionError(f"Spark's sink has written {found} records instead of {events.changes}")
    return seconds
