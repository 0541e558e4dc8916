"""A certificate as an HTML page.

The signature covers the JSON document, not this page; the page names the key and the hash of the signed bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from audit.erasure.evidence.certificate import NOT_PROVEN, signed_bytes
from audit.report.document import Block, Code, Document, Facts, Items, Section, Table, Text, Verdict
from audit.report.formatting import format_count
from audit.report.html import render_page

__all__ = ["certificate_page"]


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """Render a certificate with or without its signature, which is not verified here."""
    request = certificate["request"]
    facts = Facts(
        [
            ("Request", request["id"]),
            ("Kind of person", request["subject"]),
            ("Received", request["received"]),
            ("Due", request["due"]),
            ("Legal basis", request["legal_basis"]),
            ("Approved by", _format(request["approver"])),
            ("Run", certificate["run"]),
            ("Issued", certificate["issued_at"]),
            ("Identifiers shown", "none"),
        ]
    )
    sections = [
        Section("Deleted at the source", list(_list_rows(certificate["tables"], "The request concerned no table."))),
        Section("Copies", list(_list_rows(certificate["sinks"], "deltarelay maintains no copies of the tables."))),
        Section("Removed from storage", list(_list_rows(certificate["purges"], "Nothing had to be removed."))),
        Section("Scan", list(_describe_scan(certificate["scan"]))),
        Section("Pending", list(_list_pending(certificate["pending"]))),
        Section("Holds", list(_list_rows(certificate["holds"], "No data is retained for a legal reason."))),
        Section(
            "Not verified",
            list(_list_rows(certificate["unverified"], "Everything in the scope of the scan was checked.")),
        ),
        Section("Out of reach", list(_list_out_of_reach(certificate["out_of_reach"]))),
        Section("Evidence", list(_list_evidence(certificate["evidence"]))),
        Section("How to check this", list(_describe_signature(certificate))),
    ]
    return render_page(
        Document("Erasure certificate", f"Request {request['id']}", _judge(certificate), facts, sections)
    )


def _judge(certificate: Mapping[str, Any]) -> Verdict:
    scan, pending, holds = certificate["scan"], certificate["pending"], certificate["holds"]
    unverified = len(certificate["unverified"])
    unchecked = f" {format_count(unverified, 'place')} could not be verified." if unverified else ""
    if certificate["outcome"] == "erased":
        return Verdict("good", "Erased", f"The final scan found nothing.{unchecked}")
    dates = [entry.get("clears_on") for entry in pending]
    until = ""
    if pending and all(dates):
        until = f", the last of it until {max(dates)}"
    elif pending:
        until = f", in {format_count(dates.count(None), 'place')} until an operator removes the data"
    return Verdict(
        "open",
        "Erased in part",
        f"Data still exists: {format_count(len(pending), 'place')} pending{until}; "
        f"{format_count(scan['finds'], 'finding')} of the scan; {format_count(len(holds), 'hold')}.{unchecked}",
    )


def _describe_scan(scan: Mapping[str, Any]) -> Iterator[Block]:
    yield Facts([(_format_title(name), _format(value)) for name, value in scan.items() if not _are_rows(value)])
    for name, value in scan.items():
        if _are_rows(value):
            yield Text(f"{_format_title(name)}:")
            yield _table(value)


def _list_pending(pending: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    if not pending:
        yield Text("Nothing is pending.")
        return
    yield Text("Data that still exists, and when it will be removed:")
    yield _table(
        [
            {**entry, "clears_on": entry.get("clears_on") or "not automatically: an operator must act"}
            for entry in pending
        ]
    )


def _list_out_of_reach(copies: Sequence[str]) -> Iterator[Block]:
    if not copies:
        yield Text("No copies outside the reach of deltarelay are known.")
        return
    yield Text("Copies that deltarelay cannot remove, and what removes them:")
    yield Items(copies)


def _list_evidence(evidence: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    yield Text("The hash of the facts of each step. The erasure register stores the facts.")
    yield _table(evidence)


def _describe_signature(certificate: Mapping[str, Any]) -> Iterator[Block]:
    signature = certificate.get("signature")
    if signature is None:
        yield Text("This certificate is not signed.")
        return
    yield Text(
        "The signature covers the JSON file of this certificate, not this page. It can be verified offline with that file "
        "and the public key with this name and id, which must come from a source that you trust."
    )
    yield Facts([("Signed by", signature["key"]), ("Key id", signature["id"])])
    yield Text("SHA-256 of the signed bytes:")
    yield Code([sha256(signed_bytes(certificate)).hexdigest()])
    yield Text("The certificate does not prove:")
    yield Items(NOT_PROVEN)


# ── rows of any shape ────────────────────────────────────────────────────────────────────────────────────────────────


def _list_rows(rows: Sequence[Mapping[str, Any]], none: str) -> Iterator[Block]:
    yield _table(rows) if rows else Text(none)


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One column for each name that occurs in a row: text before numbers, because the register stores no order of names."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    numbers = [name for name in names if all(isinstance(row.get(name, 0), int) for row in rows)]
    names.sort(key=lambda name: name in numbers)
    cells = [[_format(row.get(name)) for name in names] for row in rows]
    return Table([_format_title(name) for name in names], cells, frozenset(map(_format_title, numbers)))


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


_TITLES = {"sha256": "SHA-256", "at": "When"}


def _format_title(name: str) -> str:
    return _TITLES.get(name) or name.replace("_", " ").capitalize()


def _format(value: Any) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_format(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))  # versions and names: no thousands separators
    return str(value)
