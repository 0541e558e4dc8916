"""The model of an erasure: whose data, in which tables, and what is under a hold.

Subject   has identifiers, each with a spelling      PersonalTable   has rows of a subject, by a column or a link
Request   names one person by identifiers            Hold            keeps a table's rows until a date
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

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
"""What a pipeline does where an erased person is back in its source: apply nothing, or everything but those rows."""
_StateInOrder: TypeAlias = Literal[
    "received",
    "resolved",
    "approved",
    "shredded",
    "deleted",
    "propagated",
    "purged",
    "verified",
    "certified",
]
State: TypeAlias = Literal[_StateInOrder, "held", "partial", "failed"]
STATES: tuple[State, ...] = get_args(_StateInOrder)
"""In the order in which a request reaches them; ``shredded`` is left out where nothing is encrypted.

``held``, ``partial`` and ``failed`` are other final states."""


IDENTITY = "identity"
"""The class of the columns that identify a person, where a table has classes and these columns are in none of them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of person, such as a customer."""

    name: str
    identifiers: Mapping[str, Spelling]
    """By the name that requests use. A column of that name holds its values, in a table whose ``path`` is a column."""

    def has(self, column: str) -> bool:
        """Return whether a column of that name is an identifier; Spark ignores the case of names."""
        return column.lower() in {name.lower() for name in self.identifiers}


@dataclass(frozen=True, slots=True)
class Link:
    """``column -> table.other``: the rows whose ``column`` is in ``other`` of the matched rows of ``table``."""

    column: str
    table: str
    other: str


@dataclass(frozen=True, slots=True)
class PersonalTable:
    """A Delta table with rows of a subject. Where rows name several people: what they say about one of them."""

    table: str
    subject: str
    path: str | Link
    """A column that holds the identifier of that name, or a link to it through another table."""
    personal: tuple[str, ...] = ()
    """Columns with personal data; ``nullify`` sets them to NULL."""
    on_erase: OnErase = "delete"
    others: tuple[PersonalTable, ...] = ()
    """The same table for further people whom its rows name. Links to the table do not lead to them."""
    classes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of classes and their columns: a trail encrypts each class under a separate key of the person."""

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
        """The column that identifies the person of a row."""
        return self.path.column if isinstance(self.path, Link) else self.path

    def of(self, subjects: Collection[str]) -> PersonalTable | None:
        """Return the table for these subjects only; None where its rows name none of them."""
        people = [replace(one, others=()) for one in self.people if one.subject in subjects]
        return replace(people[0], others=tuple(people[1:])) if people else None


@dataclass(frozen=True, slots=True)
class Hold:
    """Rows of ``table``, or the keys of a class, may not be erased before ``until``. Exactly one of the two is set."""

    table: str | None
    until: dt.date
    basis: str
    class_name: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One person to erase. Its ``repr`` shows no identifier, because logs must not contain one."""

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
