"""Sections of a report about what changed in the source and in the trail: counts, actors, operations, schema, removals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from audit.report.document import Block, Table, Text
from audit.report.formatting import format_number, format_time, or_dash, or_unknown
from audit.report.model import Changes, Listed, Report

__all__ = [
    "list_actors",
    "list_deletes_without_ticket",
    "list_erasures",
    "list_hiding_operations",
    "list_readings",
    "list_removals",
    "list_schema_changes",
    "summarize_changes",
]

_COUNTS = ("Commits", "Inserted", "Updated", "Deleted")
_NUMBERS = frozenset(_COUNTS)


def _format_counts(changes: Changes) -> list[str]:
    return [format_number(count) for count in (changes.commits, changes.inserts, changes.updates, changes.deletes)]


def summarize_changes(report: Report) -> Iterator[Block]:
    yield Text("Rows by type of change. An update counts once; the trail stores its row before and after.")
    total = ["All", *_format_counts(report.changes)]
    yield Table(
        ("Period (UTC)", *_COUNTS),
        [*([period.period, *_format_counts(period.changes)] for period in report.periods), total],
        _NUMBERS,
        total=True,
    )
    if report.operations:
        yield Text("By operation, as Delta names it:")
        rows = [
            [or_unknown(operation.operation), *_format_counts(operation.changes)] for operation in report.operations
        ]
        yield Table(("Operation", *_COUNTS), rows, _NUMBERS)


def list_actors(report: Report) -> Iterator[Block]:
    if not report.actors:
        yield Text("No actor has changed the table.")
        return
    rows = [
        [
            or_unknown(actor.actor),
            format_time(actor.first_at),
            format_time(actor.last_at),
            *_format_counts(actor.changes),
        ]
        for actor in report.actors
    ]
    yield Table(("Actor", "First commit (UTC)", "Last commit (UTC)", *_COUNTS), rows, _NUMBERS)
    if any(actor.actor is None for actor in report.actors):
        yield Text(
            "(unknown): the commits name no user. Open-source Delta records a user only where the platform provides one."
        )


def list_hiding_operations(report: Report) -> Iterator[Block]:
    yield Text(
        "Operations that can hide rows, old files or the change feed itself, and operations that deltarelay does not know. "
        "They are not faults in themselves; each should have a reason."
    )
    rows = [
        [
            str(commit.version),
            format_time(commit.committed_at),
            or_unknown(commit.operation),
            or_dash(commit.why),
            or_unknown(commit.actor),
            "; ".join(text for text in (commit.ticket, commit.purpose) if text is not None) or "-",
            format_number(commit.changes.inserts + commit.changes.updates + commit.changes.deletes),
        ]
        for commit in report.hiding.commits
    ]
    columns = ("Version", "Committed (UTC)", "Operation", "Why it is listed", "Actor", "Ticket; purpose", "Rows")
    yield from _list_commits(report.hiding, Table(columns, rows, frozenset(("Rows",))))


def list_deletes_without_ticket(report: Report) -> Iterator[Block]:
    yield Text("Commits that deleted rows and name no ticket in their metadata.")
    rows = [
        [
            str(commit.version),
            format_time(commit.committed_at),
            or_unknown(commit.operation),
            or_unknown(commit.actor),
            or_dash(commit.purpose),
            format_number(commit.changes.deletes),
        ]
        for commit in report.deletes_without_ticket.commits
    ]
    columns = ("Version", "Committed (UTC)", "Operation", "Actor", "Purpose", "Deleted")
    yield from _list_commits(report.deletes_without_ticket, Table(columns, rows, _NUMBERS))


def _list_commits(listed: Listed, table: Table) -> Iterator[Block]:
    if not listed.total:
        yield Text("No such commit exists.")
        return
    yield table
    if listed.total > len(listed.commits):
        yield Text(f"These are the first {len(listed.commits):,} of {listed.total:,}.")


def list_schema_changes(report: Report) -> Iterator[Block]:
    if not report.schema_changes:
        yield Text("The columns did not change.")
    else:
        words = {"added": "column added", "removed": "column removed", "type": "type changed"}
        rows = [
            [
                str(change.version),
                format_time(change.committed_at),
                words[change.change],
                change.column,
                " → ".join(type for type in (change.type_before, change.type_after) if type is not None),
            ]
            for change in report.schema_changes
        ]
        yield Table(("Version", "Committed (UTC)", "Change", "Column", "Type"), rows, _NUMBERS)
    yield Text("Columns at the end of the trail:")
    yield Table(("Column", "Type"), [[name, type] for name, type in report.schema.items()])


_REMOVAL_KINDS = {
    "removal": "removed",
    "shredding": "removed; encrypted under destroyed keys",
    "sealing": "encrypted; readable before",
}


def list_removals(report: Report) -> Iterator[Block]:
    if not report.removals:
        yield Text("No record of the trail removes values or encrypts them later.")
        return
    yield Text(
        "Values that were removed from the trail or encrypted later. A record in the ledger documents each removal. The "
        "events and their hashes remain: they still prove that the change was made, when and by whom."
    )
    rows = [
        [
            str(removal.sequence),
            format_time(removal.removed_at),
            _REMOVAL_KINDS[removal.kind],
            format_number(removal.values),
            format_number(removal.versions) if removal.versions else "-",
            _join_fields(removal.told),
        ]
        for removal in report.removals
    ]
    numbers = frozenset(("Record", "Rows of values", "Commits"))
    yield Table(("Record", "Done (UTC)", "What", "Rows of values", "Commits", "As recorded"), rows, numbers)


def _join_fields(fields: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in fields.items()) or "-"


def list_erasures(report: Report) -> Iterator[Block]:
    yield Text(
        "States that erasures of people have reached for this table, copied from the register of `deltarelay erase`. The "
        "ledger contains the ids of their requests."
    )
    rows = [
        [str(step.sequence), format_time(step.noted_at), step.run, step.state, format_number(step.requests)]
        for step in report.erasures
    ]
    yield Table(("Record", "Recorded (UTC)", "Run", "State", "People"), rows, frozenset(("Record", "People")))


def list_readings(report: Report) -> Iterator[Block]:
    yield Text(
        "Who has received keys to encrypted values of this trail, and for which purpose. The key registry records each "
        "access first; the next run copies the record into the ledger."
    )
    rows = [
        [
            str(reading.sequence),
            format_time(reading.read_at),
            reading.role,
            reading.reader,
            reading.purpose,
            reading.question,
            format_number(reading.keys),
        ]
        for reading in report.readings
    ]
    names = ("Record", "Read (UTC)", "Role", "Reader", "Purpose", "Question", "Keys")
    yield Table(names, rows, frozenset(("Record", "Keys")))
