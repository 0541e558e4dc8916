"""When the brokers remove records by themselves, by a topic's settings, and when the last record of a person is gone."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from connectors.kafka import topics
from connectors.kafka.erasure.records import contained_terms, header, read_topics
from connectors.kafka.reader import read_commit_version

if TYPE_CHECKING:
    from confluent_kafka import Message

    from audit.erasure.scan.search_terms import SearchTerms
    from connectors.kafka.client import Cluster

__all__ = ["NEVER", "removal_day", "removal_days", "time_to_removal"]

NEVER = dt.timedelta.max
_WEEK = 7 * 24 * 3600 * 1000
_DAY = 24 * 3600 * 1000
_UNBOUNDED = 2**63 - 1


def time_to_removal(topic: topics.Topic) -> dt.timedelta:
    """Return how long after its time a record whose key has a later one stays on the brokers' disks at most.

    The brokers neither compact nor drop the segment that is being written, hence ``segment.ms``. NEVER where no setting
    limits it.
    """
    settings: Mapping[str, int] = {
        name: int(topic.config.get(name, default))
        for name, default in (("segment.ms", _WEEK), ("max.compaction.lag.ms", _UNBOUNDED), ("retention.ms", _WEEK))
    }
    limits = []
    if topic.is_compacted and settings["max.compaction.lag.ms"] < _UNBOUNDED:
        limits.append(settings["max.compaction.lag.ms"])
    if topic.has_retention and settings["retention.ms"] >= 0:
        limits.append(settings["retention.ms"])
    if not limits:
        return NEVER
    return dt.timedelta(milliseconds=min(limits) + settings["segment.ms"])


def _tombstone_time_to_removal(topic: topics.Topic) -> dt.timedelta:
    after = time_to_removal(topic)
    if after == NEVER or not topic.is_compacted:
        return after
    return after + dt.timedelta(milliseconds=int(topic.config.get("delete.retention.ms", _DAY)))


def removal_day(topic: topics.Topic, message: Message) -> dt.date | None:
    """Return the day by which the brokers have removed the record; None where no setting determines it."""
    after = _tombstone_time_to_removal(topic) if message.value() is None else time_to_removal(topic)
    _, milliseconds = message.timestamp()
    if after == NEVER or not milliseconds or milliseconds < 0:
        return None
    written = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return (written + after).date() + dt.timedelta(days=1)


def removal_days(
    cluster: Cluster, names: tuple[str, ...], terms: SearchTerms, versions: Collection[int]
) -> set[dt.date | None]:
    """Return ``removal_day`` of every record that contains an identifier, and of every record with the state of a row before
    ``versions`` erased it: such a row is the person's even where it contains no identifier. Raises KafkaFault.

    The erased keys are read from the topic itself, from its records of these versions: the source may have forgotten them.
    Where the brokers have removed such a record, they have also removed the earlier ones of its key.
    """
    described = topics.describe_topics(cluster, *names)
    erased: dict[bytes, int] = {}
    for _, _, message in read_topics(cluster, described) if versions else ():
        version = read_commit_version(message)
        # A snapshot of the table contains all keys but the erased ones
        if version in versions and version is not None and header(message, "deltarelay.change_type") != b"snapshot":
            erased[_key_digest(message)] = max(version, erased.get(_key_digest(message), 0))
    days = set()
    for topic, _, message in read_topics(cluster, described):
        version = read_commit_version(message)
        is_former = (
            message.value() is not None and version is not None and version < erased.get(_key_digest(message), 0)
        )
        if is_former or contained_terms(terms, message):
            days.add(removal_day(topic, message))
    return days


def _key_digest(message: Message) -> bytes:
    """Return a short digest: all keys of a run are in memory at once."""
    key = message.key()
    return hashlib.blake2b(key if isinstance(key, bytes) else b"", digest_size=16).digest()
