"""The contract that every sink implements, and the guard that keeps erased rows out of every sink."""

from cdf.sink.contract import Sink
from cdf.sink.features import Comparable, DeadLetterStore, Image, Monitored, Movable, Reloadable, SetsAside, Tracked
from cdf.sink.records import (
    Applied,
    Bounds,
    BucketDigest,
    Capabilities,
    Conflicts,
    DeadLetter,
    Inspection,
    Position,
    PositionRecord,
    RowDigest,
    RunRecord,
    Source,
    Standing,
    at_version,
)

__all__ = [
    "Applied",
    "Bounds",
    "BucketDigest",
    "Capabilities",
    "Comparable",
    "Conflicts",
    "DeadLetter",
    "DeadLetterStore",
    "Image",
    "Inspection",
    "Monitored",
    "Movable",
    "Position",
    "PositionRecord",
    "Reloadable",
    "RowDigest",
    "RunRecord",
    "SetsAside",
    "Sink",
    "Source",
    "Standing",
    "Tracked",
    "at_version",
]
