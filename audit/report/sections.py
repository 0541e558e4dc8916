"""A report as sections of text, facts and tables: what HTML and Markdown have in common."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from audit.report.model import Changes, Listed, Report

__all__ = ["Block", "Code", "Document", "Facts", "Items", "Section", "Table", "Text", "Verdict", "document", "shown"]

Tone = Literal["good", "open", "bad"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what is so called."""

    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[str] = frozenset()
    """The columns that are aligned to the right."""
    total: bool = False
    """The last row is the sum of the others."""


@dataclass(frozen=True, slots=True)
class Code:
    lines: Sequence[str]


Block: TypeAlias = Text | Items | Facts | Table | Code


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Verdict:
    tone: Tone
    words: str
    details: str


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    subtitle: str
    verdict: Verdict
    facts: Facts
    sections: Sequence[Section]


def document(report: Report) -> Document:
    """Texts from outside are in it as they are: a writer passes each through ``shown`` and escapes it."""
    sections = [
        Section("Scope", list(_scope(report))),
        Section("Verification", list(_verification(report))),
        Section("Changes", list(_changes(report))),
        Section("Actors", list(_actors(report))),
        Section("Operations that can hide data", list(_hiding(report))),
        Section("Deletes without a ticket", list(_without_ticket(report))),
        Section("Changes of the schema", list(_schema(report))),
        Section("Removed values", list(_removals(report))),
        *([Section("Erasures of people", list(_erasures(report)))] if report.erasures else []),
        *([Section("Readings of sealed values", list(_readings(report)))] if report.readings else []),
        Section("Checkpoints", list(_checkpoints(report))),
        Section("How to check this independently", list(_independently(report))),
        Section("What this report discloses", list(_discloses())),
    ]
    facts = [
        ("Source table", report.source),
        ("Pipeline", report.pipeline),
        ("Period (UTC)", f"{_at(report.scope.first_committed_at)} to {_at(report.scope.last_committed_at)}"),
        ("Versions", _versions(report.scope.first_version, report.scope.last_version)),
        ("Report made", f"{_utc(report.made_at)} by {report.made_by}"),
        ("Column values shown", "none"),
    ]
    return Document("Audit trail report", report.source, _verdict(report), Facts(facts), sections)


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(text: str) -> str:
    """A text as people can see it: what would steer a terminal, or turn the direction of reading, is spelled out."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def _at(at: dt.datetime | None) -> str:
    return "unknown" if at is None else f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}"


def _utc(at: dt.datetime | None) -> str:
    return _at(at) + ("" if at is None else " UTC")


def _number(value: int) -> str:
    return f"{value:,}"


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" + ("" if value == 1 else "s")


def _versions(first: int | None, last: int | None) -> str:
    return "none" if first is None else f"{first} to {last}"


def _or_unknown(text: str | None) -> str:
    return "(unknown)" if text is None else text


def _or_dash(text: str | None) -> str:
    return "-" if text is None else text


# ── the sections ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _verdict(report: Report) -> Verdict:
    found = report.verification
    looked = (
        f"Verified at level {found.level}: {_count(found.records, 'record')}, {_count(found.events, 'event')} and "
        f"{_count(found.values, 'row')} of values were hashed anew in {found.seconds:.1f} s."
    )
    if not found.intact:
        more = "more than " if found.more_findings else ""
        words = f"Not intact: {more}{_count(len(found.findings), 'finding')}"
        return Verdict("bad", words, f"The section Verification lists what was altered, and where. {looked}")
    if found.last_version is None:
        return Verdict("open", "The trail is empty", "Nothing has been recorded yet.")
    through = f"version {found.last_version} ({_utc(found.last_committed_at)})"
    if found.sealed_version is None:
        words = "Intact, and not sealed"
        return Verdict("open", words, f"Intact through {through}; no signed checkpoint vouches for any of it. {looked}")
    if found.sealed_version != found.last_version or found.unreachable:
        words = f"Intact, and sealed through version {found.sealed_version}"
        sealed = f"sealed through version {found.sealed_version} ({_utc(found.sealed_committed_at)})"
        missed = f" Not every anchor could be asked: {', '.join(_missed(report))}." if found.unreachable else ""
        return Verdict("open", words, f"Intact through {through}; {sealed}.{missed} {looked}")
    return Verdict("good", "Intact and sealed", f"Intact and sealed through {through}. {looked}")


def _missed(report: Report) -> list[str]:
    return [one.anchor for one in report.verification.unreachable]


def _scope(report: Report) -> Iterator[Block]:
    scope, changes = report.scope, report.changes
    yield Facts(
        [
            ("Id of the source table", _or_unknown(report.table_id)),
            ("First version", f"{_or_dash(_text(scope.first_version))}, committed {_utc(scope.first_committed_at)}"),
            ("Last version", f"{_or_dash(_text(scope.last_version))}, committed {_utc(scope.last_committed_at)}"),
            ("Trail", report.trail),
            ("Name of the trail in checkpoints", report.origin),
        ]
    )
    if scope.first_version is None:
        return
    if scope.baseline_version is not None:
        begins = (
            f"It begins with a baseline: the {_count(scope.baseline_rows, 'row')} that the table held at version "
            f"{scope.baseline_version}. Who wrote those rows, and when, it does not know."
        )
    elif scope.first_version == 0:
        begins = "It begins with the first version of the table."
    else:
        begins = (
            f"It begins with the changes of version {scope.first_version}: what the table held before is not in it."
        )
    rows = changes.inserts + changes.updates + changes.deletes
    yield Text("The trail covers:")
    yield Items(
        [
            f"every commit of the table between its first and its last version, also those that changed no row: "
            f"{_count(changes.commits, 'commit')} with {_count(rows, 'row change')};",
            "of each commit: time, operation, actor, ticket and purpose as its writer told them, the number of changes, and "
            "a hash over every one of them.",
        ]
    )
    yield Text(begins)
    yield Text("It does not cover:")
    yield Items(
        [
            "who has read the table: Delta records writes only;",
            "whether an actor is who it says, or a ticket exists: both are taken from the table's log as they stand there;",
            f"anything after version {scope.last_version}.",
        ]
    )
    if scope.unreadable:
        yield Text(
            f"{_count(scope.unreadable, 'record')} of the ledger cannot be read; what they told is missing from the counts."
        )
    for gap in report.gaps:
        yield Text(f"Fault: version {_versions(gap.first_version, gap.last_version)} of the table is {gap.fault}.")


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


_COUNTED = ("Commits", "Inserted", "Updated", "Deleted")
_NUMBERS = frozenset(_COUNTED)


def _counted(changes: Changes) -> list[str]:
    return [_number(one) for one in (changes.commits, changes.inserts, changes.updates, changes.deletes)]


def _changes(report: Report) -> Iterator[Block]:
    yield Text("Rows by type of change. An update counts once; the trail has its row before and after.")
    total = ["All", *_counted(report.changes)]
    yield Table(
        ("Period (UTC)", *_COUNTED),
        [*([one.period, *_counted(one.changes)] for one in report.periods), total],
        _NUMBERS,
        total=True,
    )
    if report.operations:
        yield Text("By operation, as Delta names it:")
        rows = [[_or_unknown(one.operation), *_counted(one.changes)] for one in report.operations]
        yield Table(("Operation", *_COUNTED), rows, _NUMBERS)


def _actors(report: Report) -> Iterator[Block]:
    if not report.actors:
        yield Text("Nobody has changed the table.")
        return
    rows = [
        [_or_unknown(one.actor), _at(one.first_at), _at(one.last_at), *_counted(one.changes)] for one in report.actors
    ]
    yield Table(("Actor", "First commit (UTC)", "Last commit (UTC)", *_COUNTED), rows, _NUMBERS)
    if any(one.actor is None for one in report.actors):
        yield Text(
            "(unknown): the commits name nobody. Open-source Delta records a user only where the platform tells it one."
        )


def _hiding(report: Report) -> Iterator[Block]:
    yield Text(
        "Operations that can take rows, old files or the change feed itself out of sight, and those that are not known. "
        "They are no fault in themselves; each should have a reason."
    )
    rows = [
        [
            str(one.version),
            _at(one.committed_at),
            _or_unknown(one.operation),
            _or_dash(one.why),
            _or_unknown(one.actor),
            "; ".join(said for said in (one.ticket, one.purpose) if said is not None) or "-",
            _number(one.changes.inserts + one.changes.updates + one.changes.deletes),
        ]
        for one in report.hiding.commits
    ]
    columns = ("Version", "Committed (UTC)", "Operation", "Why it is listed", "Actor", "Ticket; purpose", "Rows")
    yield from _listed(report.hiding, Table(columns, rows, frozenset(("Rows",))))


def _without_ticket(report: Report) -> Iterator[Block]:
    yield Text("Commits that deleted rows and name no ticket in their metadata.")
    rows = [
        [
            str(one.version),
            _at(one.committed_at),
            _or_unknown(one.operation),
            _or_unknown(one.actor),
            _or_dash(one.purpose),
            _number(one.changes.deletes),
        ]
        for one in report.deletes_without_ticket.commits
    ]
    columns = ("Version", "Committed (UTC)", "Operation", "Actor", "Purpose", "Deleted")
    yield from _listed(report.deletes_without_ticket, Table(columns, rows, _NUMBERS))


def _listed(listed: Listed, table: Table) -> Iterator[Block]:
    if not listed.total:
        yield Text("There was none.")
        return
    yield table
    if listed.total > len(listed.commits):
        yield Text(f"These are the first {len(listed.commits):,} of {listed.total:,}.")


def _schema(report: Report) -> Iterator[Block]:
    if not report.schema_changes:
        yield Text("The columns did not change.")
    else:
        words = {"added": "column added", "removed": "column removed", "type": "type changed"}
        rows = [
            [
                str(one.version),
                _at(one.committed_at),
                words[one.change],
                one.column,
                _types(one.type_before, one.type_after),
            ]
            for one in report.schema_changes
        ]
        yield Table(("Version", "Committed (UTC)", "Change", "Column", "Type"), rows, _NUMBERS)
    yield Text("Columns at the end of the trail:")
    yield Table(("Column", "Type"), [[name, type] for name, type in report.schema.items()])


def _types(before: str | None, after: str | None) -> str:
    return " → ".join(one for one in (before, after) if one is not None)


def _removals(report: Report) -> Iterator[Block]:
    if not report.removals:
        yield Text("No values were removed from the trail, or sealed later, by a record of it.")
        return
    yield Text(
        "Values that were taken out of the trail, each time with a record of it in the ledger. The events and their hashes "
        "are still there: that the change was made, when and by whom, is still proven."
    )
    rows = [
        [
            str(one.sequence),
            _at(one.removed_at),
            _REMOVED[one.kind],
            _number(one.values),
            _number(one.versions) if one.versions else "-",
            _why(one.told),
        ]
        for one in report.removals
    ]
    numbers = frozenset(("Record", "Rows of values", "Commits"))
    yield Table(("Record", "Done (UTC)", "What", "Rows of values", "Commits", "As recorded"), rows, numbers)


_REMOVED = {
    "removal": "removed",
    "shredding": "removed, sealed under keys that are gone",
    "sealing": "sealed, readable until then",
}


def _erasures(report: Report) -> Iterator[Block]:
    yield Text(
        "What erasures of people had come to, as far as this table is concerned, by the register of `deltarelay erase`. The "
        "ledger has the ids of their requests."
    )
    rows = [
        [str(one.sequence), _at(one.noted_at), one.run, one.state, _number(one.requests)] for one in report.erasures
    ]
    yield Table(("Record", "Noted (UTC)", "Run", "State", "People"), rows, frozenset(("Record", "People")))


def _readings(report: Report) -> Iterator[Block]:
    yield Text(
        "Who has been given keys to what is sealed in this trail, and what for. The registry of keys keeps it first; the "
        "ledger has it from the next run on."
    )
    rows = [
        [str(one.sequence), _at(one.read_at), one.role, one.reader, one.purpose, one.question, _number(one.keys)]
        for one in report.readings
    ]
    names = ("Record", "Read (UTC)", "Role", "Reader", "Purpose", "Question", "Keys")
    yield Table(names, rows, frozenset(("Record", "Keys")))


def _why(told: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {said}" for name, said in told.items()) or "-"


def _verification(report: Report) -> Iterator[Block]:
    found = report.verification
    yield Text(
        "Every hash was computed anew when this report was made: from the values of each row to its event, from the events "
        "of a commit to its record, from each record to the one before it, and over all records to the signed checkpoints."
    )
    yield Facts(
        [
            ("Result", "intact" if found.intact else "NOT INTACT"),
            ("Level", found.level),
            ("Records, events, rows of values", " · ".join(map(_number, (found.records, found.events, found.values)))),
            ("Values removed, as recorded", _number(found.removed)),
            ("Values there still, which the last record removes", _number(found.unfinished)),
            ("Checkpoints compared", _number(found.checkpoints)),
            ("Sealed through", _sealed(report)),
            ("Events not in the ledger yet", _number(found.unrecorded)),
            *([("Anchors that could not be asked", ", ".join(_missed(report)))] if found.unreachable else []),
        ]
    )
    if found.findings:
        rows = [
            [
                one.kind.replace("_", " "),
                one.table,
                _or_dash(_text(one.version)),
                _places(one.first, one.last),
                one.text,
            ]
            for one in found.findings
        ]
        yield Table(("Finding", "Table", "Version", "Events", "What was found"), rows, _NUMBERS)
        if found.more_findings:
            yield Text(f"There are more: the first {len(found.findings)} are listed.")
    yield Text("What no verification of a trail can see:")
    yield Items(found.not_covered)


def _sealed(report: Report) -> str:
    found = report.verification
    if found.sealed_version is None:
        return "nothing: no signed checkpoint covers any of it"
    return f"version {found.sealed_version} ({_utc(found.sealed_committed_at)})"


def _places(first: int | None, last: int | None) -> str:
    return "-" if first is None else str(first) if first == last else f"{first} to {last}"


def _checkpoints(report: Report) -> Iterator[Block]:
    if not report.anchors:
        yield Text(
            "No anchors are configured: no checkpoint stands outside of the trail. Whoever holds the signing key and may "
            "write to the trail could have written all of it anew."
        )
        return
    yield Text(
        "A checkpoint is a signature over the whole ledger up to a record. Copies stand at the anchors below; what one of "
        "them covers cannot be altered in the trail without a finding above."
    )
    rows = [
        [
            one.anchor,
            _number(one.checkpoints) if one.reached else "not reached",
            _number(one.not_signed),
            _or_dash(None if one.records is None else _number(one.records)),
            _or_dash(_text(one.version)),
            _or_dash(None if one.committed_at is None else _at(one.committed_at)),
        ]
        for one in report.anchors
    ]
    numbers = frozenset(("Checkpoints", "Not signed", "Newest covers records", "Version"))
    yield Table(
        ("Anchor", "Checkpoints", "Not signed", "Newest covers records", "Version", "Committed (UTC)"), rows, numbers
    )
    if report.note is not None:
        yield Text(
            "The newest, as it is published. Saved as a file it can be given to deltarelay audit verify --anchor:"
        )
        yield Code(report.note.rstrip("\n").split("\n"))


def _independently(report: Report) -> Iterator[Block]:
    pipeline = shlex.quote(report.pipeline)
    yield Text("The keys that checkpoints were verified with. Compare them with those that you were given another way:")
    yield Code(report.keys or ["(none: nothing is signed)"])
    yield Text(
        "Compute every hash anew, against a checkpoint that you have kept yourself (needs read access to the trail):"
    )
    origin = shlex.quote(report.origin)
    verify = f"deltarelay audit verify --pipeline {pipeline} --level full"
    yield Code([f"{verify} --origin {origin} --anchor CHECKPOINT_FILE"])
    yield Text("Compare the trail with the change feed of the source, row by row, and with the files of its log:")
    yield Code([f"deltarelay audit reconcile --pipeline {pipeline}"])
    yield Text(
        "Check a single change without access to any table: the trail's keeper writes a proof, and anybody checks it with "
        "one file of Python and the package cryptography, offline:"
    )
    key = shlex.quote(report.keys[0]) if report.keys else "VERIFIER_KEY"
    yield Code(
        [
            f"deltarelay audit prove {pipeline} VERSION INDEX --out event.proof",
            f"python -m audit.proof event.proof --origin {origin} \\",
            f"  --key {key}",
        ]
    )
    yield Text(
        "Or write the check yourself. Rows are encoded as docs/reference/row-encoding.md specifies, with test vectors; "
        "trees are those of RFC 9162 with SHA-256; checkpoints are C2SP signed notes (c2sp.org/signed-note, "
        "c2sp.org/tlog-checkpoint) with Ed25519."
    )


def _discloses() -> Iterator[Block]:
    yield Text(
        "No part of this report shows a value of any row. It names columns and their types, actors, tickets, purposes and "
        "operations as the ledger has them; literals in operations are not recorded there. All times are UTC."
    )
