"""A certificate for people: one HTML file, no script, nothing from a network, printed on A4.

The page is not what is signed; it names the key and the hash of what is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from audit.erasure.evidence.certificate import NOT_PROVEN, signed_bytes
from audit.report.html import page_of
from audit.report.sections import Block, Code, Document, Facts, Items, Section, Table, Text, Verdict

__all__ = ["certificate_page"]


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """Of a document with or without its signature; whether that is true is not looked at here."""
    request = certificate["request"]
    facts = Facts(
        [
            ("Request", request["id"]),
            ("Kind of person", request["subject"]),
            ("Received", request["received"]),
            ("Due", request["due"]),
            ("Legal basis", request["legal_basis"]),
            ("Approved by", _said(request["approver"])),
            ("Run", certificate["run"]),
            ("Issued", certificate["issued_at"]),
            ("Identifiers shown", "none"),
        ]
    )
    sections = [
        Section("Deleted at the source", list(_rows(certificate["tables"], "No table was to be erased from."))),
        Section("Copies", list(_rows(certificate["sinks"], "The tables have no copies that deltarelay keeps."))),
        Section("Removed from storage", list(_rows(certificate["purges"], "There was nothing to remove."))),
        Section("Scan", list(_scan(certificate["scan"]))),
        Section("Pending", list(_pending(certificate["pending"]))),
        Section("Holds", list(_rows(certificate["holds"], "Nothing is kept back for a legal reason."))),
        Section(
            "Not verified", list(_rows(certificate["unverified"], "Everything that was to be looked at was seen."))
        ),
        Section("Out of reach", list(_out_of_reach(certificate["out_of_reach"]))),
        Section("Evidence", list(_evidence(certificate["evidence"]))),
        Section("How to check this", list(_signed(certificate))),
    ]
    return page_of(Document("Erasure certificate", f"Request {request['id']}", _verdict(certificate), facts, sections))


def _verdict(certificate: Mapping[str, Any]) -> Verdict:
    scan, pending, holds = certificate["scan"], certificate["pending"], certificate["holds"]
    unseen = len(certificate["unverified"])
    looked = f" {_count(unseen, 'place')} could not be verified." if unseen else ""
    if certificate["outcome"] == "erased":
        return Verdict("good", "Erased", f"The scan of what is left found nothing.{looked}")
    dates = [one.get("clears_on") for one in pending]
    until = ""
    if pending and all(dates):
        until = f", the last of it until {max(dates)}"
    elif pending:
        until = f", in {_count(dates.count(None), 'place')} until somebody acts"
    return Verdict(
        "open",
        "Erased in part",
        f"Data is still there: {_count(len(pending), 'place')} pending{until}; {_count(scan['finds'], 'find')} of the scan; "
        f"{_count(len(holds), 'hold')}.{looked}",
    )


def _scan(scan: Mapping[str, Any]) -> Iterator[Block]:
    yield Facts([(_title(name), _said(value)) for name, value in scan.items() if not _is_rows(value)])
    for name, value in scan.items():
        if _is_rows(value):
            yield Text(f"{_title(name)}:")
            yield _table(value)


def _pending(pending: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    if not pending:
        yield Text("Nothing is pending.")
        return
    yield Text("Still there, and when it goes:")
    yield _table(
        [{**one, "clears_on": one.get("clears_on") or "not by itself: somebody has to act"} for one in pending]
    )


def _out_of_reach(copies: Sequence[str]) -> Iterator[Block]:
    if not copies:
        yield Text("No copies are known that nobody here can remove.")
        return
    yield Text("Copies that nobody here can remove, and what does:")
    yield Items(copies)


def _evidence(evidence: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    yield Text("Of each step the hash of its facts, which the erasure register keeps.")
    yield _table(evidence)


def _signed(certificate: Mapping[str, Any]) -> Iterator[Block]:
    signature = certificate.get("signature")
    if signature is None:
        yield Text("This certificate is not signed.")
        return
    yield Text(
        "What is signed is the JSON file of this certificate, not this page. With that file and the public key of this name "
        "and id, which has to come from somebody you trust, it is checked without a network."
    )
    yield Facts([("Signed by", signature["key"]), ("Key id", signature["id"])])
    yield Text("SHA-256 of what is signed:")
    yield Code([sha256(signed_bytes(certificate)).hexdigest()])
    yield Text("The certificate does not prove:")
    yield Items(NOT_PROVEN)


# ── rows of any shape ────────────────────────────────────────────────────────────────────────────────────────────────


def _rows(rows: Sequence[Mapping[str, Any]], none: str) -> Iterator[Block]:
    yield _table(rows) if rows else Text(none)


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """With a column for each name that any of them has: words first, since the register keeps no order of names."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    numbers = [name for name in names if all(isinstance(row.get(name, 0), int) for row in rows)]
    names.sort(key=lambda name: name in numbers)
    cells = [[_said(row.get(name)) for name in names] for row in rows]
    return Table([_title(name) for name in names], cells, frozenset(map(_title, numbers)))


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


_TITLES = {"sha256": "SHA-256", "at": "When"}


def _title(name: str) -> str:
    return _TITLES.get(name) or name.replace("_", " ").capitalize()


def _said(value: Any) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_said(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))  # versions and names: no thousands
    return str(value)


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" + ("" if value == 1 else "s")
