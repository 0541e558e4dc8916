"""Searches topics for identifiers: every record from the beginning, also of aborted transactions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from audit.erasure.scan.findings import Gathered
from audit.erasure.scan.results import Checked, ScanResult
from connectors.kafka import topics
from connectors.kafka.erasure.records import contained_terms, parts, read_topics
from connectors.kafka.erasure.retention import removal_day

if TYPE_CHECKING:
    from audit.erasure.scan.search_terms import SearchTerms
    from connectors.kafka.client import Cluster

__all__ = ["scan_topics"]


def scan_topics(cluster: Cluster, names: tuple[str, ...], terms: SearchTerms) -> ScanResult:
    """Search the topics up to their current ends. Raises KafkaFault."""
    gathered = Gathered()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    described = topics.describe_topics(cluster, *names)
    for topic, partition, message in read_topics(cluster, described):
        counts[topic.name] += 1
        sizes[topic.name] += sum(map(len, parts(message)))
        if hits := contained_terms(terms, message):
            gathered.add(
                f"{topic.name}/{partition}",
                "tombstone key" if message.value() is None else "record",
                Counter(hits),
                clears_on=removal_day(topic, message),
            )
    checked = (Checked(f"records of {name}", counts[name], sizes[name]) for name in described)
    return ScanResult(gathered.finds(), tuple(checked))
