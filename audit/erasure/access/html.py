"""An access report as an HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.erasure.access.report import AccessReport, HeldRows, TableHeld
from audit.report.document import Block, Document, Facts, Items, Section, Table, Text, Verdict
from audit.report.formatting import format_count
from audit.report.html import render_page

__all__ = ["access_page"]

_WIDE = 6
"""Maximum number of columns that fit on paper. A row with more columns becomes a list."""


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
    words = f"{format_count(rows, 'row')} and {format_count(counts['events'], 'event')} of history are stored"
    verdict = Verdict(
        "open" if rows or counts["events"] else "good",
        words if rows or counts["events"] else "No data is stored on this person",
        f"Number of tables searched, with their copies: {counts['tables']:,}. This page shows personal data: it is intended "
        "for the person whom it is about.",
    )
    sections = [
        Section("How you are identified", list(_list_identifiers(report))),
        *(
            Section(f"Rows of {one.table}", list(_list_rows(one.held, "This table contains no rows about you.")))
            for one in report.tables
        ),
        Section("How long the data is stored", list(_describe_retention(report))),
        Section("Who receives the data", list(_list_recipients(report))),
        *(
            Section(
                f"History of {one.table} (pipeline {one.pipeline})",
                list(_list_rows(one.events, "This history contains no events about you.")),
            )
            for one in report.history
        ),
        Section("What this report does not contain", [Items(report.not_told)]),
    ]
    return render_page(Document("Access report", f"Request {report.request}", verdict, facts, sections))


def _list_identifiers(report: AccessReport) -> Iterator[Block]:
    yield Text(
        "The rows were found by these identifiers. Identifiers that the request does not contain come from your own rows."
    )
    rows = [[one.name, one.value, "the request" if one.given else "your rows"] for one in report.identifiers]
    yield Table(("Identifier", "Value", "Known from"), rows)


def _list_rows(held: Sequence[HeldRows], nothing: str) -> Iterator[Block]:
    shown = [group for group in held if group.rows]
    if not shown:
        yield Text(nothing)
    for group in shown:
        omitted = (
            f" Columns left out, because they are about other people: {', '.join(group.withheld)}."
            if group.withheld
            else ""
        )
        yield Text(
            f"{format_count(len(group.rows), 'row')} in which the column {group.column} identifies you.{omitted}"
        )
        names = list(group.rows[0])
        if "_change_type" in names:
            for row in group.rows:
                yield from _describe_event(row)
        elif len(names) <= _WIDE:
            yield Table(names, [[_format(row[name]) for name in names] for row in group.rows])
        else:
            for row in group.rows:
                yield Facts([(name, _format(value)) for name, value in row.items()])


def _describe_event(row: Mapping[str, Any]) -> Iterator[Block]:
    change = f"{row['_change_type']} ({row['_operation']})"
    yield Text(f"Version {row['_commit_version']}, {row['_commit_timestamp'] or 'at an unknown time'}: {change}")
    why = row["_unreadable"] or {}
    yield Facts([(name, why.get(name) or _format(value)) for name, value in row.items() if name not in _OF_EVENTS])


_OF_EVENTS = {"_commit_version", "_commit_timestamp", "_change_type", "_operation", "_unreadable"}


def _describe_retention(report: AccessReport) -> Iterator[Block]:
    yield Text("Rows are stored until they are deleted. Files and logs contain data deleted today until these dates:")
    rows = [
        [
            one.table,
            str(one.files_gone_on),
            str(one.log_gone_on),
            "; ".join(_list_holds(one)) or "-",
        ]
        for one in report.tables
    ]
    yield Table(("Table", "Files removed", "Log removed", "Retained by law"), rows)


def _list_holds(table: TableHeld) -> Iterator[str]:
    if table.held_until:
        yield f"not before {table.held_until}: {table.held_for}"
    yield from (f"{name} in its history not before {until}" for name, until in table.held_classes.items())


def _list_recipients(report: AccessReport) -> Iterator[Block]:
    if not report.recipients:
        yield Text("No pipeline replicates these tables.")
        return
    rows = [
        [
            one.target,
            one.table,
            "-" if one.version is None else str(one.version),
            "yes" if one.forgets else "no: it only receives the deletes",
        ]
        for one in report.recipients
    ]
    yield Table(("Target", "Receives changes of", "Up to version", "Erasure reaches it"), rows)
    for one in report.recipients:
        if one.kept:
            yield Text(f"Rows that {one.target} stores, also those that the table no longer contains:")
            yield from _list_rows(one.kept, "")


def _format(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping | list | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
