"""The identifiers that are known of each request: given by it, or learned from rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from audit.erasure.model import Link, Request, Subject
from audit.identifiers import Spelling, normalise
from cdf.errors import ConfigError

__all__ = ["LINK_PREFIX", "TOKEN", "KnownValues", "Values", "link_name", "without_links"]

LINK_PREFIX = "-> "
TOKEN = f"{LINK_PREFIX}token"
"""The name under which the register keeps a person's token in the key registry: no identifier or link has this name."""

Values: TypeAlias = dict[tuple[str, str], list[tuple[str, str]]]
"""(subject, identifier) → (request, value)."""


def link_name(link: Link, version: int) -> str:
    """Return the name under which the register keeps what rows of that version lead to. No identifier has such a name."""
    return f"{LINK_PREFIX}{link.table}@{version} {link.other}"


def without_links(learned: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return the learned identifiers, without what rows lead to through links."""
    return [one for one in learned if not one[1].startswith(LINK_PREFIX)]


class KnownValues:
    """Its ``repr`` shows no value."""

    def __init__(self, subjects: Mapping[str, Subject]) -> None:
        self._subjects = subjects
        self.values: Values = {}
        self.learned: list[tuple[str, str, str]] = []
        """(request, identifier, value) of everything that the requests do not give."""
        self.from_lost_rows: set[tuple[str, str, str]] = set()
        """The learned values that come only from rows that the source has lost, or from rows found through these values."""

    def start(self, requests: Sequence[Request], learned: Iterable[tuple[str, str, str]]) -> Values:
        """Add the identifiers of the requests, and those learned before. Return all of them, as the first to search for."""
        subject_of = {request.id: request.subject for request in requests}
        for request in requests:
            if unknown := sorted(request.identifiers.keys() - self._subjects[request.subject].identifiers.keys()):
                raise ConfigError(
                    f"request {request.id} has {', '.join(unknown)}, which is not an identifier of {request.subject}",
                    hint=f"add it to `erasure.subjects.{request.subject}.identifiers`, or remove it from the request",
                )
        found: Values = {}
        given = [(one.id, name, value) for one in requests for name, value in one.identifiers.items()]
        self.add(found, subject_of, given)
        self.learned += self.add(found, subject_of, learned)
        return found

    def add(
        self, found: Values, subject_of: Mapping[str, str], values: Iterable[tuple[str, str, str]]
    ) -> list[tuple[str, str, str]]:
        """Add new (request, identifier, value), also to ``found``, and return them. Blank values are ignored."""
        # Each written form of a value is kept: the scan and the key registry need them all
        new = []
        seen = {
            (request, name, _written_form(value, self._subjects[subject].identifiers[name]))
            for (subject, name), known in self.values.items()
            for request, value in known
        }
        for request, name, value in values:
            subject = subject_of.get(request)
            if subject is None or name not in self._subjects[subject].identifiers or not value.strip():
                continue
            one = (request, name, _written_form(value, self._subjects[subject].identifiers[name]))
            if one not in seen:
                seen.add(one)
                new.append((request, name, value))
                for target in (self.values, found):
                    target.setdefault((subject, name), []).append((request, value))
        return new

    def not_from_lost_rows(self) -> Values:
        return {
            key: [(id, value) for id, value in known if (id, key[1], value) not in self.from_lost_rows]
            for key, known in self.values.items()
        }

    def normalised(self, subject: str, name: str) -> set[tuple[str, str]]:
        """Return (request, value) of an identifier, each value once however rows write it."""
        spelling = self._subjects[subject].identifiers[name]
        return {(request, normalise(value, spelling)) for request, value in self.values.get((subject, name), ())}

    def count_learned(self) -> Counter[str]:
        """Return the number of learned identifiers by request, each counted once however rows write it."""
        subject_of = {
            (request, name): subject for (subject, name), known in self.values.items() for request, _ in known
        }
        different = {
            (request, name, normalise(value, self._subjects[subject_of[request, name]].identifiers[name]))
            for request, name, value in self.learned
        }
        return Counter(request for request, _, _ in different)


def _written_form(value: str, spelling: Spelling) -> str:
    """Return how a row writes the value, but for surrounding blanks and the case of an address."""
    return value.strip().lower() if spelling == "email" else value
