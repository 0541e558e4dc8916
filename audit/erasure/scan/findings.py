"""Reasons of findings, what can be done about them, and how a storage location is shown whose name contains a value."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from audit.erasure.scan.matcher import in_name
from audit.erasure.scan.results import Finding

if TYPE_CHECKING:
    from audit.erasure.scan.search_terms import SearchTerms

__all__ = ["FOLLOWS", "NEXT", "REASONS", "Gathered", "masked"]

REASONS: Mapping[str, str] = {
    "current file": "a file of the table's present version contains it",
    "deletion vector": "the row is deleted, and its file still contains it: REORG … PURGE removes it",
    "dropped column": "the column is dropped, and its files still contain it: REORG … PURGE removes it",
    "former file": "a file of a former version, retained for time travel: VACUUM removes it when its retention is over",
    "change file": "the change feed's copy of a changed row: VACUUM removes it when its retention is over",
    "aborted write": "a file that belongs to no commit: a full VACUUM removes it, a lite VACUUM does not",
    "log entry": "the table's log contains it, in a predicate, a property or a comment: it is removed when the log's "
    "retention is over",
    "statistics": "smallest or largest value of a column, in the table's log: it is removed when the log's retention is "
    "over",
    "partition name": "the name of a folder contains it",
    "checkpoint": "a checkpoint of the table's log: it is removed when the log's retention is over",
    "checksum": "a checksum file of the table's log: it is removed when the log's retention is over",
    "compacted log": "several entries of the table's log in one file, which Delta's clean-up does not remove",
    "temporary copy": "a copy that a writer has left behind",
    "former version": "an object that was replaced or deleted, and that its bucket retains: a lifecycle rule removes it",
    "other file": "a file that does not belong to Delta",
    "unknown file": "the table's log cannot be read: it is unknown whether the table has this file",
    "current row": "the target has the row",
    "soft-deleted row": "the target retains the row, marked as deleted",
    "dead letter": "a row that could not be stored and was dead-lettered",
    "staging": "a row that is being written to a target",
    "planner statistics": "PostgreSQL's sample of the column",
    "dead tuple": "a row that PostgreSQL has deleted and not yet overwritten",
    "record": "a record of a topic",
    "tombstone key": "the key of the record that deletes it",
    "removed": "removed values of a trail, in files that are still retained",
}


FOLLOWS = frozenset(
    (
        "deletion vector",
        "dropped column",
        "former file",
        "change file",
        "log entry",
        "statistics",
        "checkpoint",
        "checksum",
        "compacted log",
        "former version",
        "planner statistics",
        "dead tuple",
        "removed",
    )
)
"""Reasons of copies that software makes of a present or former row."""
_AGAIN = "run `deltarelay erase run` again: its purge removes it"
_ROW = "change or delete the row in the source table, let the pipelines run, then run `deltarelay erase run` again"
_LOG = (
    "run `deltarelay erase run` again when the log's retention is over; correct a setting that retains the log forever"
)
NEXT: Mapping[str, str] = {
    "current file": (
        f"in a source table: {_ROW}; in an audit trail, which retains the former values of other people's rows: no command "
        "and no change of the source removes it; accept it"
    ),
    "deletion vector": _AGAIN,
    "dropped column": _AGAIN,
    "former file": _AGAIN,
    "change file": _AGAIN,
    "aborted write": _AGAIN,
    "log entry": _LOG,
    "statistics": _LOG,
    "partition name": "remove the empty folder, or write the rows to another partition",
    "checkpoint": _LOG,
    "checksum": _LOG,
    "compacted log": "delete the file by hand: no reader needs it",
    "temporary copy": "delete the file by hand: a writer has left it behind",
    "former version": "set a lifecycle rule of the bucket that removes former versions, or delete this version",
    "other file": "delete the file, or move it away from the table",
    "unknown file": "repair the table's log, or delete the file",
    "current row": _ROW,
    "soft-deleted row": "delete the row in the target, or accept it",
    "dead letter": "run `deltarelay deadletter drop`, or accept it",
    "staging": "let the pipeline run: it empties its staging tables",
    "planner statistics": "run ANALYZE on the table, or drop its extended statistics",
    "dead tuple": "run `deltarelay erase run` again when no session uses the table: it is rewritten",
    "record": "set `max.compaction.lag.ms` or `retention.ms` of the topic, or delete its records by hand",
    "tombstone key": "set `max.compaction.lag.ms` and `delete.retention.ms` of the topic",
    "removed": _AGAIN,
}
"""What can be done about a finding that does not go by a known date."""


class Gathered:
    """Collects findings, one for each place, reason, request and spelling."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, dt.date | None, str, str]] = Counter()

    def add(self, place: str, reason: str, found: Mapping[tuple[str, str], int], *, clears_on: dt.date | None) -> None:
        assert reason in REASONS, reason
        for (request, spelling), count in found.items():
            self._counts[place, reason, clears_on, request, spelling] += count

    def finds(self) -> tuple[Finding, ...]:
        ordered = sorted(self._counts.items(), key=lambda one: (one[0][3], one[0][0], one[0][1], one[0][4]))
        return tuple(
            Finding(request, place, reason, spelling, count, clears_on)
            for (place, reason, clears_on, request, spelling), count in ordered
        )


def masked(place: str, terms: SearchTerms) -> str:
    """Return a path up to the first part of it that contains a value."""
    shown: list[str] = []
    for part in place.split("/"):
        if in_name(part, terms):
            name, equals, _ = part.partition("=")
            is_name_safe = equals and not in_name(name, terms)
            shown.append(f"{name}=…" if is_name_safe else "…")
            break
        shown.append(part)
    return "/".join(shown)
