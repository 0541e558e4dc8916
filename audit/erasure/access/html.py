"""An access report for people: one HTML file, no script, nothing from a network, printed on A4."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.erasure.access.report import AccessReport, HeldRows, TableHeld
from audit.report.html import page_of
from audit.report.sections import Block, Document, Facts, Items, Section, Table, Text, Verdict

__all__ = ["access_page"]

_WIDE = 6
"""So many columns at most stand beside each other on paper; of more each row is a list of its own."""


def access_page(report: AccessReport) -> str:
    counts = report.counts()
    facts = Facts(
        [
            ("Request", report.request),
            ("Kind of person", report.subject),
            ("Received", str(report.received)),
            ("Due", str(report.due)),
            ("Made", f"{report.made_at:%Y-%m-%d %H:%M:%S} UTC by {report.made_by}"),
        ]
    )
    rows = counts["rows"] + counts["kept"]
    words = f"{_count(rows, 'row')} and {_count(counts['events'], 'event')} of history are held"
    verdict = Verdict(
        "open" if rows or counts["events"] else "good",
        words if rows or counts["events"] else "Nothing is held on this person",
        f"Tables that were looked through, with their copies: {counts['tables']:,}. This page shows personal data: it is "
        "for the person whom it is about.",
    )
    sections = [
        Section("Who you are to us", list(_identifiers(report))),
        *(
            Section(f"Rows of {one.table}", list(_held(one.held, "No row of this table is yours.")))
            for one in report.tables
        ),
        Section("How long it stays", list(_retention(report))),
        Section("Who receives it", list(_recipients(report))),
        *(
            Section(
                f"History of {one.table} (pipeline {one.pipeline})",
                list(_held(one.events, "It has no event of yours.")),
            )
            for one in report.history
        ),
        Section("What this report does not tell", [Items(report.not_told)]),
    ]
    return page_of(Document("Access report", f"Request {report.request}", verdict, facts, sections))


def _identifiers(report: AccessReport) -> Iterator[Block]:
    yield Text(
        "By these identifiers the rows were found. Those that the request does not have were told by your own rows."
    )
    rows = [[one.name, one.value, "the request" if one.given else "your rows"] for one in report.identifiers]
    yield Table(("Identifier", "Value", "Known from"), rows)


def _held(held: Sequence[HeldRows], nothing: str) -> Iterator[Block]:
    shown = [one for one in held if one.rows]
    if not shown:
        yield Text(nothing)
    for one in shown:
        out = f" Left out, because they are about somebody else: {', '.join(one.withheld)}." if one.withheld else ""
        yield Text(f"{_count(len(one.rows), 'row')} with you in the column {one.column}.{out}")
        names = list(one.rows[0])
        if "_change_type" in names:
            for row in one.rows:
                yield from _event(row)
        elif len(names) <= _WIDE:
            yield Table(names, [[_said(row[name]) for name in names] for row in one.rows])
        else:
            for row in one.rows:
                yield Facts([(name, _said(value)) for name, value in row.items()])


def _event(row: Mapping[str, Any]) -> Iterator[Block]:
    what = f"{row['_change_type']} ({row['_operation']})"
    yield Text(f"Version {row['_commit_version']}, {row['_commit_timestamp'] or 'at a time not known'}: {what}")
    why = row["_unreadable"] or {}
    yield Facts([(name, why.get(name) or _said(value)) for name, value in row.items() if name not in _OF_EVENTS])


_OF_EVENTS = {"_commit_version", "_commit_timestamp", "_change_type", "_operation", "_unreadable"}


def _retention(report: AccessReport) -> Iterator[Block]:
    yield Text("Rows stay until they are deleted. Files and logs keep what was deleted today until these days:")
    rows = [
        [
            one.table,
            str(one.files_gone_on),
            str(one.log_gone_on),
            "; ".join(_kept_until(one)) or "-",
        ]
        for one in report.tables
    ]
    yield Table(("Table", "Files gone", "Log gone", "Kept by law"), rows)


def _kept_until(one: TableHeld) -> Iterator[str]:
    if one.held_until:
        yield f"not before {one.held_until}: {one.held_for}"
    yield from (f"{name} in its history not before {until}" for name, until in one.held_classes.items())


def _recipients(report: AccessReport) -> Iterator[Block]:
    if not report.recipients:
        yield Text("No pipeline passes these tables on.")
        return
    rows = [
        [
            one.target,
            one.table,
            "-" if one.version is None else str(one.version),
            "yes" if one.forgets else "no: it gets the deletes alone",
        ]
        for one in report.recipients
    ]
    yield Table(("Target", "Gets the changes of", "Up to version", "Can be told to forget"), rows)
    for one in report.recipients:
        if one.kept:
            yield Text(f"Rows that {one.target} keeps, also where the table has them no more:")
            yield from _held(one.kept, "")


def _said(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping | list | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" + ("" if value == 1 else "s")
