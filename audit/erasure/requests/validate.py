"""Makes a request from the fields of a line or an entry, and checks each of them."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from audit.erasure.model import Request, Subject
from audit.identifiers import fold
from cdf.errors import ConfigError

__all__ = ["FIELDS", "PREFIX", "Entry", "Faults", "Record"]

FIELDS = ("id", "subject", "received", "due", "legal_basis", "requester", "approver")
PREFIX = "identifiers."
"""Prefix of an identifier with the name of one of FIELDS; allowed for any identifier."""

_BASIS = "GDPR Art. 17"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,40}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LISTED = 50
_SHORT = 4
"""An identifier of fewer characters is searched as a whole word: `7` is part of many ids."""


@dataclass(frozen=True, slots=True)
class Record:
    """A line or an entry. ``values`` has the fields that are not empty."""

    kind: Literal["line", "entry"]
    number: int
    values: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def place(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass
class Faults:
    """The faults of one file, reported together. No message contains a value."""

    file: str
    found: list[tuple[int, dict[str, str | None]]] = field(default_factory=list)

    def add(self, record: Record | None, name: str | None, message: str) -> None:
        fault = {"place": record.place if record else None, "field": name, "message": message}
        self.found.append((record.number if record else 0, fault))

    def unknown(self, record: Record, name: str, known: Sequence[str], what: str) -> None:
        """Report an unknown name. It is not shown where it does not look like a name: it may be a value in the wrong
        place."""
        if not _NAME.fullmatch(name):
            self.add(record, None, f"{what} has an unknown name; known names: {', '.join(known)}")
            return
        near = difflib.get_close_matches(name.lower(), known, n=1)
        self.add(
            record,
            name,
            "is unknown" + (f"; did you mean `{near[0]}`?" if near else f"; known names: {', '.join(known)}"),
        )

    def raise_if_any(self) -> None:
        if not self.found:
            return
        problems = [one for _, one in sorted(self.found, key=lambda one: one[0])]
        lines = [
            ": ".join(part for part in (self.file, one["place"], one["field"], one["message"]) if part)
            for one in problems
        ]
        shown = [*lines[:_LISTED], *([f"... and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else [])]
        if len(lines) > 1:
            shown.insert(0, f"{len(lines)} problems in {self.file}")
        raise ConfigError("\n".join(shown), hint="no request of the file was added", problems=problems)


@dataclass
class Entry:
    """The checks of one record. Each field is checked even where others have faults."""

    record: Record
    subjects: Mapping[str, Subject]
    faults: Faults
    today: dt.date
    due: Callable[[dt.date], dt.date]

    def request(self) -> Request | None:
        before = len(self.faults.found)
        for name, value in self.record.values.items():
            if _CONTROL.search(value):
                self.add(name, "holds a control character, such as a line break")
        subject = self.subject()
        identifiers = self.identifiers(subject) if subject is not None else {}
        id = self.id()
        received = self.day("received", self.today)
        due = self.day("due", received and self.due(received))
        if received is not None and due is not None and due < received:
            self.add("due", "is before `received`")
        legal_basis, requester = self.get("legal_basis") or _BASIS, self.get("requester")
        if not requester:
            self.add("requester", "is missing: who has received the request")
        if subject is not None:
            self.check_no_identifier(identifiers)
        if subject is None or received is None or due is None or len(self.faults.found) > before:
            return None
        approver = self.get("approver") or None
        return Request(id, subject.name, identifiers, received, due, legal_basis, requester, approver)

    def get(self, name: str) -> str:
        return self.record.values.get(name, "").strip()

    def add(self, name: str, message: str) -> None:
        self.faults.add(self.record, name, message)

    def id(self) -> str:
        id = self.get("id")
        if not id:
            self.add("id", "is missing")
        elif not _ID.fullmatch(id):
            self.add("id", "may have letters, digits, dots, dashes and underscores, up to 64 of them")
        return id

    def subject(self) -> Subject | None:
        name = self.get("subject")
        if not name and len(self.subjects) == 1:
            return next(iter(self.subjects.values()))
        if name not in self.subjects:
            what = "is not configured" if name else "is missing"
            self.add("subject", f"{what}; configured subjects: {', '.join(self.subjects) or 'none'}")
            return None
        return self.subjects[name]

    def identifiers(self, subject: Subject) -> dict[str, str]:
        found: dict[str, str] = {}
        for written, value in self.record.values.items():
            if written in FIELDS:
                continue
            name = written.removeprefix(PREFIX) if written.startswith(PREFIX) else written
            if not value.strip():
                continue
            if name not in subject.identifiers:
                known = ", ".join(subject.identifiers)
                self.add(written, f"is not an identifier of the subject `{subject.name}`, which has {known}")
            elif name in found:
                self.add(written, "occurs twice")
            else:
                found[name] = value
        if not found and not any(name not in FIELDS and value.strip() for name, value in self.record.values.items()):
            self.faults.add(self.record, None, f"identifies no person: give {' or '.join(subject.identifiers)}")
        return found

    def day(self, name: str, default: dt.date | None) -> dt.date | None:
        text = self.get(name)
        if not text:
            return default
        try:
            if _DAY.fullmatch(text):
                return dt.date.fromisoformat(text)
        except ValueError:
            pass  # such as 2026-02-30
        self.add(name, "must be a date such as 2026-01-31")
        return None

    def check_no_identifier(self, identifiers: Mapping[str, str]) -> None:
        """Ids are written to logs and commits, the other fields to the certificate: none may contain an identifier."""
        values = {fold(value).strip() for value in identifiers.values()}
        # the part before the @ identifies a person as well; an id cannot contain the @
        locals_ = {local for local, at, _ in (value.partition("@") for value in values) if at and local}
        searched = {
            "id": values | locals_,
            "legal_basis": {value for value in values if not value.isdecimal()},  # "Art. 17" is not the customer 17
            "requester": values,
            "approver": values,
        }
        for name, forbidden in searched.items():
            text = fold(self.get(name))
            if any(_is_in(value, text) for value in forbidden):
                self.add(name, "contains an identifier of the request, and this field is shown to others")


def _is_in(value: str, text: str) -> bool:
    if len(value) >= _SHORT:
        return value in text
    return re.search(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])", text) is not None
