"""Sections of a report about how far the trail can be trusted: scope, verification, checkpoints, independent checks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from audit.report.document import Block, Code, Facts, Items, Table, Text, Verdict
from audit.report.formatting import (
    format_count,
    format_number,
    format_time,
    format_utc,
    format_version,
    format_versions,
    or_dash,
    or_unknown,
)
from audit.report.model import Report

__all__ = [
    "describe_disclosure",
    "describe_independent_checks",
    "describe_scope",
    "describe_verification",
    "judge",
    "list_checkpoints",
]


def judge(report: Report) -> Verdict:
    result = report.verification
    work = (
        f"Verified at level {result.level}: the hashes of {format_count(result.records, 'record')}, "
        f"{format_count(result.events, 'event')} and {format_count(result.values, 'row')} of values were recomputed in "
        f"{result.seconds:.1f} s."
    )
    if not result.intact:
        more = "more than " if result.more_findings else ""
        words = f"Not intact: {more}{format_count(len(result.findings), 'finding')}"
        return Verdict("bad", words, f"The section Verification lists what was altered, and where. {work}")
    if result.last_version is None:
        return Verdict("open", "The trail is empty", "Nothing has been recorded yet.")
    through = f"version {result.last_version} ({format_utc(result.last_committed_at)})"
    if result.sealed_version is None:
        return Verdict(
            "open", "Intact, and not signed", f"Intact through {through}; no signed checkpoint covers any of it. {work}"
        )
    if result.sealed_version != result.last_version or result.unreachable:
        words = f"Intact, and signed through version {result.sealed_version}"
        signed = f"signed through version {result.sealed_version} ({format_utc(result.sealed_committed_at)})"
        names = ", ".join(_unreachable_anchors(report))
        missed = f" Some anchors could not be read: {names}." if result.unreachable else ""
        return Verdict("open", words, f"Intact through {through}; {signed}.{missed} {work}")
    return Verdict("good", "Intact and signed", f"Intact and signed through {through}. {work}")


def _unreachable_anchors(report: Report) -> list[str]:
    return [missed.anchor for missed in report.verification.unreachable]


def describe_scope(report: Report) -> Iterator[Block]:
    scope, changes = report.scope, report.changes
    yield Facts(
        [
            ("Id of the source table", or_unknown(report.table_id)),
            (
                "First version",
                f"{format_version(scope.first_version)}, committed {format_utc(scope.first_committed_at)}",
            ),
            ("Last version", f"{format_version(scope.last_version)}, committed {format_utc(scope.last_committed_at)}"),
            ("Trail", report.trail),
            ("Name of the trail in checkpoints", report.origin),
        ]
    )
    if scope.first_version is None:
        return
    if scope.baseline_version is not None:
        beginning = (
            f"It begins with a baseline: the {format_count(scope.baseline_rows, 'row')} that the table had at version "
            f"{scope.baseline_version}. The trail does not know who wrote those rows, or when."
        )
    elif scope.first_version == 0:
        beginning = "It begins with the first version of the table."
    else:
        beginning = (
            f"It begins with the changes of version {scope.first_version}: earlier rows of the table are not in it."
        )
    rows = changes.inserts + changes.updates + changes.deletes
    yield Text("The trail covers:")
    yield Items(
        [
            f"every commit of the table between its first and its last version, also those that changed no row: "
            f"{format_count(changes.commits, 'commit')} with {format_count(rows, 'row change')};",
            "of each commit: time, operation, actor, ticket and purpose as its writer stated them, the number of changes, "
            "and a hash over every change.",
        ]
    )
    yield Text(beginning)
    yield Text("It does not cover:")
    yield Items(
        [
            "who has read the table: Delta records writes only;",
            "whether an actor is who it claims to be, or whether a ticket exists: both are copied from the table's log;",
            f"anything after version {scope.last_version}.",
        ]
    )
    if scope.unreadable:
        yield Text(
            f"{format_count(scope.unreadable, 'record')} of the ledger cannot be read; the counts do not include them."
        )
    for gap in report.gaps:
        yield Text(
            f"Fault: version {format_versions(gap.first_version, gap.last_version)} of the table is {gap.fault}."
        )


def describe_verification(report: Report) -> Iterator[Block]:
    result = report.verification
    yield Text(
        "Every hash was recomputed when this report was made: from the values of each row to its event, from the events "
        "of a commit to its record, from each record to the one before it, and over all records to the signed checkpoints."
    )
    hashed = " · ".join(map(format_number, (result.records, result.events, result.values)))
    yield Facts(
        [
            ("Result", "intact" if result.intact else "NOT INTACT"),
            ("Level", result.level),
            ("Records, events, rows of values", hashed),
            ("Values removed, as recorded", format_number(result.removed)),
            ("Values not yet removed by the last record", format_number(result.unfinished)),
            ("Checkpoints compared", format_number(result.checkpoints)),
            ("Signed through", _describe_signed(report)),
            ("Events not in the ledger yet", format_number(result.unrecorded)),
            *(
                [("Anchors that could not be read", ", ".join(_unreachable_anchors(report)))]
                if result.unreachable
                else []
            ),
        ]
    )
    if result.findings:
        rows = [
            [
                finding.kind.replace("_", " "),
                finding.table,
                format_version(finding.version),
                _format_places(finding.first, finding.last),
                finding.text,
            ]
            for finding in result.findings
        ]
        yield Table(("Finding", "Table", "Version", "Events", "What was found"), rows)
        if result.more_findings:
            yield Text(f"More findings exist: the first {len(result.findings)} are listed.")
    yield Text("What no verification of a trail can detect:")
    yield Items(result.not_covered)


def _describe_signed(report: Report) -> str:
    result = report.verification
    if result.sealed_version is None:
        return "nothing: no signed checkpoint covers any of it"
    return f"version {result.sealed_version} ({format_utc(result.sealed_committed_at)})"


def _format_places(first: int | None, last: int | None) -> str:
    return "-" if first is None else str(first) if first == last else f"{first} to {last}"


def list_checkpoints(report: Report) -> Iterator[Block]:
    if not report.anchors:
        yield Text(
            "No anchors are configured: no checkpoint is stored outside of the trail. A person who has the signing key "
            "and may write to the trail could have rewritten all of it."
        )
        return
    yield Text(
        "A checkpoint is a signature over the whole ledger up to a record. The anchors below store copies; what a copy "
        "covers cannot be altered in the trail without a finding above."
    )
    rows = [
        [
            anchor.anchor,
            format_number(anchor.checkpoints) if anchor.reached else "not reached",
            format_number(anchor.not_signed),
            or_dash(None if anchor.records is None else format_number(anchor.records)),
            format_version(anchor.version),
            or_dash(None if anchor.committed_at is None else format_time(anchor.committed_at)),
        ]
        for anchor in report.anchors
    ]
    numbers = frozenset(("Checkpoints", "Not signed", "Newest covers records", "Version"))
    yield Table(
        ("Anchor", "Checkpoints", "Not signed", "Newest covers records", "Version", "Committed (UTC)"), rows, numbers
    )
    if report.note is not None:
        yield Text(
            "The newest checkpoint, as it is published. Saved as a file, it can be passed to deltarelay audit verify "
            "--anchor:"
        )
        yield Code(report.note.rstrip("\n").split("\n"))


def describe_independent_checks(report: Report) -> Iterator[Block]:
    pipeline, origin = shlex.quote(report.pipeline), shlex.quote(report.origin)
    yield Text(
        "The keys that checkpoints were verified with. Compare them with the keys that you received by another channel:"
    )
    yield Code(report.keys or ["(none: nothing is signed)"])
    yield Text(
        "Recompute every hash, against a checkpoint that you have stored yourself (needs read access to the trail):"
    )
    verify = f"deltarelay audit verify --pipeline {pipeline} --level full"
    yield Code([f"{verify} --origin {origin} --anchor CHECKPOINT_FILE"])
    yield Text("Compare the trail with the change feed of the source, row by row, and with the files of its log:")
    yield Code([f"deltarelay audit reconcile --pipeline {pipeline}"])
    yield Text(
        "Check a single change without access to any table: the operator of the trail writes a proof, and anyone can check "
        "it offline with one Python file and the package cryptography:"
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
        "Or write the check yourself. docs/reference/row-encoding.md specifies the encoding of rows, with test vectors; "
        "Merkle trees follow RFC 9162 with SHA-256; checkpoints are C2SP signed notes (c2sp.org/signed-note, "
        "c2sp.org/tlog-checkpoint) with Ed25519."
    )


def describe_disclosure() -> Iterator[Block]:
    yield Text(
        "No part of this report shows a value of any row. It names columns and their types, actors, tickets, purposes and "
        "operations as they are stored in the ledger; the ledger does not record literals of operations. All times are UTC."
    )
