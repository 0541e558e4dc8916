"""Why something is still where it is, and how a place is shown that holds a value itself."""

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
    "current file": "a file that the table has now holds it",
    "deletion vector": "the row is deleted, and its file still has it: REORG … PURGE takes it away",
    "dropped column": "the table has no such column any more, and its files still do: REORG … PURGE takes it away",
    "former file": "a file that the table has no more, kept for time travel: VACUUM removes it once its retention is over",
    "change file": "the change feed's own copy of a changed row: VACUUM removes it once its retention is over",
    "aborted write": "a file that no commit has: a full VACUUM removes it, never a lite one",
    "log entry": "the table's log tells it, in a predicate, a property or a comment: goes with the log's retention",
    "statistics": "least or greatest value of a column, in the table's log: goes with the log's retention",
    "partition name": "a folder is named by it",
    "checkpoint": "a checkpoint of the table's log: goes with the log's retention",
    "checksum": "a checksum file of the table's log: goes with the log's retention",
    "compacted log": "several entries of the table's log in one file, which Delta's own clean-up passes over",
    "temporary copy": "a copy that a writer has left behind",
    "former version": "an object that was replaced or deleted, and that its bucket keeps: goes by a lifecycle rule",
    "other file": "no file of Delta's",
    "unknown file": "the table's log cannot be read: nobody knows whether the table has this file",
    "current row": "the target has the row",
    "soft-deleted row": "the target keeps the row and marks it as deleted",
    "dead letter": "a row that could not be stored and was set aside",
    "staging": "a row on its way into a target",
    "planner statistics": "PostgreSQL's sample of the column",
    "dead tuple": "a row that PostgreSQL has deleted and not yet overwritten",
    "record": "a record of a topic",
    "tombstone key": "the key of the record that deletes it",
    "removed": "values of a trail that are removed, in files that are still kept",
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
"""Reasons of what software keeps besides of a row that is there or was."""
_AGAIN = "run `deltarelay erase run` again: its purge takes it away"
_ROW = "change or delete the row in the source table, let the pipelines run, then run `deltarelay erase run` again"
_LOG = "run `deltarelay erase run` again once the log's retention is over, and mend the setting that keeps the log for ever"
NEXT: Mapping[str, str] = {
    "current file": (
        f"in a source table: {_ROW}; in an audit trail, which keeps the former values of other people's rows: no command "
        "takes it out, and no change of the source does; accept it"
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
    "dead letter": "`deltarelay deadletter drop`, or accept it",
    "staging": "let the pipeline run: it empties its staging tables",
    "planner statistics": "run ANALYZE on the table, or drop its extended statistics",
    "dead tuple": "run `deltarelay erase run` again when nobody uses the table: it is written anew",
    "record": "set `max.compaction.lag.ms` or `retention.ms` of the topic, or delete its records by hand",
    "tombstone key": "set `max.compaction.lag.ms` and `delete.retention.ms` of the topic",
    "removed": _AGAIN,
}
"""What somebody can do about a find that no date clears."""


class Gathered:
    """Finds, one for each place, reason, request and spelling."""

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
    """A path up to the first part of it that holds a value."""
    shown: list[str] = []
    for part in place.split("/"):
        if in_name(part, terms):
            name, equals, _ = part.partition("=")
            named = equals and not in_name(name, terms)
            shown.append(f"{name}=…" if named else "…")
            break
        shown.append(part)
    return "/".join(shown)
