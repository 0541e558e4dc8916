"""The values that an erasure is about: whose data, in which tables, what may not go yet.

Subject   has identifiers, each with a spelling      PersonalTable   has rows of a subject, by a column or a link
Request   names one person by identifiers            Hold            keeps a table's rows until a date
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from audit.identifiers import Spelling
from cdf.result import Result

__all__ = [
    "IDENTITY",
    "STATES",
    "EncryptedColumns",
    "Hold",
    "Link",
    "OnErase",
    "OnReturn",
    "PersonalTable",
    "ReachedState",
    "Request",
    "State",
    "Subject",
]

OnErase: TypeAlias = Literal["delete", "nullify"]
OnReturn: TypeAlias = Literal["stop", "leave_out"]
"""What a pipeline does where somebody who was erased is back in its source: nothing at all, or all but those rows."""
State: TypeAlias = Literal[
    "received",
    "resolved",
    "approved",
    "shredded",
    "deleted",
    "propagated",
    "purged",
    "verified",
    "certified",
    "held",
    "partial",
    "failed",
]
STATES: tuple[State, ...] = (
    "received",
    "resolved",
    "approved",
    "shredded",
    "deleted",
    "propagated",
    "purged",
    "verified",
    "certified",
)
"""In the order in which a request goes through them, past ``shredded`` where nothing is sealed.

``held``, ``partial`` and ``failed`` are ends of another kind."""


IDENTITY = "identity"
"""The class of the columns that tell who somebody is, where a table has classes and these are in none of them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of person, such as a customer."""

    name: str
    identifiers: Mapping[str, Spelling]
    """By the name that requests use. A column of that name in a table with a ``path`` of its own holds its values."""

    def has(self, column: str) -> bool:
        """Whether a column of that name is an identifier; Spark's names have no case."""
        return column.lower() in {name.lower() for name in self.identifiers}


@dataclass(frozen=True, slots=True)
class Link:
    """``column -> table.other``: the rows whose ``column`` is in ``other`` of the rows that are caught in ``table``."""

    column: str
    table: str
    other: str


@dataclass(frozen=True, slots=True)
class PersonalTable:
    """A Delta table with rows of a subject. Of rows that name several people: what they say of one of them."""

    table: str
    subject: str
    path: str | Link
    """A column that holds the identifier of that name, or the way to it through another table."""
    personal: tuple[str, ...] = ()
    """Columns with personal data; ``nullify`` empties these."""
    on_erase: OnErase = "delete"
    others: tuple[PersonalTable, ...] = ()
    """The same table for further people whom its rows name, each without others. Links to the table do not lead to them."""
    classes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of classes and their columns: a trail has them sealed under a key of the person's for each class."""

    @property
    def people(self) -> tuple[PersonalTable, ...]:
        """Itself and ``others``: the table once for each person whom its rows name."""
        return (self, *self.others)

    @property
    def what_happens(self) -> str:
        """``delete``, ``nullify``, or both where it differs between the people."""
        return ", ".join(dict.fromkeys(one.on_erase for one in self.people))

    @property
    def column(self) -> str:
        """That says whose a row is."""
        return self.path.column if isinstance(self.path, Link) else self.path

    def of(self, subjects: Collection[str]) -> PersonalTable | None:
        """For these subjects alone; None where its rows name none of them."""
        people = [replace(one, others=()) for one in self.people if one.subject in subjects]
        return replace(people[0], others=tuple(people[1:])) if people else None


@dataclass(frozen=True, slots=True)
class Hold:
    """Rows of ``table`` may not go before ``until``, or the keys of a class; one of the two."""

    table: str | None
    until: dt.date
    basis: str
    class_name: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One person who is to be erased. Its ``repr`` shows no identifier: nothing that is logged may."""

    id: str
    subject: str
    identifiers: Mapping[str, str] = field(repr=False)
    received: dt.date
    due: dt.date
    legal_basis: str
    requester: str
    approver: str | None = None


@dataclass(frozen=True, slots=True)
class EncryptedColumns:
    """Which encrypted values of a row belong to one of the people whom it may name."""

    tokens: frozenset[bytes] = frozenset()
    """By which the key registry knows the data subjects. A token contains no identifier."""
    columns: frozenset[str] = frozenset()
    """The columns about the person named in this column of the row; in lower case, like ``others``."""
    others: frozenset[str] = frozenset()
    """The columns about other people in the row."""


@dataclass(frozen=True, slots=True)
class ReachedState(Result):
    """A state that requests of a run have reached."""

    state: State
    reached_at: dt.datetime
    requests: tuple[str, ...]
