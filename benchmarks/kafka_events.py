"""What does a window cost beyond what Kafka needs for its events?

One window of a million changes (727,000 updates, 182,000 inserts, 91,000 deletes of random keys), each a Debezium event with
the row of ten columns before and after; exactly once, with the sink's own settings. Timed from the look at the log, which
begins the window, to the commit of the position, in a session that is warm; opening the topic comes before.

The limits write as many ready values of the same sizes, a sample of these very events, into a topic with as many partitions,
by the same settings: lz4, batches of 1 MB, acks=all. Theirs have no key and no headers, and ours are counted without the
tombstones that follow deletes: neither is in our favour. The peer is Spark's own sink for Kafka (``kafka_peers``), whose
events have no row before the change, and which is at least once. All start in an order left to chance. The ratio is that of
events per second, of the medians: 1 would mean that reading Delta, the envelope and the transactions cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.answer import Answer
from benchmarks.kafka_limit import by_librdkafka, by_producer_performance, has_tools
from benchmarks.kafka_peers import by_spark
from benchmarks.kafka_state import fresh, timed, window
from benchmarks.lab import SPARK_KAFKA, Lab, median

__all__ = ["measure"]

PEER = "Spark's Kafka sink"
AIMS = {"ProducerPerformance": 0.4, "librdkafka": 0.4, PEER: 1.0}
LIMITS = {"ProducerPerformance": by_producer_performance, "librdkafka": by_librdkafka}


def measure(lab: Lab) -> Iterator[Answer]:
    events = window(lab)
    available = {"ProducerPerformance": has_tools(lab), "librdkafka": True, PEER: lab.has_package(SPARK_KAFKA)}
    limits = [name for name in AIMS if available[name]]
    found: dict[str, list[float]] = {name: [] for name in ("ours", *limits)}
    parts: dict[str, list[float]] = {}
    cold: dict[str, float] = {}
    for counts in lab.rounds(warm_up=1, timed=5):
        for variant in lab.shuffled(tuple(found)):
            with fresh(lab) as topic:
                if variant == "ours":
                    seconds, steps = timed(events.pipeline(topic))
                    events.check(topic)
                elif variant == PEER:
                    seconds, steps = by_spark(lab, events, topic), {}
                else:
                    seconds, steps = LIMITS[variant](lab, topic, events.sample, events.changes), {}
            cold.setdefault(variant, seconds)
            if counts:
                found[variant].append(seconds)
                for part, took in steps.items():
                    parts.setdefault(part, []).append(took)
    ours = median(found["ours"])
    size = sum(map(len, events.sample)) / len(events.sample)
    for name in limits:
        limit = median(found[name])
        yield Answer(
            question=f"kafka_events: {name}",
            ratio=limit / ours,
            aim=AIMS[name],
            better="higher",
            words=f"{events.changes:,} events of {size:.0f} bytes in {ours:.2f} s ({events.changes / ours:,.0f}/s),"
            f" {name} {limit:.2f} s ({events.changes / limit:,.0f}/s)",
            detail={
                "events": events.changes,
                "mean_bytes": round(size),
                "seconds": round(ours, 4),
                "limit_seconds": round(limit, 4),
                "steps": {part: round(median(took), 4) for part, took in parts.items()},
                "cold_seconds": [round(cold["ours"], 3), round(cold[name], 3)],
                "repetitions": len(found["ours"]),
            },
        )
